"""Barriers that a setting gives: polygons, their edges in a model, and rows inside of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import add

import numpy as np

from daskgp import data
from daskgp.data import partition
from daskgp.data.polygons import Polygons, polygons_in
from daskgp.errors import InputError
from daskgp.fit.recipe import Recipe
from daskgp.models.columns import KINDS, RADIUS, kind_of_name, on_sphere
from daskgp.models.markov.barriers import Barriers
from daskgp.models.scaling import Scaling
from daskgp.runtime.executor import Executor, map_reduce

STEP = 1.0
"""Degrees of longitude or latitude after which an edge, straight between both, is cut on the
sphere: it is less than 20 m off the great circle in between."""


def read(recipe: Recipe, rows: data.Rows) -> Recipe:
    """Return the recipe with the polygons of its barriers, for which it is one of its own."""
    if recipe.barriers is None or isinstance(recipe.barriers, Polygons):
        return recipe
    names, place = rows.feature_names, rows.geographic
    across_and_up = None if place is None else (names[place[0]], names[place[1]])
    found = polygons_in(recipe.barriers, names, "barriers", across_and_up)
    return replace(recipe, barriers=found, settings={**recipe.settings, "barriers": found.token})


def in_model(recipe: Recipe, rows: data.Rows, scale: Scaling) -> Barriers | None:
    """Return the edges of the barriers, and how scaled rows are places beside them."""
    polygons = recipe.barriers
    if polygons is None:
        return None
    columns = rows.columns
    if columns.sphere:
        at, edges, size = list(columns.sphere), _on_sphere(polygons), RADIUS
    else:
        at = [columns.inputs_names.index(name) for name in polygons.features]
        edges, size = _in_plane(polygons), 1.0
    unit = np.where(scale.uses, scale.x_scale, 0.0)
    axes = np.array([at, scale.x_shift[at] / size, unit[at] / size])
    c, end = len(at), np.full((1, 2), np.nan)
    # a row of NaN ends a ring, another one a polygon
    parts = [(*(part for ring in rings for part in (ring, end)), end) for rings in polygons.each]
    rings = np.concatenate([part for own in parts for part in own])
    return Barriers(edges[(edges[:, :c] != edges[:, c:]).any(axis=1)], axes, rings)


def _on_sphere(polygons: Polygons) -> np.ndarray:
    """Return edges (e, 6) between places on the unit sphere, short parts of those of polygons."""
    found = []
    for ring in polygons.rings:
        steps = np.ceil(np.abs(np.diff(ring, axis=0)).max(axis=1) / STEP)
        count = np.maximum(steps, 1).astype(np.int64)
        ends = np.concatenate([[0], np.cumsum(count)])
        at = np.interp(np.arange(ends[-1] + 1), ends, np.arange(len(ring)))
        own = [np.interp(at, np.arange(len(ring)), line) for line in ring.T]
        places = on_sphere(*own) / RADIUS
        found.append(np.concatenate([places[:-1], places[1:]], axis=1))
    return np.concatenate(found)


def _in_plane(polygons: Polygons) -> np.ndarray:
    """Return edges (e, 4) of polygons; of longitudes those from 0 and those from -180 degrees."""
    edges = np.concatenate([np.concatenate([a[:-1], a[1:]], axis=1) for a in polygons.rings])
    if kind_of_name(polygons.features[0]) != KINDS[0]:
        return edges
    return np.concatenate([edges + turn * np.array([1, 0, 1, 0]) for turn in (-360, 0, 360)])


def refuse_inside(
    polygons: Polygons | None,
    rows: data.Rows,
    spans: Sequence[partition.Span],
    executor: Executor,
) -> None:
    """Raise InputError for rows inside of barriers, which see no others."""
    if polygons is None or not len(rows):
        return
    at = [rows.feature_names.index(name) for name in polygons.features]
    count: int = map_reduce(partial(_inside, rows, polygons, at), add, spans, executor, "barriers")
    if count:
        raise InputError(
            f"{count:,} of {len(rows):,} rows lie{'s' * (count == 1)} inside the barriers, "
            "where they see no other row: leave them out, as daskgp.interpolate(..., "
            "barriers=...) does, or give barriers that fit the rows"
        )


def _inside(rows: data.Rows, polygons: Polygons, at: Sequence[int], span: partition.Span) -> int:
    """Return how many rows with a target lie inside."""
    X, y = rows.raw(span.start, span.stop)
    known = ~np.isnan(y[:, : rows.n_targets]).all(axis=1)
    x, y = (np.asarray(X[known, j], np.float64) for j in at)
    return int(polygons.hold(x, y).sum())
