"""Everything daskgp raises on purpose, so that callers can catch it by kind."""

import reprlib
from typing import Any

LONGEST = 100
"""Characters of a value that a message shows."""


class _Short(reprlib.Repr):
    """``reprlib``, which says the shape of an array instead of its numbers."""

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
    """Return a value as messages show it: on one line, a long one without its middle.

    Examples
    --------
    >>> shown("auto"), shown(list(range(10_000)))
    ("'auto'", '[0, 1, 2, 3, 4, 5, ...]')
    """
    text = " ".join(_SHORT.repr(value).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


class DaskgpError(Exception):
    """Base of all errors raised by daskgp."""


class InputError(DaskgpError, ValueError):
    """Data, an argument or a file is not usable; the message says what to change."""


class SettingError(InputError):
    """A setting of an estimator, kernel or command is unknown or out of range."""


class StoreError(InputError):
    """A dataset, model or prediction store is missing, damaged or of another kind."""


class PlanError(InputError):
    """The work asked for cannot fit the memory or the disk there is."""


class DeviceError(InputError):
    """The device asked for cannot be had."""


class NumericalError(DaskgpError, ArithmeticError):
    """A factorisation or a variance failed beyond what rounding explains."""


class RunError(DaskgpError, RuntimeError):
    """The run failed although its input was usable (a cluster, a disk, a worker)."""


class FullDiskError(StoreError, RunError):
    """A disk or quota is full: once there is space, the work can go on."""


class MemoryRunError(RunError):
    """Tasks ran out of memory, or their workers died of it.

    Parameters
    ----------
    seen : str
        What happened.
    where : str
        On how much work.
    remedy : str
        What to do about it.
    """

    def __init__(
        self,
        seen: str,
        where: str = "one task, most likely out of memory",
        remedy: str = "choose smaller blocks or give the workers more memory",
    ) -> None:
        super().__init__(f"{seen} on {where}: {remedy}")
        self.seen, self.where, self.remedy = seen, where, remedy

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.seen, self.where, self.remedy)  # workers send it to the client


class DeviceMemoryError(MemoryRunError):
    """A GPU ran out of memory, and smaller pieces of the work did not help or cannot be had.

    Parameters
    ----------
    seen, where, remedy : str
        As for MemoryRunError.
    divided : bool
        Whether smaller pieces were tried.
    """

    def __init__(self, seen: str, where: str, remedy: str, divided: bool = False) -> None:
        super().__init__(seen, where, remedy)
        self.divided = divided

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.seen, self.where, self.remedy, self.divided)
