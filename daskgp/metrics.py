"""Scores of predictions, on NumPy arrays at once and on Dask arrays lazily.

Every score is a sum over rows divided by their number, so that on Dask arrays each chunk gives its
local part and the parts are added up in a tree. The functions rely on NumPy's dispatch protocols
alone: NumPy arrays give a ``float``, Dask arrays a lazy array without dimensions. ``variance``
is the predictive variance of `y_true`, noise included (``predict(..., include_noise=True)``),
never a standard deviation; `nlpd` alone takes that of the latent function too.

Entries whose `y_true` is NaN are left out. NumPy input that has no score (no row left, a variance
that is not positive) raises `InputError`; a lazy score of such input is NaN.

Examples
--------
>>> import numpy as np
>>> rmse(np.array([1.0, 2.0, np.nan]), np.array([1.0, 4.0, 9.0]))
1.4142135623730951
>>> coverage(np.array([0.0, 3.0]), np.zeros(2), np.ones(2), level=0.95)
0.5
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, overload

import numpy as np
from scipy import special
from typing_extensions import TypeVar

from daskgp import checks, likelihoods
from daskgp.errors import InputError, SettingError
from daskgp.likelihoods import Likelihood
from daskgp.likelihoods.ranked import ranked_probability as _ranked
from daskgp.typing import Array

__all__ = [
    "brier",
    "coverage",
    "crps",
    "interval_score",
    "mae",
    "nlpd",
    "nmse",
    "ranked_probability",
    "rmse",
    "summary",
]


class Lazy(Protocol):
    """A lazy array, such as Dask's."""

    def compute(self) -> Any:
        """Return the values."""


class Column(Protocol):
    """A column of a data frame."""

    def to_numpy(self) -> np.ndarray:
        """Return the values."""


T = TypeVar("T")
Score = TypeVar("Score", bound=Lazy | float, default=float)
"""A score, lazy where what is scored is."""
Scores = TypeVar("Scores", bound=Lazy | np.ndarray, default=np.ndarray)
"""A score of each output."""
Values: TypeAlias = np.ndarray | Sequence[Any] | Column | T
"""Numbers in memory, or lazy ones of the kind of the score."""

Pooled: TypeAlias = Literal["pooled"]
Each: TypeAlias = Literal["raw_values"]
Multioutput: TypeAlias = Pooled | Each
"""One score of the values of all outputs, or one of each output."""
ROOT_PI = math.sqrt(math.pi)


@overload
def rmse(y_true: Values[Score], mean: Values[Score], *, multioutput: Pooled = ...) -> Score: ...
@overload
def rmse(y_true: Values[Scores], mean: Values[Scores], *, multioutput: Each) -> Scores: ...
def rmse(y_true: Array, mean: Array, *, multioutput: Multioutput = "pooled") -> Array:
    """Return the root mean squared error, in the units of `y_true`.

    Parameters
    ----------
    y_true, mean : array, shape (n,) or (n, p)
        Observed values and predictive means.
    multioutput : {"pooled", "raw_values"}, default "pooled"
        One score of the values of all outputs together, which then should have one unit, or a
        score of each, as an array (p,): NaN of one without an observed value.

    Returns
    -------
    float or lazy array of shape (), or array (p,)

    Raises
    ------
    InputError
        If the shapes differ or no observed value is left.
    SettingError
        If `multioutput` is another one.

    Examples
    --------
    >>> import numpy as np
    >>> y, mean = np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.5, 3.0])
    >>> round(float(rmse(y, mean)), 3)
    0.645
    >>> two = np.column_stack([y, 10 * y])
    >>> rmse(two, np.column_stack([mean, 10 * mean]), multioutput="raw_values").round(3)
    array([0.645, 6.455])
    """
    y_true, mean = _arrays(y_true=y_true, mean=mean)
    square = _mean((y_true - mean) ** 2, y_true, _axis(multioutput))
    return _result(np.sqrt(square), multioutput)


