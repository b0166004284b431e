"""Errors that daskgp raises on purpose, so that callers can catch them by kind."""

from typing import Any


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
