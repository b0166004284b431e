"""Reports of fits: each one HTML file with all that it shows inside it."""

from __future__ import annotations

import base64
import importlib.metadata
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from daskgp.data import feature_units, grids
from daskgp.data.stores import groups, objects, remote
from daskgp.errors import InputError
from daskgp.predict import hyperparameter_map

if TYPE_CHECKING:
    from daskgp.assess.check import Check, Sample
    from daskgp.assess.cross_validation import CrossValidation
    from daskgp.assess.leaderboard import HeldOut, Leaderboard
    from daskgp.estimators import GaussianProcess

MOST_DOTS, MOST_MAPS, MOST_PAIRS = 2_000, 4, 2_000_000
LEAST_ROWS = 100
"""Least rows of a variogram."""
MAP_SIDE, FIELD_SIDE = 60, 80
"""Points along a side of maps of hyper-parameters and of predictions."""
LEVELS = (0.5, 0.8, 0.95)
STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.55 system-ui, sans-serif; color: #22293b; background: #fff; margin: 0; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; }
h1 { font-size: 1.6rem; margin: 0.5rem 0 0.25rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 0.5rem; }
p.sub, figcaption, td.note { color: #5b6478; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th, td { text-align: left; padding: 0.25rem 0.9rem 0.25rem 0; border-bottom: 1px solid #e4e7ee; }
th { color: #5b6478; font-weight: 600; } tr.chosen td { font-weight: 600; background: #fdf4e8; }
div.wide { overflow-x: auto; } figure { margin: 1rem 0; }
figure img { max-width: 100%; height: auto; }
pre { background: #f4f6fa; padding: 0.75rem 1rem; overflow-x: auto; font-size: 0.85rem; }
@media print { h2 { break-after: avoid; } figure, tr { break-inside: avoid; } }
"""


def reporter(path: str | None, resume: bool) -> Callable[[Any, str, str], None]:
    """Return the function that writes a report to a path; one that does nothing without a path.

    A fit that is resumed replaces the report of its last run.

    Raises
    ------
    InputError, StoreError
        If a report cannot be written there.
    """
    if path is None:
        return lambda estimator, model, source: None
    refuse(path, resume=resume)
    return partial(write_report, path)


def refuse(path: str, option: str = "--report", resume: bool = False) -> None:
    """Raise an error unless a report can be written to a new path, before any work."""
    from daskgp import plot

    plot.canvas.check_matplotlib()
    fs, address = remote.filesystem(path)
    if fs.isdir(address):
        raise InputError(f"{option} {path} is a folder: give the name of a file, such as fit.html")
    groups.refuse_file(path, "the report", resume)


def refuse_figures(folder: str) -> None:
    """Raise InputError unless figures can be drawn into a folder, before any work."""
    from daskgp import plot

    plot.canvas.check_matplotlib()
    if "://" in folder:
        raise InputError(f"--figures {folder} is not on this machine: give a local folder")
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise InputError(f"--figures {folder} is a file: give the name of a folder")


def write_report(
    path: str, estimator: Any, model: str, source: str, held: tuple[str, Check] | None = None
) -> None:
    """Write the report of a fitted estimator, whole or not at all.

    Parameters
    ----------
    path : str
        File to write; one that exists is replaced.
    estimator : GaussianProcess or AutoGP
        A loaded model has no held-out rows, of which these parts are left out.
    model, source : str
        Its store and its training data, as the user has named them.
    held : tuple of str and Check, optional
        Rows that its predictions were held against, as the user has named them, and what came out.
    """
    best: GaussianProcess = getattr(estimator, "best_", estimator)
    parts = [_head(best, model, source), _data(best)]
    board = best._board
    if board is not None:
        parts.append(_tried(board))
    held_out = vars(estimator).get("held_out_")
    if held_out is not None and len(held_out.y):
        parts += [_calibration(held_out), _unsure(best, held_out)]
        parts.append(_variogram(best, held_out.X, held_out.y))
    if held is not None:
        parts += _held_against(best, *held)
        parts.append(_variogram(best, held[1].sample.X, held[1].sample.y))
    parts += [_field(best), _parameters(best), _settings(best), _use(model)]
    write(path, f"daskgp: {best.solved_.target_names[0]}", parts)


def write(path: str, title: str, parts: Sequence[str]) -> None:
    """Write a page of parts, whole or not at all; a file that exists is replaced."""
    text = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>"
        '\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{''.join(parts)}</main>\n</body>\n"
        "</html>\n"
    )
    with groups.writing(path, "the report"):
        objects.replace(path, text.encode())


def write_cross_validation(path: str, found: CrossValidation, model: Any, source: str) -> None:
    """Write the report of a cross-validation, whole or not at all.

    Parameters
    ----------
    path : str
        File to write; one that exists is replaced.
    found : CrossValidation
    model : GaussianProcess
        The estimator that was fitted in each fold, for its settings.
    source : str
        Its rows, as the user has named them.
    """
    version, now = importlib.metadata.version("daskgp"), _now()
    names = tuple(found.targets) or ("",)
    what = " of ".join(["Cross-validation", *[", ".join(found.targets)] * bool(found.targets)])
    parts = [
        f"<h1>{escape(what)}</h1>\n"
        f'<p class="sub">{escape(type(model).__name__)} on {escape(source)}, '
        f"{int(found.rows.sum()):,} values held out, {escape(SCHEMES[found.scheme])}. "
        f"daskgp {escape(version)}, {now}.</p>\n",
        _rows_of("Scores by fold", found.with_all()),
    ]
    if found.targets:
        each = [{"target": name, **own.pooled} for name, own in found.targets.items()]
        parts.append(_rows_of("Scores by target", each))
    if found.counts.any():
        parts.append(_section("Calibration") + _calibrated(found))
    if found.counts.any() and found.sample is not None:
        parts += residual_maps(found.sample, found.feature_names, found.geographic, names)
    parts.append(_settings(model))
    write(path, f"daskgp: {what}", parts)


SCHEMES = {
    "random": "random rows",
    "blocks": "in blocks",
    "groups": "in groups",
    "time": "later rows by earlier ones",
    "loo": "each row by all others",
}
"""Names of what is held out together, by schemes."""


def _calibrated(found: Any) -> str:
    """Return figures of the distribution functions of held-out values."""
    from daskgp import plot

    return calibration_of(drawing(plot.calibration, found)) + _figure(
        drawing(plot.pit, found),
        "Shares of values by their predictive distribution function",
        "All bars have one height if predictions are right; high ends say that intervals are too "
        "narrow.",
    )


def source_of(best: GaussianProcess) -> str:
    """Return where the rows of a model that is loaded came from, as its store notes it."""
    places = Counter[str]()
    for note in best._fitted.seen:
        taken = -1 if note["what"] == "forget" else 1
        places[str(note.get("store") or "arrays")] += taken * int(note["rows"])
    there = [place for place, rows in places.items() if rows > 0]
    return ", ".join(there) or "rows that were not noted"


# -- parts -----------------------------------------------------------------------------------


def _head(best: GaussianProcess, model: str, source: str) -> str:
    now = _now()
    version = importlib.metadata.version("daskgp")
    targets = escape(", ".join(best.solved_.target_names))
    return (
        f"<h1>Gaussian process of {targets}</h1>\n"
        f'<p class="sub">{escape(type(best).__name__)} fitted to {best.n_rows_:,} rows of '
        f"{escape(source)}, kept in {escape(model)}. daskgp {escape(version)}, {now}.</p>\n"
    )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _data(best: GaussianProcess) -> str:
    posterior = best.solved_
    ranges: Sequence[Any] = best.solved_.ranges
    units = posterior.feature_units or ("",) * posterior.n_features
    rows = [
        (name, units[j], *(_end(ranges, j, side, units[j]) for side in (0, 1)))
        for j, name in enumerate(posterior.feature_names)
    ]
    findings = () if best._board is None else best._board.findings
    items = "".join(f"<li>{escape(text)}</li>\n" for text in findings)
    remarks = f"<ul>\n{items}</ul>\n" if items else ""
    return _section("Data") + _table(("feature", "unit", "from", "to"), rows) + remarks


def _end(ranges: Sequence[Any], j: int, side: int, unit: str) -> str:
    pair = ranges[j] if j < len(ranges) else None
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return ""
    value = pair[side]
    return feature_units.text_of(value, unit) if isinstance(value, int | float) else str(value)


def _tried(board: Leaderboard) -> str:
    from daskgp import plot

    best = board.best
    rows = board.to_rows()
    names = [name for name in rows[0] if name != "chosen"]
    cells = [[row[name] for name in names] for row in rows]
    chosen = [row["chosen"] == "*" for row in rows]
    figure = _figure(
        lambda path: plot.choice(board, path=path),
        "Scores of all trials with their standard errors",
        "Trials on more rows stand above those on fewer; the one in colour was chosen.",
    )
    return (
        _section("What was tried")
        + f"<p>{escape(best.label)} with kernel {escape(best.kernel)} was chosen: {board.metric} "
        f"{best.score:.4g} ± {best.error:.2g} on rows that were held out of a fit to "
        f"{best.rows:,} rows; less is better.</p>\n" + _table(names, cells, chosen) + figure
    )


def _calibration(held_out: HeldOut) -> str:
    from daskgp import plot

    known = np.isfinite(held_out.score)
    share = np.abs(held_out.score[known])
    if not len(share):
        return ""
    rows = [
        (f"{100 * level:.0f} %", f"{100 * np.mean(share <= ndtri(0.5 + level / 2)):.1f} %")
        for level in LEVELS
    ]
    y, mean, variance = (
        values.ravel() for values in (held_out.y, held_out.mean, held_out.variance)
    )
    figure = calibration_of(lambda path: plot.calibration(y, mean, variance, path=path))
    return (
        _section("Calibration")
        + "<p>Intervals of predictions of held-out rows, before the last fit.</p>\n"
        + _table(("interval", "held-out values inside"), rows)
        + figure
    )


def _unsure(best: GaussianProcess, held_out: HeldOut) -> str:
    from daskgp import plot

    few = slice(None, None, -(-len(held_out.y) // MOST_DOTS))
    X, std = held_out.X[few], np.sqrt(held_out.variance[few, 0])
    names = best.solved_.feature_names
    if not np.isfinite(std).any():
        return ""
    figure = _figure(
        lambda path: plot.spread(X, std, names=names, path=path),
        "Standard deviation of predictions of held-out rows over the features",
        "Where predictions are unsure: standard deviation of held-out rows, noise included.",
    )
    return _section("Where it is unsure") + figure


def _held_against(best: GaussianProcess, test: str, found: Check) -> list[str]:
    """Return the parts of scores and calibration on other rows."""
    from daskgp import plot

    scores = {"values": found.n, **found.scores}
    if found.targets:
        names = list(next(iter(found.targets.values())))
        rows = [(target, *(own.get(n) for n in names)) for target, own in found.targets.items()]
        table = _table(("target", *names), rows)
    else:
        table = _table(("score", "value"), scores.items())
    note = f"<p>{escape(found.note)}</p>\n" if found.note else ""
    known = f"<p>Predictions held against the rows of {escape(test)}.</p>\n"
    parts = [_section("On other rows") + known + table + note]
    if found.reliability:
        draw = drawing(plot.reliability, found)
        caption = "On the diagonal probabilities are right."
        parts.append(_figure(draw, "Share of 1 against its probability", caption))
    else:
        parts.append(_calibrated(found))
    own = best.solved_
    how = own.feature_names, own.geographic, own.target_names
    parts += residual_maps(found.sample, *how)
    parts.append(_rows_of("By region", found.regions))
    if found.distances:
        title = f"By distance to {found.distance}"
        figure = _figure(
            drawing(plot.distances, found),
            "Scores by the distance to the training data",
            "Errors and the spread that was predicted, by the distance to the training data.",
        )
        parts.append(_rows_of(title, found.distances) + figure)
    return parts


def drawing(plot: Callable[..., Any], *values: Any, **how: Any) -> Callable[[str], Any]:
    """Return what draws a plot of some values to a path."""
    return lambda path: plot(*values, path=path, **how)


def calibration_of(draw: Callable[[str], Any]) -> str:
    """Return the figure of calibration that a function draws."""
    return _figure(
        draw,
        "Share of held-out values inside predictive intervals against their level",
        "On the diagonal intervals are right; below it they are too narrow.",
    )


def residual_maps(
    sample: Sample, names: Sequence[str], geographic: Any, targets: Sequence[str]
) -> list[str]:
    """Return a map of residuals of each of the first targets, where two features are places."""
    from daskgp import plot

    where = plot.places.pair_on_a_map(names, geographic)
    if where is None or not np.isfinite(sample.std).any():
        return []
    pair = [names[j] for j in where]
    X, titles = plot.places.columns_on_a_map(sample.X[:, list(where)], pair)
    maps = []
    for j, target in enumerate(targets[:MOST_MAPS]):
        y, mean, std = (values[:, j] for values in (sample.y, sample.mean, sample.std))
        known = np.isfinite(y) & np.isfinite(mean) & (std > 0)
        if known.any():
            of = f" of {target}" if len(targets) > 1 else ""
            values = y[known], mean[known], std[known]
            maps.append(
                _figure(
                    drawing(plot.residuals, X[known], *values, names=titles),
                    f"Map of the residuals{of}",
                    f"Residuals{of} in standard deviations: patches of one colour are structure "
                    "that the model misses.",
                )
            )
    return [_section("Where it is wrong") + "".join(maps)] if maps else []


def _on_a_map(best: GaussianProcess) -> bool:
    """Return whether the features are two on a map, numbers in one unit."""
    own = best.solved_
    units = own.feature_units or ("",) * own.n_features
    return (
        own.n_features == 2
        and not own.categories
        and not any(map(feature_units.is_dated, units))
        and (len(set(units)) == 1 or own.geographic is not None)
    )


def _field(best: GaussianProcess) -> str:
    """Return maps of predictions with their spread over the ranges of two features."""
    from daskgp import plot
    from daskgp.maps.kriging import has_link

    own = best.solved_
    ends = [pair for pair in own.ranges if pair is not None and pair[1] > pair[0]]
    if not _on_a_map(best) or len(ends) != 2:
        return ""
    units = own.feature_units or ("", "")
    axes = {
        name: (
            name,
            np.linspace(ends[j][0], ends[j][1], FIELD_SIDE),
            {"units": units[j]} if units[j] else {},
        )
        for j, name in enumerate(own.feature_names)
    }
    grid = grids.labelled({}, axes, tuple(axes))
    observed = has_link(best)
    mean, std = best.predict(grid, return_std=True, include_noise=observed)
    panels = {"mean": mean, "standard deviation": std}
    if "target" in mean.dims:
        panels = {
            f"{target}: {name}": field.isel(target=j, drop=True).rename(f"{target}_{field.name}")
            for j, target in enumerate(own.target_names[:MOST_MAPS])
            for name, field in panels.items()
        }
    spread = "a new value, noise included" if observed else "the field, without noise"
    return _section("Map") + _figure(
        drawing(plot.maps, panels),
        "Maps of the predictive mean and standard deviation",
        f"Predictions within the ranges of the data, and the standard deviation of {spread}.",
    )


def _variogram(best: GaussianProcess, X: Any, y: Any) -> str:
    """Return the variogram of rows with what the model expects, where they lie on a map."""
    from daskgp import plot
    from daskgp.estimators import variogram

    own = best.solved_
    gaussian = own.likelihood is None and all(layer.gaussian for layer in own.outer(False).layers)
    with_errors = any(note.get("given") for note in best._fitted.seen)
    several = own.joint or own.each or own.theta.varying is not None
    if not gaussian or with_errors or several or not _on_a_map(best) or len(X) < LEAST_ROWS:
        return ""
    found = replace(
        variogram(X, y, best, n_pairs=MOST_PAIRS, progress=False),
        target_names=own.target_names,
        target_units=own.target_units,
    )
    return _section("Variogram") + _figure(
        drawing(plot.variogram, found),
        "Variogram of rows, and what the model expects of them",
        "Points are of rows that were held out, the line is what the model expects of the same "
        "pairs, and its noise variance, the nugget, is dotted. Short distances matter most.",
    )


def _rows_of(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a section with a table of rows that have their columns by name."""
    names = list(rows[0]) if rows else []
    return _section(title) + _table(names, [[row.get(name) for name in names] for row in rows])


def _parameters(best: GaussianProcess) -> str:
    table = best.hyperparameters_
    remarks = "".join(f"<p>{escape(text)}</p>\n" for text in table.remarks)
    names = ("name", "value", "standard error", "unit")
    return _section("Hyper-parameters") + _table(names, table.texts()) + remarks + _map(best)


def _map(best: GaussianProcess) -> str:
    """Return maps of hyper-parameters that vary over two features; nothing for others."""
    from daskgp import plot

    posterior = best.solved_
    if posterior.theta.varying is None:
        return ""
    knots = hyperparameter_map.at_knots(posterior)
    sides = {str(name): values.values for name, values in knots.coords.items()}
    if len(sides) != 2:  # their ranges are among the remarks
        return ""
    texts = posterior.feature_units or ("",) * posterior.n_features
    units = dict(zip(posterior.feature_names, texts, strict=True))
    axes = {
        name: (name, np.linspace(at.min(), at.max(), MAP_SIDE), {"units": units[name]})
        for name, at in reversed(sides.items())
    }
    fields = hyperparameter_map.at_places(posterior, grids.labelled({}, axes, tuple(axes)))
    return _figure(
        lambda path: plot.hyperparameter_map(fields, path=path),
        "Maps of the hyper-parameters that vary over space",
        "Hyper-parameters between the knots, in the units of the data.",
    )


def _settings(best: GaussianProcess) -> str:
    return _section("Settings") + f"<pre>{escape(repr(best))}</pre>\n"


def _use(model: str) -> str:
    store = escape(model)
    return (
        _section("How to use it") + f"<pre>daskgp predict {store} places.zarr predictions.zarr\n"
        f"daskgp info {store}\n\n"
        f"import daskgp\nmodel = daskgp.load({escape(repr(model))})\n"
        "mean, std = model.predict(X, return_std=True, include_noise=True)</pre>\n"
    )


# -- pieces ----------------------------------------------------------------------------------


def _section(title: str) -> str:
    return f"<h2>{escape(title)}</h2>\n"


def _table(names: Iterable[str], rows: Iterable[Iterable[Any]], marked: Sequence[bool] = ()) -> str:
    """Return a table, without columns that say nothing in any row."""
    texts = [[_cell(value) for value in row] for row in rows]
    names = list(names)
    kept = [j for j in range(len(names)) if any(row[j] for row in texts)]
    head = "".join(f'<th scope="col">{escape(names[j])}</th>' for j in kept)
    lines = []
    for i, row in enumerate(texts):
        cells = "".join(f"<td>{escape(row[j])}</td>" for j in kept)
        mark = ' class="chosen"' if i < len(marked) and marked[i] else ""
        lines.append(f"<tr{mark}>{cells}</tr>\n")
    body = "".join(lines)
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n'
        "</table></div>\n"
    )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _figure(draw: Callable[[str], Any], alt: str, caption: str) -> str:
    with tempfile.TemporaryDirectory(prefix="daskgp-") as folder:
        path = os.path.join(folder, "figure.svg")
        draw(path)
        with open(path, "rb") as file:
            content = base64.b64encode(file.read()).decode()
    return (
        f'<figure><img alt="{escape(alt)}" src="data:image/svg+xml;base64,{content}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>\n"
    )