@overload
def mae(y_true: Values[Score], mean: Values[Score], *, multioutput: Pooled = ...) -> Score: ...
@overload
def mae(y_true: Values[Scores], mean: Values[Scores], *, multioutput: Each) -> Scores: ...
def mae(y_true: Array, mean: Array, *, multioutput: Multioutput = "pooled") -> Array:
    """Return the mean absolute error, in units of `y_true`; arguments, errors as in `rmse`.

    Examples
    --------
    >>> import numpy as np
    >>> y, mean = np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.5, 3.0])
    >>> round(float(mae(y, mean)), 3)
    0.5
    """
    y_true, mean = _arrays(y_true=y_true, mean=mean)
    return _result(_mean(np.abs(y_true - mean), y_true, _axis(multioutput)), multioutput)


@overload
def nmse(y_true: Values[Score], mean: Values[Score], *, multioutput: Pooled = ...) -> Score: ...
@overload
def nmse(y_true: Values[Scores], mean: Values[Scores], *, multioutput: Each) -> Scores: ...
def nmse(y_true: Array, mean: Array, *, multioutput: Multioutput = "pooled") -> Array:
    """Return the mean squared error over the variance of `y_true`: 1 for the best constant.

    With several outputs the ratios of the outputs are averaged, or given for each as
    ``multioutput="raw_values"``. Arguments are as in `rmse`; a
    `y_true` that is constant raises `InputError` as well (lazily: gives NaN).

    Examples
    --------
    >>> import numpy as np
    >>> y, mean = np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.5, 3.0])
    >>> round(float(nmse(y, mean)), 3)
    0.268
    """
    y_true, mean = _arrays(y_true=y_true, mean=mean)
    unseen = np.isnan(y_true).all(axis=0)
    if isinstance(unseen, np.ndarray) and unseen.any():
        raise InputError(
            f"nmse: {unseen.sum()} of {unseen.size} outputs have no observed value; leave them out"
        )
    spread = np.nanvar(y_true, axis=0)  # one pass: dask combines the moments of the chunks
    if isinstance(spread, np.ndarray | np.floating) and not np.all(spread > 0):
        raise InputError("nmse: y_true is constant and has no variance to compare with; use rmse")
    error = _mean((y_true - mean) ** 2, y_true, axis=0)
    ratio = error / np.where(spread > 0, spread, np.nan)
    return _result(ratio if _axis(multioutput) == 0 else ratio.mean(), multioutput)


@overload
def nlpd(
    y_true: Values[Score],
    mean: Values[Score],
    variance: Values[Score],
    likelihood: Likelihood | str | None = ...,
    *,
    multioutput: Pooled = ...,
) -> Score: ...
@overload
def nlpd(
    y_true: Values[Scores],
    mean: Values[Scores],
    variance: Values[Scores],
    likelihood: Likelihood | str | None = ...,
    *,
    multioutput: Each,
) -> Scores: ...
def nlpd(
    y_true: Array,
    mean: Array,
    variance: Array,
    likelihood: Likelihood | str | None = None,
    *,
    multioutput: Multioutput = "pooled",
) -> Array:
    """Return the mean negative log predictive density, in nats: the log score.

    Parameters
    ----------
    y_true, mean, variance : array, shape (n,) or (n, p)
        Observed values, predictive means and predictive variances (noise included).
    likelihood : Likelihood or str, optional
        One of ``daskgp.likelihoods``, or its name.  Then `mean` and `variance` are those of the
        latent function, noise left out, and the density of `y_true` is the likelihood's,
        integrated over it.
    multioutput : {"pooled", "raw_values"}, default "pooled"
        As in `rmse`.

    Returns
    -------
    float or lazy array of shape (), or array (p,)

    Raises
    ------
    InputError
        If the shapes differ, no observed value is left, a variance is not positive (with a
        likelihood: is negative) or a value is one that the likelihood cannot give.

    Examples
    --------
    >>> from daskgp.likelihoods import Poisson
    >>> nlpd(np.array([0.0, 2.0]), np.zeros(2), np.zeros(2), Poisson())
    1.346574
    """
    if likelihood is not None:
        arrays = _arrays(latent=True, y_true=y_true, mean=mean, variance=variance)
        density = _by_chunk(_chunk_density, arrays, _likelihood(likelihood))
        return _result(_mean(-density, arrays[0], _axis(multioutput)), multioutput)
    y_true, mean, variance = _arrays(y_true=y_true, mean=mean, variance=variance)
    density = 0.5 * (np.log(2 * np.pi * variance) + (y_true - mean) ** 2 / variance)
    return _result(_mean(density, y_true, _axis(multioutput)), multioutput)


