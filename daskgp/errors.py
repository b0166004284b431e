"""Errors that daskgp raises on purpose, so that callers can catch them by kind."""

from typing import Any


class DaskgpError(Exception):
    """Base of all errors raised by daskgp."""


class InputError(DaskgpError, ValueError):
    """Unusable data, argument or file; the message says what to change."""


class SettingError(InputError):
    """Unknown or out-of-range setting of an estimator, kernel or command."""


class StoreError(InputError):
    """Missing or damaged dataset, model or prediction store, or one of another kind."""


class PlanError(InputError):
    """Requested work that cannot fit in the available memory or disk."""


class DeviceError(InputError):
    """Requested device that is unavailable."""


class NumericalError(DaskgpError, ArithmeticError):
    """Failure of a factorisation or a variance beyond what rounding explains."""


class RunError(DaskgpError, RuntimeError):
    """Failure of a run although its input was usable (a cluster, a disk, a worker)."""


class FullDiskError(StoreError, RunError):
    """Full disk or quota; once there is space, the work can go on."""


class MemoryRunError(RunError):
    """Failure of tasks that ran out of memory, or whose workers died of it.

    Parameters
    ----------
    seen : str
        What happened.
    where : str
        How much work it happened on.
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
    """GPU out of memory, where smaller pieces of the work did not help or are impossible.

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
