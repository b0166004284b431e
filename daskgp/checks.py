"""Checks of settings, and values as messages show them."""

from __future__ import annotations

import difflib
import inspect
import math
import os
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AnySet
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from daskgp.errors import InputError, SettingError

LARGEST = 1e100
"""Largest number of data and settings, and the inverse of the smallest: others overflow squared."""
LONGEST = 100
"""Most characters of a value that a message shows."""


class _Short(reprlib.Repr):
    """``reprlib.Repr`` that shows the shape of an array instead of its numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = LONGEST
        self.maxlevel = 3

    def repr_instance(self, x: Any, level: int) -> str:
        shape = getattr(x, "shape", None)
        if isinstance(shape, tuple) and shape:
            return f"<{type(x).__name__} of shape {shape}>"
        return super().repr_instance(x, level)


_SHORT = _Short()


def shown(value: Any) -> str:
    """Return a value as messages show it: on one line, shortened if long.

    Examples
    --------
    >>> shown("auto"), shown(list(range(10_000)))
    ("'auto'", '[0, 1, 2, 3, 4, 5, ...]')
    """
    text = " ".join(_SHORT.repr(value).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def rows(count: float, what: str = "row") -> str:
    """Return a number of rows, or of what else there is, as messages say it.

    >>> rows(1), rows(20_000.0)
    ('1 row', '20000 rows')
    """
    return f"{count:.0f} {what}{'' if count == 1 else 's'}"


def meant(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a question for the known name that is most like another one, if any, and what follows.

    >>> meant("rbff", ["rbf"], "choose rbf"), meant("x", ["rbf"], "choose rbf")
    ("did you mean 'rbf'? Choose rbf", 'choose rbf')
    """
    near = nearest(name, known)
    if near is None:
        return otherwise
    return f"did you mean {near!r}? {otherwise[:1].upper()}{otherwise[1:]}".rstrip()


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like another one, None where none is."""
    names = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.strip().lower(), names, n=1)
    return names[close[0]] if close else None


OF_METHODS = {
    "targets": "several targets are for single methods: choose VecchiaGP, LMA, SGPR or ExactGP "
    "(--model vecchia), or fit each target on its own",
    "footprint": "footprints are for single methods: choose VecchiaGP, LMA, SGPR or ExactGP "
    "(--model vecchia)",
}
"""Where settings are that estimators which choose or join several methods lack."""


def refuse_unknown(kind: type, settings: Iterable[str]) -> None:
    """Raise TypeError for a setting that a class lacks, in the words of the command."""
    known = inspect.signature(kind).parameters
    open_ended = any(one.kind is one.VAR_KEYWORD for one in known.values())
    for name in settings:
        if name not in known and not open_ended:
            raise TypeError(unknown_setting(name, kind.__name__, known))


def unknown_setting(name: str, of: str, known: Iterable[str]) -> str:
    """Return the line of a setting that is none of those known.

    >>> unknown_setting("tl", "SGPR", ["tol"])
    "unknown setting 'tl' of SGPR: did you mean 'tol'? Known are tol"
    """
    names = [*known]
    hint = OF_METHODS.get(name) or meant(name, names, f"Known are {', '.join(names)}")
    return f"unknown setting {shown(name)} of {of}: {hint}"


def choice(name: str, value: Any, allowed: Sequence[Any], otherwise: str = "") -> None:
    """Raise SettingError unless a setting is one of those allowed; 1 does not pass for True.

    ``otherwise`` is what else to do about it.
    """
    if not any(value is one or (type(value) is str and value == one) for one in allowed):
        known, more = ", ".join(map(repr, allowed)), f", or {otherwise}" if otherwise else ""
        raise SettingError(f"{name}={shown(value)}: choose one of {known}{more}")


def place(name: str, value: Any, what: str) -> None:
    """Raise SettingError unless a setting is None, or a path or URL that is not blank."""
    if value is not None and not (isinstance(value, str | os.PathLike) and str(value).strip()):
        raise SettingError(f"{name}={shown(value)}: give the path or URL of {what}, or None")


def text_of(value: Any) -> Any:
    """Return a path as text, and all else as it is."""
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def positive(
    name: str, value: Any, or_zero: bool = False, squared: bool = False, unit: str = ""
) -> None:
    """Raise SettingError unless a setting is a finite number greater than 0, or 0 if allowed.

    ``unit`` is that of the number, such as seconds.
    """
    if not is_number(value):
        raise SettingError(f"{name}={shown(value)}: a number{f' of {unit}' * bool(unit)} is needed")
    if not (_finite(value) and (float(value) > 0 or (or_zero and value == 0))):
        least = "0 or greater" if or_zero else "greater than 0"
        raise SettingError(f"{name}={shown(value)}: it must be {least}")
    if squared and value and not 1.0 / LARGEST <= float(value) <= LARGEST:
        raise SettingError(
            f"{name}={shown(value)}: double precision cannot square it: it must be within "
            f"{1 / LARGEST:.0e} to {LARGEST:.0e}, if need be in another unit"
        )


def array_of(name: str, values: Any) -> np.ndarray:
    """Return values as a NumPy array; InputError for what holds no rows of numbers."""
    try:
        array = None if isinstance(values, Mapping | AnySet | Iterator) else np.asanyarray(values)
    except ValueError as error:
        if not isinstance(values, Sequence):
            raise
        raise InputError(
            f"{name} has rows of different lengths: give the same number of values in each"
        ) from error
    if array is None or (array.dtype.kind == "O" and not array.ndim):
        kind = "None" if values is None else f"of type {type(values).__name__}"
        raise InputError(
            f"{name} is {kind}: give numbers, as an array, a list, a data frame, or a dask, Zarr "
            "or xarray object"
        )
    if array.dtype.names:
        raise InputError(f"{name} has named fields: give a data frame, pandas.DataFrame({name})")
    return array


def unmasked(array: np.ndarray) -> np.ndarray:
    """Return an array with NaN for what it masks, if it masks anything."""
    if not isinstance(array, np.ma.MaskedArray):
        return np.asarray(array)
    dtype = np.result_type(array.dtype, np.float32)
    return np.where(np.ma.getmaskarray(array), np.nan, array.data).astype(dtype)


def refuse_other_order(X: Any, of: str = "X", **beside: Any) -> None:
    """Raise InputError for objects of pandas with the index of X in another order.

    Rows are paired by their order; objects with other indexes do not say that they should not be.
    ``of`` is the name of X.
    """
    for name, own, index in unlike(X, beside):
        if own.isin(index).all() and index.isin(own).all():
            pairs = enumerate(zip(own, index, strict=True))
            row, (seen, wanted) = next((i, pair) for i, pair in pairs if len({*pair}) > 1)
            again = [f"{name}.reindex({of}.index)"] * index.is_unique
            raise other_order(name, of, (row, seen, wanted), [*again, f"{name}.to_numpy()"])


def other_order(
    name: str, of: str, first: tuple[int, Any, Any], remedies: Sequence[str]
) -> InputError:
    """Return the error of an object with the index of another one in another order.

    ``first`` are the first row that differs and the labels of both there.
    """
    row, seen, wanted = first
    return InputError(
        f"{name} has the index of {of} in another order, first {seen} where {of} has {wanted} (row "
        f"{row + 1}), and rows are paired by their order: give {', or '.join(remedies)} if they "
        "belong together as they are"
    )


def unlike(X: Any, beside: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield names of objects of pandas that have as many rows as X, their indexes and that of X.

    Those with the same index are left out.
    """
    index = index_of(X)
    for name, own in ((name, index_of(given)) for name, given in beside.items()):
        known = index is not None and own is not None
        if known and len(own) == len(index) and not own.equals(index):
            yield name, own, index