@overload
def crps(
    y_true: Values[Score],
    mean: Values[Score],
    variance: Values[Score],
    *,
    multioutput: Pooled = ...,
) -> Score: ...
@overload
def crps(
    y_true: Values[Scores], mean: Values[Scores], variance: Values[Scores], *, multioutput: Each
) -> Scores: ...
def crps(
    y_true: Array, mean: Array, variance: Array, *, multioutput: Multioutput = "pooled"
) -> Array:
    """Return the mean continuous ranked probability score of Gaussian predictions.

    In units of `y_true`; the closed form of Gneiting and Raftery (2007), eq. 21, with the sign
    reversed so that lower is better. Arguments and errors as in `nlpd`.

    Examples
    --------
    >>> import numpy as np
    >>> y, mean, variance = np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.5, 3.0]), np.full(3, 0.25)
    >>> round(float(crps(y, mean, variance)), 3)
    0.381
    """
    y_true, mean, variance = _arrays(y_true=y_true, mean=mean, variance=variance)
    std = np.sqrt(variance)
    scores = crps_of((y_true - mean) / std, std)
    return _result(_mean(scores, y_true, _axis(multioutput)), multioutput)


def ranked_probability(
    y_true: Values[Score],
    mean: Values[Score],
    variance: Values[Score],
    likelihood: Likelihood | str,
) -> Score:
    """Return the mean ranked probability score of counts or ordered classes; less is better.

    It is the sum over whole numbers k of (P(y <= k) - 1{y_true <= k})^2, which is the CRPS of whole
    numbers (Czado, Gneiting and Held 2009), of the likelihood's distribution integrated over f.  Of
    counts that range widely it is right to about a percent.

    Parameters
    ----------
    y_true : array, shape (n,) or (n, p)
        Whole numbers.
    mean, variance : array, shape (n,) or (n, p)
        Those of the latent function, noise left out.
    likelihood : Likelihood or str
        One of whole numbers of ``daskgp.likelihoods``, or its name.

    Returns
    -------
    float or lazy array of shape ()

    Raises
    ------
    InputError
        As in `nlpd`.
    SettingError
        If the likelihood is not one of counts or of ordered classes.

    Examples
    --------
    >>> import numpy as np
    >>> round(ranked_probability(np.array([0.0, 2.0]), np.zeros(2), np.full(2, 0.1), "poisson"), 3)
    0.576
    """
    own = _likelihood(likelihood)
    if not own.discrete:
        raise SettingError(
            f"the {own.name} likelihood is not one of whole numbers: take nlpd, or crps of a "
            "Gaussian"
        )
    arrays = _arrays(latent=True, y_true=y_true, mean=mean, variance=variance)
    return _result(_mean(_by_chunk(_chunk_ranked, arrays, own), arrays[0]))


def brier(y_true: Values[Score], probability: Values[Score]) -> Score:
    """Return the mean Brier score of probabilities of classes; less is better.

    It is the mean of (p - y)^2 for two classes, and of the sum over classes of (p_c - 1{y = c})^2
    for more, as ``brier_score_loss`` of scikit-learn has it.

    Parameters
    ----------
    y_true : array, shape (n,)
        Classes 0, 1, ..., C - 1.
    probability : array, shape (n,) or (n, C)
        Probabilities of class 1 of two, or of all classes, as ``predict_proba`` returns them.

    Returns
    -------
    float or lazy array of shape ()

    Raises
    ------
    InputError
        If shapes differ, no class is observed, or there is one without a probability.

    Examples
    --------
    >>> import numpy as np
    >>> y, p = np.array([0, 1, 1]), np.array([0.1, 0.8, 0.4])
    >>> round(brier(y, p), 4)
    0.1367
    >>> round(brier(y, np.column_stack([1 - p, p])), 4)
    0.1367
    """
    classes: Array = y_true
    given: Array = probability
    if np.ndim(given) < 2 or given.shape[1] == 2:
        one = given if np.ndim(given) < 2 else given[:, 1]
        classes, one = _arrays(y_true=classes, probability=one)
        _check_classes(classes, 2)
        return _result(_mean((one - classes) ** 2, classes))
    each = [_arrays(y_true=classes, probability=own) for own in given.T]
    _check_classes(each[0][0], len(each))
    parts = [(p - (y == c)) ** 2 for c, (y, p) in enumerate(each)]
    return _result(_mean(sum(parts), each[0][0]))


