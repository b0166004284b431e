"""Make the coastlines of maps, daskgp/plot/coasts.npz, from Natural Earth, which is public domain.

    npm install world-atlas@2.0.2
    python tests/plot/write_coasts.py node_modules/world-atlas daskgp/plot/coasts.npz

The arcs of land in its TopoJSON are thinned to what a map shows, and written as differences of
whole steps, which compress well.
"""

import json
import sys
from pathlib import Path

import numpy as np

from daskgp.plot.coasts import STEP

SCALES = {"110m": 0.0, "50m": 0.02, "10m": 0.01}
"""Scales of Natural Earth, and how far thinned lines may be off, in degrees."""


def arcs(path):
    """Yield lines (k, 2) of longitude and latitude of a TopoJSON file."""
    topology = json.loads(path.read_text())
    scale, origin = (np.array(topology["transform"][name]) for name in ("scale", "translate"))
    for arc in topology["arcs"]:
        yield np.cumsum(np.array(arc), axis=0) * scale + origin


def coasts(line):
    """Yield the parts of a line that are coast: not at or across the cut, nor at the pole."""
    cut, pole = np.abs(line[:, 0]) > 179.999, line[:, 1] < -89.9
    across = np.abs(np.diff(line[:, 0])) > 180.0
    no_coast = across | (cut[:-1] & cut[1:]) | pole[:-1] | pole[1:]
    for part in np.split(line, np.flatnonzero(no_coast) + 1):
        if len(part) > 1:
            yield part


def thinned(line, most):
    """Leave out points of a line that stays within a distance of them (Douglas and Peucker)."""
    kept, spans = {0, len(line) - 1}, [(0, len(line) - 1)]
    while spans:
        first, last = spans.pop()
        if last - first < 2:
            continue
        along, off = line[last] - line[first], line[first + 1 : last] - line[first]
        length = np.hypot(*along)
        across = along[0] * off[:, 1] - along[1] * off[:, 0]
        distance = np.abs(across) / length if length else np.hypot(*off.T)
        if distance.max() > most:
            middle = first + 1 + int(distance.argmax())
            kept.add(middle)
            spans += [(first, middle), (middle, last)]
    return line[sorted(kept)]


def main(folder, path):
    held = {}
    for scale, most in SCALES.items():
        lines = [part for arc in arcs(Path(folder, f"land-{scale}.json")) for part in coasts(arc)]
        lines = [np.rint(thinned(line, most) / STEP).astype(np.int32) for line in lines]
        held[f"lengths_{scale}"] = np.array([len(line) for line in lines], np.int32)
        start = np.zeros((1, 2), np.int32)
        held[f"steps_{scale}"] = np.diff(np.concatenate(lines), axis=0, prepend=start).T
    np.savez_compressed(path, **held)


if __name__ == "__main__":
    main(*sys.argv[1:])