def index_of(x: Any) -> Any:
    """Return the index of an object of pandas, None for all else."""
    return getattr(x, "index", None) if type(x).__module__.split(".")[0] == "pandas" else None


def flags(**named: Any) -> None:
    """Raise SettingError for text in the place of True or False, which would count as True."""
    for name, value in named.items():
        if isinstance(value, str | bytes):
            raise SettingError(f"{name}={shown(value)}: choose one of True, False")


def parameter(value: Any, name: str) -> float:
    """Return a positive finite number; raise SettingError for anything else."""
    if isinstance(value, bool | str | complex) or not np.isscalar(value):
        raise SettingError(f"{name} must be a positive number, not {shown(value)}")
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and number > 0):
        raise SettingError(f"{name} must be positive and finite, not {shown(value)}")
    return number


def logs_of(names: Sequence[str], values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return log-parameters as an array (k,); raise InputError unless there is one a name."""
    values = np.asarray(values, dtype=np.float64)
    if values.shape != (len(names),):
        raise InputError(
            f"{len(names)} log-parameters are needed ({', '.join(names) or 'none'}), "
            f"not an array of shape {values.shape}"
        )
    return values


def is_number(value: Any) -> bool:
    """Return True for real numbers; NumPy takes differences of times for them, too."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        math.isfinite(value)
    except TypeError:
        return False
    except OverflowError:
        pass
    return True


def _finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def share(name: str, value: Any, zero: bool = False) -> None:
    """Raise SettingError unless a setting is a number in (0, 1], or in [0, 1] with ``zero``."""
    if not is_number(value):
        raise SettingError(f"{name}={shown(value)}: a number is needed")
    if not (_finite(value) and (0 < float(value) <= 1 or (zero and value == 0))):
        need = "from 0 to 1" if zero else "greater than 0 and at most 1"
        raise SettingError(f"{name}={shown(value)}: it must be {need}")


def whole(name: str, value: Any, least: int) -> int:
    """Return a setting that is a whole number of at least ``least``, else raise SettingError."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise SettingError(f"{name}={shown(value)}: a whole number of at least {least} is needed")
    return int(value)


def options(hint: Any) -> list[Any]:
    """Return the types and the words that an annotation allows.

    >>> from typing import Literal
    >>> options(Literal["a", "b"] | int | None)
    ['a', 'b', <class 'int'>, <class 'NoneType'>]
    """
    if get_origin(hint) in (Union, UnionType):
        return [option for part in get_args(hint) for option in options(part)]
    allowed = get_args(hint) if get_origin(hint) is Literal else (hint,)
    return [NoneType if option is None else option for option in allowed]