@overload
def coverage(
    y_true: Values[Score],
    mean: Values[Score],
    variance: Values[Score],
    level: float = ...,
    *,
    multioutput: Pooled = ...,
) -> Score: ...
@overload
def coverage(
    y_true: Values[Scores],
    mean: Values[Scores],
    variance: Values[Scores],
    level: float = ...,
    *,
    multioutput: Each,
) -> Scores: ...
def coverage(
    y_true: Array,
    mean: Array,
    variance: Array,
    level: float = 0.95,
    *,
    multioutput: Multioutput = "pooled",
) -> Array:
    """Return the share of observed values inside the central predictive interval.

    Parameters
    ----------
    y_true, mean, variance : array, shape (n,) or (n, p)
        As in `nlpd`.
    level : float, default 0.95
        Probability of the interval, between 0 and 1; a calibrated model covers this share.
    multioutput : {"pooled", "raw_values"}, default "pooled"
        As in `rmse`.

    Returns
    -------
    float or lazy array of shape (), or array (p,)

    Raises
    ------
    InputError
        As in `nlpd`, and if `level` does not lie between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> y, mean, variance = np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.5, 3.0]), np.full(3, 0.25)
    >>> round(float(coverage(y, mean, variance, level=0.5)), 3)
    0.333
    """
    y_true, mean, variance = _arrays(y_true=y_true, mean=mean, variance=variance)
    margin = _half_width(variance, level) - np.abs(y_true - mean)
    # A comparison would count a NaN as not covered; it must show in the score instead.
    inside = np.where(np.isnan(margin), np.nan, margin >= 0)
    return _result(_mean(inside, y_true, _axis(multioutput)), multioutput)


@overload
def interval_score(
    y_true: Values[Score],
    mean: Values[Score],
    variance: Values[Score],
    level: float = ...,
    *,
    multioutput: Pooled = ...,
) -> Score: ...
@overload
def interval_score(
    y_true: Values[Scores],
    mean: Values[Scores],
    variance: Values[Scores],
    level: float = ...,
    *,
    multioutput: Each,
) -> Scores: ...
def interval_score(
    y_true: Array,
    mean: Array,
    variance: Array,
    level: float = 0.95,
    *,
    multioutput: Multioutput = "pooled",
) -> Array:
    """Return the mean interval score of the central predictive interval, in units of `y_true`.

    Width of the interval plus ``2 / (1 - level)`` times the distance of a value outside it:
    Gneiting and Raftery (2007), eq. 43. Arguments and errors as in `coverage`.

    Examples
    --------
    >>> import numpy as np
    >>> y, mean, variance = np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.5, 3.0]), np.full(3, 0.25)
    >>> round(float(interval_score(y, mean, variance)), 3)
    2.227
    """
    y_true, mean, variance = _arrays(y_true=y_true, mean=mean, variance=variance)
    scores = interval_score_of(y_true - mean, _half_width(variance, level), level)
    return _result(_mean(scores, y_true, _axis(multioutput)), multioutput)


