"""Errors that daskgp raises on purpose, so that callers can catch them by kind."""

from typing import Any


class DaskgpError(Exception):
    """Base of all errors raised by daskgp.

    Examples
    --------
    >>> import daskgp
    >>> try:
    ...     daskgp.open_dataset("missing.zarr")
    ... except daskgp.DaskgpError as error:
    ...     print(type(error).__name__)
    StoreError
    """


class InputError(DaskgpError, ValueError):
    """Unusable data, argument or file; the message says what to change.

    Examples
    --------
    >>> from daskgp.errors import InputError, SettingError
    >>> issubclass(InputError, ValueError), issubclass(SettingError, InputError)
    (True, True)
    """


class SettingError(InputError):
    """Unknown or out-of-range setting of an estimator, kernel or command.

    Examples
    --------
    >>> from daskgp import kernels
    >>> kernels.parse("rbff(1.0)")
    Traceback (most recent call last):
    daskgp.errors.SettingError: ...
    """


class StoreError(InputError):
    """Missing or damaged dataset, model or prediction store, or one of another kind.

    Examples
    --------
    >>> import daskgp
    >>> daskgp.load("missing.zarr")
    Traceback (most recent call last):
    daskgp.errors.StoreError: ...
    """


class PlanError(InputError):
    """Requested work that cannot fit in the available memory or disk.

    Examples
    --------
    >>> import dask.array as da, daskgp
    >>> X = da.zeros((10**6, 2), chunks=(10**6, 2))
    >>> try:
    ...     daskgp.ExactGP().fit(X, X[:, 0])  # needs n² numbers
    ... except daskgp.errors.PlanError:
    ...     print("refused before it starts")
    refused before it starts
    """


class DeviceError(InputError):
    """Requested device that is unavailable.

    Examples
    --------
    >>> from daskgp.errors import DeviceError, InputError
    >>> issubclass(DeviceError, InputError)  # as of device="gpu" where there is none
    True
    """


class NumericalError(DaskgpError, ArithmeticError):
    """Failure of a factorisation or a variance beyond what rounding explains.

    Examples
    --------
    >>> from daskgp.errors import NumericalError
    >>> issubclass(NumericalError, ArithmeticError)
    True
    """


class RunError(DaskgpError, RuntimeError):
    """Failure of a run although its input was usable (a cluster, a disk, a worker).

    Examples
    --------
    >>> from daskgp.errors import DaskgpError, RunError
    >>> issubclass(RunError, RuntimeError) and issubclass(RunError, DaskgpError)
    True
    """


class FullDiskError(StoreError, RunError):
    """Full disk or quota; once there is space, the work can go on.

    Examples
    --------
    >>> from daskgp.errors import FullDiskError, RunError, StoreError
    >>> issubclass(FullDiskError, StoreError) and issubclass(FullDiskError, RunError)
    True
    """


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

    Examples
    --------
    >>> from daskgp.errors import MemoryRunError
    >>> print(MemoryRunError("a worker died", remedy="choose smaller blocks"))
    a worker died on one task, most likely out of memory: choose smaller blocks
    """

    seen: str
    where: str
    remedy: str

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

    Examples
    --------
    >>> from daskgp.errors import DeviceMemoryError
    >>> error = DeviceMemoryError("the GPU is full", "one block", "choose smaller ones", True)
    >>> print(error)
    the GPU is full on one block: choose smaller ones
    """

    def __init__(self, seen: str, where: str, remedy: str, divided: bool = False) -> None:
        super().__init__(seen, where, remedy)
        self.divided = divided

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.seen, self.where, self.remedy, self.divided)
