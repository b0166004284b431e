"""Figures of a check: the predictive distribution function, calibration, residuals, distances."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import cycle
from pathlib import Path as Folder
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
from sklearn.utils.validation import check_is_fitted

from daskgp.assess.check import PIT_BINS, Check, reliability_of
from daskgp.assess.cross_validation import CrossValidation
from daskgp.checks import shown
from daskgp.errors import InputError, StoreError
from daskgp.estimators.checking import check as check_of
from daskgp.estimators.classifier import GPClassifier
from daskgp.plot import places
from daskgp.plot.canvas import (
    GREY,
    INK,
    LINES,
    check_matplotlib,
    finished,
    panel_on,
    panels_on,
    tidy,
)
from daskgp.plot.curves import calibration, counts_of
from daskgp.plot.fields import residuals
from daskgp.typing import Path

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def pit(
    y_true: Any,
    mean: Any = None,
    variance: Any = None,
    *,
    title: str = "",
    ax: Axes | None = None,
    path: Path | None = None,
) -> Axes:
    """Plot how often observed values fall into twentieths of their predictive distribution.

    All bars have the same height if predictions are calibrated [Dawid 1984].  They are high at both
    ends where the spread is too small, high in the middle where it is too large, and higher on the
    right where predictions are too low.

    Parameters
    ----------
    y_true, mean, variance : arrays, shape (n,) or (n, p), or DataArrays
        Observed values, predictive means and predictive variances, noise included, of Gaussian
        predictions; or, for `y_true` alone, what `daskgp.check` or `daskgp.cross_validate`
        returned, of any.
    title, ax, path
        As in `calibration`.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        As `calibration` does.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> from matplotlib.figure import Figure
    >>> y = np.random.default_rng(0).standard_normal(500)
    >>> ax = daskgp.plot.pit(y, np.zeros(500), np.ones(500), ax=Figure().subplots())
    >>> ax.get_ylabel()
    'share of values'
    """
    counts = counts_of(y_true, mean, variance)
    counts = counts.reshape(PIT_BINS, -1).sum(axis=1)
    ax = _histogram(counts / counts.sum(), int(counts.sum()), ax, path)
    return finished(ax, title, path)


def ranks(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    title: str = "",
    ax: Axes | None = None,
    path: Path | None = None,
) -> Axes:
    """Plot how often counts fall into twentieths of their predictive distribution.

    The distribution function of a whole number has a step at it; a point of the step is drawn at
    random, with a fixed seed, so that all bars have the same height if predictions are calibrated
    (Czado, Gneiting and Held 2009).

    Parameters
    ----------
    model : fitted estimator, or Check
        With a likelihood of counts or ordered classes; or what `daskgp.check` returned.
    X, y : array-like (n, d) and (n,), optional
        Rows that the model was not fitted to, of any kind that `daskgp.check` takes; none beside a
        check.
    title, ax, path
        As in `calibration`.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        If y is measured or a class, or as `daskgp.check` does.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> from matplotlib.figure import Figure
    >>> X, rng = np.linspace(0, 1, 200)[:, None], np.random.default_rng(0)
    >>> y = rng.poisson(np.exp(1 + np.sin(6 * X[:, 0])))
    >>> model = daskgp.SGPR(n_inducing=10, likelihood="poisson").fit(X[::2], y[::2])
    >>> ax = daskgp.plot.ranks(model, X[1::2], y[1::2], ax=Figure().subplots())
    >>> ax.get_ylabel()
    'share of values'
    """
    found = _checked(model, X, y)
    if not len(found.ranks):
        other = "reliability" if found.reliability else "pit"
        raise InputError(f"ranks are for counts and ordered classes: take plot.{other}")
    ax = _histogram(found.ranks, found.n, ax, path)
    ax.set_xlabel("predictive distribution function at y, within its step at random")
    return finished(ax, title, path)


def reliability(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    title: str = "",
    ax: Axes | None = None,
    path: Path | None = None,
) -> Axes:
    """Plot the share of ones against their predicted probability, by tenths of it.

    Points are on the diagonal if probabilities are calibrated; bars are 95 % intervals of the
    shares of so many independent values (Clopper and Pearson).  Areas of points grow with the
    number of values.

    Parameters
    ----------
    model : fitted estimator, or Check
        With a likelihood of classes 0 and 1, or a `GPClassifier` of two classes; or what
        `daskgp.check` returned.
    X, y : array-like (n, d) and (n,), optional
        Rows that the model was not fitted to, of any kind that `daskgp.check` takes; none beside a
        check.
    title, ax, path
        As in `calibration`.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        If y is no class of two, or as `daskgp.check` does.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> from matplotlib.figure import Figure
    >>> X, rng = np.linspace(0, 1, 200)[:, None], np.random.default_rng(0)
    >>> y = (np.sin(6 * X[:, 0]) + 0.5 * rng.standard_normal(200) > 0).astype(float)
    >>> model = daskgp.SGPR(n_inducing=10, likelihood="bernoulli").fit(X[::2], y[::2])
    >>> ax = daskgp.plot.reliability(model, X[1::2], y[1::2], ax=Figure().subplots())
    >>> ax.get_ylabel()
    'share of ones observed'
    """
    table, one = _reliability(model, X, y)
    names = ("n", "probability", "observed", "low", "high")
    n, p, seen, low, high = np.array([[row[k] for k in names] for row in table]).T
    ax = panel_on(ax, (4.6, 4.2), path)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--", label="calibrated")
    bars: dict[str, Any] = {"color": INK, "linewidth": 1, "label": "95 % interval"}
    ax.vlines(p, low, high, **bars)
    ax.scatter(p, seen, 12 + 90 * n / n.max(), color=INK, zorder=3, label="observed")
    ax.set(xlim=(0, 1), ylim=(-0.02, 1.02))
    seen_of = "ones" if one == "1" else one
    ax.set(xlabel=f"predicted probability of {one}", ylabel=f"share of {seen_of} observed")
    ax.legend(loc="upper left", fontsize="small", frameon=False)
    tidy(ax)
    return finished(ax, title, path)


def _reliability(model: Any, X: Any, y: Any) -> tuple[list[dict[str, float]], str]:
    """Return the table of a check or a model of two classes, and the name of the second class."""
    if isinstance(model, GPClassifier) and X is not None and y is not None:
        check_matplotlib()  # before the work
        check_is_fitted(model)
        if len(model.classes_) != 2:
            raise InputError(
                f"reliability is for two classes, and the classifier has {len(model.classes_)}: "
                "fit one of a class against the others"
            )
        p, labels = dask.compute(model.predict_proba(X), y)
        p, labels = np.asarray(p)[..., 1].ravel(), np.asarray(labels).ravel()
        known = np.isin(labels, model.classes_) & np.isfinite(p)
        if not known.any():
            raise InputError(
                f"no row of y is one of the classes {', '.join(map(str, model.classes_))}: give "
                "labels as in the fit"
            )
        return reliability_of(p[known], labels[known] == model.classes_[1]), str(model.classes_[1])
    found = _checked(model, X, y)
    if not found.reliability:
        other = "ranks" if len(found.ranks) else "pit"
        raise InputError(f"reliability is for classes 0 and 1: take plot.{other}")
    return found.reliability, "1"


def _checked(model: Any, X: Any, y: Any) -> Check:
    """Return a check that is given, or that of a model on rows."""
    if isinstance(model, Check):
        if X is not None or y is not None:
            raise InputError("a check is drawn as it is: leave X and y out")
        return model
    if X is None or y is None:
        raise InputError("X and y are missing: give rows that the model was not fitted to")
    check_matplotlib()  # before the work
    return check_of(model, X, y)


def _histogram(shares: np.ndarray, n: int, ax: Axes | None, path: Path | None) -> Axes:
    """Draw shares of n values by twentieths of a distribution function."""
    share = 1 / PIT_BINS
    ax = panel_on(ax, (5.2, 3.4), path)
    edges = np.linspace(0, 1, PIT_BINS + 1)
    look: dict[str, Any] = {"color": INK, "alpha": 0.75, "edgecolor": "white", "label": "observed"}
    ax.bar(edges[:-1], shares, share, align="edge", **look)
    # two standard deviations of the share of independent values
    away = 2 * np.sqrt(share * (1 - share) / n)
    chance = "chance (± 2 std)"
    ax.axhspan(share - away, share + away, color=GREY, alpha=0.2, linewidth=0, label=chance)
    ax.axhline(share, color=GREY, linewidth=1, linestyle="--", label="calibrated")
    ax.set_ylim(top=1.35 * max(float(shares.max()), share + away))
    ax.legend(loc="upper center", ncols=2, fontsize="small", frameon=False)
    ax.set(xlim=(0, 1), xlabel="predictive distribution function at y", ylabel="share of values")
    tidy(ax)
    return ax


def distances(
    found: Check,
    *,
    title: str = "",
    axes: Any = None,
    path: Path | None = None,
) -> np.ndarray:
    """Plot errors and calibration by the distance to the training data.

    Parameters
    ----------
    found : Check
        What `daskgp.check` returned.
    title, axes, path
        As in `posterior_map`.

    Returns
    -------
    ndarray of two matplotlib.axes.Axes
        Root mean squared error with the spread that predictions expect, and the variance of
        standardised residuals, which is 1 if calibrated.  Of several targets there are lines of
        each, errors over that of all its rows.

    Raises
    ------
    InputError
        If the method keeps nothing to measure distances from, or matplotlib is missing.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> from matplotlib.figure import Figure
    >>> X, rng = np.linspace(0, 1, 200)[:, None], np.random.default_rng(0)
    >>> y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(200)
    >>> model = daskgp.SGPR(n_inducing=10).fit(X[::2], y[::2])
    >>> found = daskgp.check(model, X[1::2], y[1::2])
    >>> axes = daskgp.plot.distances(found, axes=Figure().subplots(1, 2))
    >>> axes[1].get_ylabel()
    'variance of standardised residuals'
    """
    if not isinstance(found, Check | CrossValidation):
        raise InputError(f"found is {shown(found)}: give what daskgp.check returned")
    if not found.distances:
        raise InputError(f"there are no distances: {found.distance}")
    if found.reliability:
        raise InputError("classes have no spread to check by distance: see Check.distances")
    texts = [*dict.fromkeys(row["distance"] for row in found.distances)]
    along = np.arange(len(texts))
    panels = panels_on(axes, 2, (9.0, 3.6), path)

    def drawn(ax: Any, name: str, target: str | None, unit: float = 1.0, **how: Any) -> None:
        own = [row for row in found.distances if row.get("target") == target]
        where = [texts.index(row["distance"]) for row in own]
        ax.plot(where, [row[name] / unit for row in own], marker="o", markersize=4, **how)

    names = (("rmse", "root mean squared error"), ("spread", "expected by the model"))
    if found.targets:
        for (target, own), colour in zip(found.targets.items(), cycle(LINES), strict=False):
            if own["n"]:
                unit = own["rmse"]
                drawn(panels[0], "rmse", target, unit, color=colour, label=target)
                expected = {"color": colour, "linestyle": ":", "label": f"{target}, expected"}
                drawn(panels[0], "spread", target, unit, **expected)
                drawn(panels[1], "z_variance", target, color=colour, label=target)
        panels[0].set_ylabel("error of predictions / that of all of the target")
    else:
        for (name, label), colour in zip(names, LINES, strict=False):
            drawn(panels[0], name, None, color=colour, label=label)
        drawn(panels[1], "z_variance", None, color=INK, label="observed")
        panels[0].set_ylabel("error of predictions")
    panels[1].axhline(1, color=GREY, linewidth=1, linestyle="--", label="calibrated")
    panels[1].set_ylabel("variance of standardised residuals")
    for ax in panels:
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False)
        ax.set_xticks(along, texts, rotation=25, ha="right")
        ax.set_xlabel(f"distance to {found.distance}".replace(", ", ",\n"))
        tidy(ax)
    return finished(panels, title, path)


def check(found: Check | CrossValidation, folder: Path) -> list[str]:
    """Draw the figures of a check into a folder, which is made where it does not exist.

    Parameters
    ----------
    found : Check or CrossValidation
        What `daskgp.check` or `daskgp.cross_validate` returned.
    folder : str or path
        Local folder.

    Returns
    -------
    list of str
        Files: ``pit.png`` and ``calibration.png``, or of counts ``ranks.png`` too;
        ``distances.png`` where there are distances, and ``residuals.png`` of up to 2,000 rows of
        two features and one target.  Of classes there is ``reliability.png`` alone.

    Raises
    ------
    InputError
        If the folder cannot be written, or matplotlib is missing.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, daskgp
    >>> X, rng = np.linspace(0, 1, 200)[:, None], np.random.default_rng(0)
    >>> y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(200)
    >>> model = daskgp.SGPR(n_inducing=10).fit(X[::2], y[::2])
    >>> found = daskgp.check(model, X[1::2], y[1::2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = daskgp.plot.check(found, folder)
    >>> [os.path.basename(file) for file in files]
    ['pit.png', 'calibration.png', 'distances.png']
    """
    if not isinstance(found, Check | CrossValidation):
        raise InputError(f"found is {shown(found)}: give what daskgp.check returned")
    try:
        Folder(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make the folder {os.fspath(folder)}: {error.strerror}") from error
    drawn: dict[str, Callable[..., Any]] = {"pit": pit, "calibration": calibration}
    if isinstance(found, CrossValidation):
        drawn = drawn if found.counts.any() else {}
    elif found.reliability:
        drawn = {"reliability": reliability}
    else:
        drawn |= {"ranks": ranks} if len(found.ranks) else {}
        drawn |= {"distances": distances} if found.distances else {}
    if "pit" in drawn and _places(found) is not None:
        drawn["residuals"] = _residuals
    files = {name: str(Folder(folder, f"{name}.png")) for name in drawn}
    for name, draw in drawn.items():
        draw(found, path=files[name])
    return list(files.values())


def _places(found: Check | CrossValidation) -> tuple[int, int] | None:
    """Return the two features that are places; None without any, or for several targets."""
    if found.sample is None or found.sample.y.shape[1] != 1:
        return None
    geographic = found.geographic if isinstance(found, CrossValidation) else None
    return places.pair_on_a_map(found.feature_names, geographic)


def _residuals(found: Check | CrossValidation, path: Path) -> None:
    """Draw those of the sample of a check, of two features and one target."""
    where = _places(found)
    assert found.sample is not None
    assert where is not None
    X, *values = found.sample
    names = [found.feature_names[j] for j in where]
    X, pair = places.columns_on_a_map(X[:, list(where)], names)
    residuals(X, *(v[:, 0] for v in values), names=pair, path=path)