@overload
def summary(
    y_true: Values[Score],
    mean: Values[Score],
    variance: Values[Score],
    *,
    multioutput: Pooled = ...,
) -> dict[str, Score]: ...
@overload
def summary(
    y_true: Values[Scores], mean: Values[Scores], variance: Values[Scores], *, multioutput: Each
) -> dict[str, Scores]: ...
def summary(
    y_true: Array, mean: Array, variance: Array, *, multioutput: Multioutput = "pooled"
) -> dict[str, Array]:
    """Return the scores that ``daskgp score`` prints, under the names it prints.

    Parameters
    ----------
    y_true, mean, variance : array, shape (n,) or (n, p)
        As in `nlpd`.
    multioutput : {"pooled", "raw_values"}, default "pooled"
        As in `rmse`; the number of values too is that of each output.

    Returns
    -------
    dict
        ``rmse``, ``mae``, ``nlpd``, ``crps``, ``coverage_95``, ``interval_score_95`` and ``n``,
        the number of observed values. With Dask arrays all are lazy; one ``dask.compute`` of the
        dictionary reads the data once.

    Raises
    ------
    InputError
        As in `nlpd`.

    Examples
    --------
    >>> import numpy as np
    >>> y, mean, variance = np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.5, 3.0]), np.full(3, 0.25)
    >>> sorted(summary(y, mean, variance))
    ['coverage_95', 'crps', 'interval_score_95', 'mae', 'n', 'nlpd', 'rmse']
    """
    y_true, mean, variance = _arrays(y_true=y_true, mean=mean, variance=variance)
    axis = _axis(multioutput)
    n = (~np.isnan(y_true)).sum(axis=axis)
    given = y_true, mean, variance
    return {
        "rmse": rmse(y_true, mean, multioutput=multioutput),
        "mae": mae(y_true, mean, multioutput=multioutput),
        "nlpd": nlpd(*given, multioutput=multioutput),
        "crps": crps(*given, multioutput=multioutput),
        "coverage_95": coverage(*given, multioutput=multioutput),
        "interval_score_95": interval_score(*given, multioutput=multioutput),
        "n": int(n) if axis is None and isinstance(n, np.integer) else _result(n, multioutput),
    }


def crps_of(residual: Array, std: Array) -> Array:
    """Return the CRPS of each Gaussian, given standardised residuals and standard deviations.

    Examples
    --------
    >>> round(float(crps_of(np.zeros(1), np.ones(1))[0]), 3)
    0.234
    """
    density = np.exp(-0.5 * residual**2) / math.sqrt(2 * math.pi)
    return std * (residual * (2 * special.ndtr(residual) - 1) + 2 * density - 1 / ROOT_PI)


def interval_score_of(error: Array, half: Array, level: float) -> Array:
    """Return the score of each interval of a level, of half widths about predictions.

    Examples
    --------
    >>> interval_score_of(np.array([0.5, 2.0]), np.ones(2), 0.5)
    array([2., 6.])
    """
    return 2 * half + 2 / (1 - level) * np.maximum(np.abs(error) - half, 0.0)


def _arrays(latent: bool = False, **named: Array) -> list[Array]:
    """Return arrays of one shape in their order; a variance that is not positive becomes NaN.

    With ``latent`` the variance may be zero, and only a negative one becomes NaN.
    """
    checks.refuse_other_order(named["y_true"], "y_true", **named)
    arrays = {name: _array(name, values) for name, values in named.items()}
    y_true = arrays["y_true"]
    for name, array in arrays.items():
        if not _same_shape(array.shape, y_true.shape):
            raise InputError(
                f"{name} has shape {array.shape} but y_true has shape {y_true.shape}; "
                "give arrays of one shape, (n,) or (n, p)"
            )
    observed = ~np.isnan(y_true)
    if isinstance(observed, np.ndarray) and not observed.any():
        raise InputError(
            f"y_true holds {y_true.size} values, none of them observed (not NaN); "
            "a score needs at least one"
        )
    if "variance" in arrays:
        arrays["variance"] = _positive(arrays["variance"], observed, latent)
    return list(arrays.values())


def _array(name: str, values: Array) -> Array:
    if hasattr(values, "dims"):
        raise InputError(f"{name} is a labelled array; give its values, {name}.data.ravel()")
    lazy = hasattr(values, "__array_function__") and not isinstance(values, np.ndarray)
    array: Array = values if lazy else checks.unmasked(checks.array_of(name, values))
    if array.ndim not in (1, 2) or array.dtype.kind not in "fiub":
        raise InputError(
            f"{name} has shape {array.shape} and dtype {array.dtype}; "
            "give real numbers of shape (n,) or (n, p)"
        )
    if isinstance(getattr(array, "_meta", None), np.ma.MaskedArray):
        array = array.map_blocks(checks.unmasked, meta=np.empty((0,) * array.ndim))
    return array if array.dtype == np.float64 else array.astype(np.float64)  # others may overflow


