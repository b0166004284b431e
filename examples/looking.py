"""Looking at fits: one that suits the data and one that is too smooth, seen in three figures.

An SGPR with a few inducing inputs is too smooth for a field with structure at short distances; LMA
is not.  Residuals at places never seen show it, and so does the variogram.
"""

import sys
from pathlib import Path

import numpy as np
import xarray as xr

import daskgp
from daskgp import kernels, plot

SIDE, LENGTHSCALE, NOISE = 200.0, 15.0, 0.3
"""In km, km and degrees."""


def field(X, seed=0):
    """Return a temperature at X (n, 2): a sum of cosines with the spectrum of Matern-3/2."""
    rng, k = np.random.default_rng(seed), 500
    frequencies = rng.standard_normal((2, k)) / np.sqrt(rng.chisquare(3, k) / 3) / LENGTHSCALE
    waves = np.cos(X @ frequencies + rng.uniform(0, 2 * np.pi, k))
    return 10 + waves @ np.full(k, np.sqrt(2 / k))


def main(rows=3_000, side=100, folder=None, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, SIDE, size=(2 * rows, 2))
    y = field(X) + NOISE * rng.standard_normal(len(X))
    X_test, y_test, X, y = X[rows:], y[rows:], X[:rows], y[:rows]
    models = {
        "SGPR, 30 inducing inputs": daskgp.SGPR(kernels.Matern32(), n_inducing=30),
        "LMA": daskgp.LMA(kernels.Matern32()),
    }
    predicted = {}
    for name, model in models.items():
        mean, std = model.fit(X, y).predict(X_test, return_std=True, include_noise=True)
        predicted[name] = mean, std
        missed = (y_test - mean) / std
        print(f"{name:24s} residuals: mean {missed.mean():+.2f}, variance {missed.var():.2f}")
    variograms = {name: daskgp.variogram(X, y, model) for name, model in models.items()}
    if folder:
        draw(Path(folder), models["LMA"], side, X_test, y_test, predicted, variograms)
    return variograms


def draw(folder, model, side, X_test, y_test, predicted, variograms):
    """Write three figures to a folder."""
    from matplotlib.figure import Figure

    coords = {
        name: (name, np.linspace(0, SIDE, side), {"units": "km", "long_name": said})
        for name, said in (("x1", "northing"), ("x0", "easting"))
    }
    mean, std = model.predict(xr.Dataset(coords=coords), return_std=True)  # on a labelled grid
    mean, std = (field.rename(f"temperature_{w}") for field, w in ((mean, "mean"), (std, "std")))
    plot.posterior_map(mean=mean.assign_attrs(units="°C"), std=std, path=folder / "looking-map.svg")
    for what, size in (("residuals", (9, 4)), ("variogram", (8.6, 3.6))):
        fig = Figure(figsize=size, dpi=150, layout="constrained")
        for ax, name in zip(fig.subplots(1, 2, sharex=True, sharey=True), predicted, strict=True):
            if what == "residuals":
                names = "easting (km)", "northing (km)"
                plot.residuals(X_test, y_test, *predicted[name], names=names, title=name, ax=ax)
            else:
                names = "distance (km)", "semivariance of temperature (°C²)"
                plot.variogram(variograms[name], names=names, title=name, ax=ax)
        fig.savefig(folder / f"looking-{what}.svg")


if __name__ == "__main__":
    main(folder=sys.argv[1] if len(sys.argv) > 1 else None)
