"""Two seas: land between two bodies of water that differ, with and without barriers.

The truth is a field that knows the coast: the stationary solution of a diffusion with noise, which
no flux crosses into land (the Matérn field of Whittle 1954 with that boundary).  Rows are scattered
over the water, and maps are made once with neighbours along straight lines, whatever lies between,
and once with those alone that are seen past the land (``barriers``).
"""

import itertools
import sys

import numpy as np
import pandas as pd
import xarray as xr
from scipy.ndimage import distance_transform_edt
from scipy.sparse import coo_array, diags_array
from scipy.sparse.linalg import splu

import daskgp

PENINSULA = [[4.6, 0], [5.4, 0], [5.2, 7.2], [5, 7.5], [4.8, 7.2], [4.6, 0]]
BAR = [[2, 2.4], [8, 2.2], [8, 2.5], [2.2, 2.7], [2.2, 7.3], [8, 7.5], [8, 7.8], [2, 7.6], [2, 2.4]]
LANDS = {"peninsula": PENINSULA, "lagoon": BAR}
RANGE, NOISE = 5.0, 0.1
NAMES = {"straight lines": None, "with barriers": "land"}


def geojson(ring):
    """Return a polygon as GeoJSON has it."""
    return {"type": "Polygon", "coordinates": [ring]}


def water(ring, side):
    """Return a grid of cells 10 units wide, and which of them are water (side, side)."""
    axis = (np.arange(side) + 0.5) * 10 / side
    x, y = np.meshgrid(axis, axis, indexing="ij")
    land = np.zeros(x.shape, bool)
    for (x0, y0), (x1, y1) in itertools.pairwise(ring):
        if x0 != x1:
            own = (min(x0, x1) <= x) & (x < max(x0, x1))
            land ^= own & (y < y0 + (y1 - y0) * (x - x0) / (x1 - x0))
    return axis, ~land


def drawn(wet, seed, count=1):
    """Draw fields of mean 0 and variance about 1 on cells of water, NaN on land."""
    side = len(wet)
    number = np.where(wet, np.cumsum(wet).reshape(wet.shape) - 1, -1)
    pairs = [(number[1:], number[:-1]), (number[:, 1:], number[:, :-1])]
    i, j = (np.concatenate([pair[end].ravel() for pair in pairs]) for end in (0, 1))
    i, j = i[(i >= 0) & (j >= 0)], j[(i >= 0) & (j >= 0)]
    n, h = int(wet.sum()), 10 / side
    flux = coo_array((np.ones(len(i)), (i, j)), shape=(n, n))
    flux = flux + flux.T
    kappa = np.sqrt(8.0) / RANGE
    operator = kappa**2 * diags_array(np.ones(n)) + (diags_array(flux.sum(axis=1)) - flux) / h**2
    noise = np.random.default_rng(seed).standard_normal((n, count)) / h
    fields = np.full((count, side, side), np.nan)
    fields[:, wet] = (splu(operator.tocsc()).solve(noise) * np.sqrt(4 * np.pi) * kappa).T
    return fields


def scores(f, mean, std):
    """Return RMSE and CRPS of the field, and the coverage of intervals of 95 %."""
    return np.array(
        [
            daskgp.metrics.rmse(f, mean),
            daskgp.metrics.crps(f, mean, std**2),
            (np.abs(f - mean) < 1.96 * std).mean(),
        ]
    )


def main(rows=200, seeds=5, side=80, path=None):
    found, shown = {}, {}
    for name, ring in LANDS.items():
        axis, wet = water(ring, side)
        grid = xr.Dataset(coords={"y": axis, "x": axis})
        beside = wet & (distance_transform_edt(wet) < side / 10)  # less than 1 unit from land
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            (field,) = drawn(wet, seed + 100)
            i, j = np.argwhere(wet)[rng.permutation(wet.sum())[:rows]].T
            values = field[i, j] + NOISE * rng.standard_normal(len(i))
            table = pd.DataFrame({"x": axis[i], "y": axis[j], "salinity": values})
            for how, land in NAMES.items():
                given = {"barriers": geojson(ring) if land else None}
                maps = daskgp.interpolate(table, grid, method="vecchia", **given)
                mean = maps.salinity.transpose("x", "y").to_numpy()
                std = maps.salinity_std.transpose("x", "y").to_numpy()
                for part, own in (("all water", wet), ("beside land", beside)):
                    own = own & np.isfinite(mean)
                    score = scores(field[own], mean[own], std[own])
                    found.setdefault((name, how, part), []).append(score)
                if not seed:
                    shown[f"{name}: {how}"] = np.where(wet, mean, np.nan)
            if not seed:
                shown[f"{name}: truth"] = field
    for key, each in found.items():
        found[key] = np.mean(each, axis=0)
        print("{}, {}, {}: RMSE {:.3f}, CRPS {:.3f}, coverage {:.3f}".format(*key, *found[key]))
    if path:
        order = [f"{name}: {what}" for name in LANDS for what in ("truth", *NAMES)]
        coords = {"y": axis, "x": axis}
        fields = {name: xr.DataArray(shown[name].T, coords, ("y", "x")) for name in order}
        daskgp.plot.maps(fields, path=path)
    return found


if __name__ == "__main__":
    main(path=sys.argv[1] if len(sys.argv) > 1 else None)
