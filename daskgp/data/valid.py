"""Values that are declared missing: by a setting, or by CF attributes that xarray leaves."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from daskgp.checks import shown
from daskgp.errors import SettingError
from daskgp.models.fills import CLOSE, matches

logger: logging.Logger = logging.getLogger("daskgp")

MOST = 100
"""Most fill values that are given."""


class Valid(NamedTuple):
    """Values that are measurements: those from ``low`` to ``high`` that are no fill value."""

    fills: tuple[float, ...]
    low: float
    high: float

    def known(self, values: np.ndarray) -> np.ndarray:
        """Return numbers with NaN for those that are no measurements."""
        wrong = (values < self.low) | (values > self.high)
        for fill in self.fills:
            wrong |= matches(values, fill)
        if not wrong.any():
            return values
        return np.where(wrong, np.nan, values.astype(np.result_type(values.dtype, np.float32)))


def of(dtype: np.dtype[Any], own: Mapping[str, Any], packing: Mapping[str, Any]) -> Valid | None:
    """Return what values of a variable are valid; None if it says nothing that is left to heed.

    xarray has decoded fill values of files; what is left are those in the units of unpacked values,
    those of objects that are not decoded, and valid ranges, in packed units where they have the
    type of these.

    Parameters
    ----------
    dtype : dtype
        Type of the values.
    own, packing : mapping
        Attributes of the variable, and those that xarray has decoded it by.
    """
    if dtype.kind not in "fiu":
        return None
    packed = not {"scale_factor", "add_offset", "_Unsigned"}.isdisjoint(packing)
    fills = [v for name in FILLS for v in _numbers(own.get(name))]
    whole = np.dtype(packing.get("dtype", np.float64)).kind in "iu"
    if packed and whole:
        fills += [v for name in FILLS for v in _numbers(packing.get(name), "f")]
    ends = _numbers(own.get("valid_range"))
    if len(ends) != 2:
        least, most = (_numbers(own.get(name))[:1] for name in ("valid_min", "valid_max"))
        ends = [*(least or [-np.inf]), *(most or [np.inf])]
    # a range has the type of packed values, as it should
    types = {np.asarray(own[name]).dtype.kind for name in RANGE if name in own}
    if packed and (types <= {"i", "u"} or not whole):
        ends = _unpacked(ends, packing)
    low, high = ends
    if low > high or not (fills or np.isfinite(ends).any()):
        return None
    slack = CLOSE * max((abs(end) for end in ends if np.isfinite(end)), default=0.0)
    if packed:
        slack = max(slack, 0.5 * abs(float(packing.get("scale_factor", 1.0))))
    return Valid(tuple(fills), low - slack, high + slack)


def warn_of_packed(parts: Mapping[str, Any]) -> None:
    """Warn of arrays of whole numbers that their attributes unpack."""
    for name, array in parts.items():
        said = {key: number for key in PLAIN for number in _numbers(array.attrs.get(key))}
        packed = any(number != PLAIN[key] for key, number in said.items())
        if packed and np.dtype(array.dtype).kind in "iu":
            logger.warning(
                "%s holds packed whole numbers (%s in its attributes), which are taken as "
                "they are: unpack them with xarray.decode_cf(dataset), or open the file with "
                "mask_and_scale=True",
                *(name, " and ".join(f"{key}={number:g}" for key, number in said.items())),
            )


PLAIN = {"scale_factor": 1.0, "add_offset": 0.0}
"""Attributes that unpack whole numbers, and the values of those that change nothing."""


def numbers_of(setting: Any) -> tuple[float, ...] | None:
    """Return the values that a setting ``fill_values`` gives; None for "auto".

    None, for no fill values, gives none.  Raise SettingError for any other thing.
    """
    if setting is None:
        return ()
    if isinstance(setting, str) and setting == "auto":
        return None
    given = [setting] if isinstance(setting, Real) else setting
    try:
        values = () if isinstance(given, str | bytes) else tuple(given)
    except TypeError:
        values = ()
    if len(values) > MOST:
        raise SettingError(f"fill_values has {len(values)} numbers: give at most {MOST}")
    numeric = all(isinstance(v, Real) and not isinstance(v, bool | np.bool_) for v in values)
    if not values or not numeric or not np.isfinite(np.asarray(values, np.float64)).all():
        raise SettingError(
            f"fill_values={shown(setting)}: give a list of finite numbers that stand for missing "
            "values, such as [-9999], 'auto' for those in common use, or None for none"
        )
    return tuple(map(float, values))


FILLS = ("missing_value", "_FillValue")
RANGE = ("valid_range", "valid_min", "valid_max")


def _numbers(said: Any, kinds: str = "fiu") -> list[float]:
    """Return the finite numbers of an attribute, none if it is text or of other types."""
    values = np.ravel(np.asarray(said))
    if values.dtype.kind not in kinds:
        return []
    return [float(v) for v in values if np.isfinite(v)]


def _unpacked(ends: list[float], packing: Mapping[str, Any]) -> list[float]:
    """Return the ends of a range of packed values in the units of unpacked ones."""
    if str(packing.get("_Unsigned", "")).lower() == "true":
        bits = 8 * np.dtype(packing["dtype"]).itemsize
        ends = [end + 2.0**bits if -np.inf < end < 0 else end for end in ends]
    scale = float(packing.get("scale_factor", 1.0))
    return sorted(scale * end + float(packing.get("add_offset", 0.0)) for end in ends)