def _same_shape(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    """Return True if two shapes agree; an unknown length (NaN, after a Dask mask) passes."""
    return len(a) == len(b) and all(
        i == j or math.isnan(i) or math.isnan(j) for i, j in zip(a, b, strict=True)
    )


def _positive(variance: Array, observed: Array, latent: bool) -> Array:
    good = variance >= 0 if latent else variance > 0
    if isinstance(variance, np.ndarray) and isinstance(observed, np.ndarray):
        bad = observed & ~good
        if bad.any():
            wanted = "must not be negative" if latent else "must be positive"
            kind = "those of the latent function" if latent else "predictive variances"
            raise InputError(
                f"variance {wanted} but holds {variance[bad][0]} ({bad.sum()} of {bad.size} "
                f"values); give {kind}, noise {'left out' if latent else 'included'}"
            )
    return np.where(good, variance, np.nan)


def _likelihood(given: Likelihood | str) -> Likelihood:
    return given if isinstance(given, Likelihood) else likelihoods.by_name(given)


def _check_classes(y_true: Array, number: int) -> None:
    """Raise InputError for classes that are not 0, 1, ... up to so many, if they are in memory."""
    if isinstance(y_true, np.ndarray):
        wrong = ~np.isnan(y_true) & ~np.isin(y_true, np.arange(number))
        if wrong.any():
            raise InputError(
                f"y_true holds {y_true[wrong][0]:g}, but there are probabilities of classes 0 to "
                f"{number - 1}: give numbers of classes, or a column for each"
            )


def _by_chunk(
    function: Callable[..., np.ndarray], arrays: list[Array], likelihood: Likelihood
) -> Array:
    """Return a function of values, means, variances and a likelihood; lazily by chunk."""
    y_true, mean, variance = arrays
    if isinstance(y_true, np.ndarray):
        columns = y_true.reshape(len(y_true), -1)
        likelihood.check(columns, ["y_true"] * columns.shape[1])
    together = np.isnan(y_true + mean + variance)
    if isinstance(together, np.ndarray):
        return function(y_true, mean, variance, likelihood)
    # map_blocks aligns neither chunks nor arrays in memory; an elementwise function does
    aligned: list[Array] = [np.where(together, array, array) for array in arrays]
    none = np.empty((0,) * y_true.ndim)
    return aligned[0].map_blocks(function, *aligned[1:], likelihood, dtype=np.float64, meta=none)


def _chunk_density(
    y_true: np.ndarray, mean: np.ndarray, variance: np.ndarray, likelihood: Likelihood
) -> np.ndarray:
    possible = np.where(likelihood.supports(y_true), y_true, np.nan)
    return likelihood.log_density(possible, mean, variance)


def _chunk_ranked(
    y_true: np.ndarray, mean: np.ndarray, variance: np.ndarray, likelihood: Likelihood
) -> np.ndarray:
    known = likelihood.supports(y_true) & ~np.isnan(y_true + mean + variance)
    y, m, v = (np.where(known, a, 0.0) for a in (y_true, mean, variance))
    return np.where(known, _ranked(likelihood, y, m, np.sqrt(v)), np.nan)


def _mean(values: Array, y_true: Array, axis: int | None = None) -> Array:
    """Return the mean of `values` where `y_true` is observed; NaN where nothing is."""
    observed = ~np.isnan(y_true)
    count = observed.sum(axis=axis)
    total = np.where(observed, values, 0.0).sum(axis=axis, dtype=np.float64)
    return total / np.where(count > 0, count, np.nan)


def _half_width(variance: Array, level: float) -> Array:
    if not (checks.is_number(level) and 0 < level < 1):
        raise InputError(
            f"level must lie between 0 and 1, but is {checks.shown(level)}; 0.95 is common"
        )
    return np.sqrt(variance) * float(special.ndtri(0.5 + level / 2))


def _axis(multioutput: str) -> int | None:
    """Return the axis over which values are averaged; all for None."""
    if multioutput not in ("pooled", "raw_values"):
        raise SettingError(
            f"multioutput={checks.shown(multioutput)}: give 'pooled', one score of the values of "
            "all outputs, or 'raw_values', one of each"
        )
    return 0 if multioutput == "raw_values" else None


def _result(score: Array, multioutput: str = "pooled") -> Array:
    if multioutput == "raw_values":
        return np.asarray(score).reshape(-1) if np.isscalar(score) else score.reshape(-1)
    return float(score) if isinstance(score, np.ndarray | np.floating) else score
