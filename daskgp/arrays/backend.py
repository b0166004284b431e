"""Choice of NumPy or CuPy for an array; the only module that imports cupy.

Arrays stay where they are: only ``to_device``, ``to_host`` and ``Copies`` move data.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.metadata
import importlib.util
import logging
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import scipy.special

from daskgp.checks import shown
from daskgp.errors import DeviceError, DeviceMemoryError, SettingError
from daskgp.typing import Array

logger: logging.Logger = logging.getLogger(__name__)

NO_GPU = "install daskgp[gpu] on a machine with an NVIDIA GPU, or ask for device='cpu'"
_announced: set[str] = set()
_BROKEN = (ImportError, OSError, RuntimeError, AttributeError, ValueError)
"""Exceptions raised on importing a CuPy that does not match its driver, CUDA or NumPy."""
_PLAIN = {int, float, bool, str, type(None)}
"""Types of values that hold no array."""


def namespace(*arrays: Any) -> Any:
    """Return the array module of all the arrays.

    Parameters
    ----------
    *arrays : array or scalar
        Scalars and None belong to every module and are skipped.

    Returns
    -------
    module
        ``numpy`` for NumPy arrays or when there is no array at all, ``cupy`` for CuPy arrays,
        otherwise what the arrays' ``__array_namespace__`` returns.

    Raises
    ------
    DeviceError
        If the arrays belong to different modules.

    Examples
    --------
    >>> namespace(np.zeros(3), 2.0).__name__
    'numpy'
    """
    common: Any = None
    for array in arrays:
        if not hasattr(array, "shape") or isinstance(array, np.generic):
            continue
        module = _module_of(array)
        if common is not None and module is not common:
            raise DeviceError(
                f"arrays are on two devices, {common.__name__} and {module.__name__}: "
                "move them to one with to_device or to_host"
            )
        common = module
    return np if common is None else common


def _module_of(array: Any) -> Any:
    if isinstance(array, np.ndarray):
        return np
    if type(array).__module__.partition(".")[0] == "cupy":
        return importlib.import_module("cupy")
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    raise DeviceError(
        f"{type(array).__module__}.{type(array).__name__} is not an array daskgp computes with: "
        "pass a NumPy or CuPy array"
    )


def resolve_device(device: str) -> str:
    """Return the device to compute on, "cpu" or "gpu".

    Parameters
    ----------
    device : {"auto", "cpu", "gpu"}
        "auto" takes a GPU if CuPy finds one, and logs its choice once.

    Raises
    ------
    DeviceError
        If "gpu" is requested but unavailable; the message says why and what to do.
    SettingError
        If ``device`` is none of the three values.
    """
    if device == "cpu":
        return "cpu"
    check_device(device)
    reason = _why_no_gpu()
    if device == "gpu":
        if reason:
            raise DeviceError(f"device='gpu' is not available: {reason}; {NO_GPU}")
        return "gpu"
    chosen = "cpu" if reason else "gpu"
    if chosen not in _announced:
        _announced.add(chosen)
        level = logging.WARNING if reason and reason != _MISSING else logging.INFO
        logger.log(level, "device='auto' chose the %s%s", chosen, f": {reason}" if reason else "")
    return chosen


def check_device(device: str) -> None:
    """Raise SettingError unless ``device`` is "auto", "cpu" or "gpu"."""
    if device not in ("auto", "cpu", "gpu"):
        raise SettingError(f"device must be 'auto', 'cpu' or 'gpu', not {shown(device)}")


def why_no_gpu() -> str:
    """Return in one line why this process has no usable GPU, empty if it has one."""
    return _why_no_gpu()


def count_gpus() -> tuple[int, str]:
    """Return the number of GPUs of this machine, and why if it is 0, without computing anything."""
    cupy, reason = _cupy()
    return _count(cupy) if cupy is not None else (0, reason)


_MISSING = "cupy is not installed"


def _why_no_gpu() -> str:
    cupy, reason = _cupy()
    if cupy is None:
        return reason
    if cupy not in _working:
        reason = _why_not_working(cupy)
        if reason.startswith(_FULL):
            return reason  # there may be room later
        _working[cupy] = reason
    return _working[cupy]


_working: dict[Any, str] = {}
"""Reason why a CuPy module is unusable, empty if it works; tested once per process."""
_FULL = "the device has no memory left"
FORKED = "its CUDA is that of the process it was forked from: start processes by 'spawn'"


def lose_gpus() -> None:
    """Have no GPU any more, in a process forked from one that has computed with some."""
    _working.update({cupy: reason or FORKED for cupy, reason in _working.items()})
    _copying.clear()


def _cupy() -> tuple[Any, str]:
    """Return CuPy and an empty reason, or None and why it is unavailable."""
    if not _is_installed():
        return None, _MISSING
    try:
        return importlib.import_module("cupy"), ""
    except _BROKEN as error:
        return None, f"cupy cannot be imported ({_line(error)})"


@functools.cache
def _is_installed() -> bool:
    """Look for CuPy once: every task asks, and looking reads folders."""
    return importlib.util.find_spec("cupy") is not None


def _why_not_working(cupy: Any) -> str:
    """Return why a small computation fails; it uses all libraries that larger ones need."""
    several = _installations()
    if len(several) > 1:
        names = ", ".join(several)
        return f"cupy is installed {len(several)} times ({names}): uninstall all, then install one"
    count, reason = _count(cupy)
    if not count:
        return reason
    try:
        L = cupy.linalg.cholesky(cupy.exp(cupy.eye(2)))
        to_host((L @ L.T).sum())
    except (MemoryError, *_BROKEN) as error:
        if _is_device_memory(error):
            return f"{_FULL} ({_line(error)})"
        return f"cupy cannot compute on the device ({_line(error)})"
    return ""


def _count(cupy: Any) -> tuple[int, str]:
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except (RuntimeError, OSError) as error:
        return 0, f"the CUDA driver does not answer ({_line(error)})"
    return count, "" if count else "the CUDA driver finds no device"


def _installations() -> list[str]:
    """Return the installed distributions of CuPy: two of them overwrite each other's files."""
    names = (distribution.name for distribution in importlib.metadata.distributions())
    return sorted({name for name in names if name and re.match(r"cupy(-cuda|-rocm|$)", name)})


def _line(error: BaseException) -> str:
    """Return the root cause of an error in one line: CuPy wraps it in many lines of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line.strip("=")), type(error).__name__)


def to_device(array: Any, device: str, dtype: Any = None) -> Array:
    """Return the array on "cpu" or "gpu", moved only if it lies elsewhere, cast if given a dtype.

    Raises
    ------
    DeviceError
        If the GPU is unavailable.
    """
    if resolve_device(device) == "cpu":
        host = to_host(array)
        return host if dtype is None else host.astype(dtype, copy=False)
    cupy = importlib.import_module("cupy")
    return cupy.asarray(array, dtype=dtype)


def to_host(array: Any) -> np.ndarray:
    """Return the array as a NumPy array: one transfer from a device, none from the host."""
    if isinstance(array, np.ndarray):
        return array
    get = getattr(array, "get", None)
    return np.asarray(get() if callable(get) else array)


def aligned(value: Any) -> Any:
    """Return a value whose arrays, nested in tuples, lists and dataclasses, lie on item boundaries.

    Small arrays in a message from another process may begin anywhere.  NumPy multiplies copies of
    such arrays, in C order, and their products differ in the last bits from those of a transposed
    array, which BLAS reads as it is.
    """
    if isinstance(value, np.ndarray):
        return value if value.flags.aligned else value.copy(order="K")
    if isinstance(value, tuple | list):
        parts = [part if type(part) in _PLAIN else aligned(part) for part in value]
        if all(map(operator.is_, parts, value)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        changed = {k: new for k, old in fields.items() if (new := aligned(old)) is not old}
        return dataclasses.replace(value, **changed) if changed else value
    return value


def number(value: Any) -> float:
    """Return a scalar as a Python float.

    Numbers leave a device only through this function, since it waits for the device.

    Examples
    --------
    >>> number(np.ones(2).sum())
    2.0
    """
    get = getattr(value, "get", None)
    return float(get() if callable(get) else value)


def compiles(xp: Any) -> bool:
    """Return True if CUDA C can be compiled for the module's arrays."""
    return hasattr(xp, "RawModule")


def device_source(xp: Any, source: str) -> Any:
    """Compile CUDA C; functions from ``get_function(name)`` take grid, block and arguments."""
    return xp.RawModule(code=source)  # the default C++ standard of every CuPy is new enough


class DeviceMemory(NamedTuple):
    """Bytes of memory of the current GPU: those that CuPy could still allocate, and all."""

    free: int
    total: int


def device_memory() -> DeviceMemory | None:
    """Return the memory of the current GPU; None unless CuPy's own pool is its allocator."""
    cupy = importlib.import_module("cupy")
    pool = cupy.get_default_memory_pool()
    if cupy.cuda.get_allocator() != pool.malloc:
        return None
    free, total = cupy.cuda.Device().mem_info
    free, limit = free + pool.free_bytes(), pool.get_limit()
    if limit:
        free = min(free, limit - pool.used_bytes())
    return DeviceMemory(int(max(free, 0)), int(total))


def free_device_memory() -> None:
    """Free the memory that CuPy's pools keep from deleted arrays."""
    cupy = importlib.import_module("cupy")
    cupy.get_default_memory_pool().free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()


@contextmanager
def device_memory_is_named(where: str, remedy: str, divided: bool = False) -> Iterator[None]:
    """Raise a DeviceMemoryError, which can be pickled, if a GPU runs out of memory inside."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_device_memory(error):
            raise
        seen = f"the GPU ran out of memory ({_line(error)})"
        raise DeviceMemoryError(seen, where, remedy, divided) from None


def _is_device_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):  # from CuPy's pool or another allocator, but not from NumPy
        return not type(error).__module__.startswith("numpy")
    names = "MemoryAllocation", "ALLOC_FAILED", "OUT_OF_MEMORY"  # runtime, libraries, driver
    return any(name in str(error) for name in names)


class Copies:
    """Copies of host arrays to the GPU while it computes, on a stream of their own.

    Arrays go through pinned memory, as asynchronous copies must.  Two rules keep the streams in
    order: the computing stream waits for a copy before using it (``Copy.ready``), and the copying
    stream waits for what was computed with it before its memory is reused (``Copy.release``).
    """

    def __init__(self) -> None:
        self._cupy = importlib.import_module("cupy")
        self._device = self._cupy.cuda.Device()
        fresh = self._cupy.cuda.Stream(non_blocking=True)
        self._stream = _copying.setdefault(self._device.id, fresh)

    def begin(self, arrays: Sequence[np.ndarray]) -> Copy:
        """Begin to copy arrays; any thread may call this."""
        copied: list[Array] = []
        pinned = []
        with self._device, self._stream:
            try:
                for array in arrays:
                    on_device = self._cupy.empty(array.shape, array.dtype)
                    copied.append(on_device)
                    if array.size:
                        pinned.append(self._pinned(array))
                        on_device.set(pinned[-1], stream=self._stream)
            except BaseException:
                self._stream.synchronize()  # pinned memory must not be freed during the copy
                raise
            return Copy(self._cupy, self._stream, copied, pinned, self._stream.record())

    def _pinned(self, array: np.ndarray) -> np.ndarray:
        memory = self._cupy.cuda.alloc_pinned_memory(array.nbytes)
        host: np.ndarray = np.ndarray(array.shape, array.dtype, buffer=memory)
        host[...] = array
        return host


_copying: dict[int, Any] = {}
"""Copying stream of each device: memory goes back to the stream that it came from."""


class Copy:
    """Arrays being copied to the GPU; made by ``Copies``."""

    def __init__(
        self, cupy: Any, stream: Any, arrays: list[Array], pinned: list[np.ndarray], done: Any
    ) -> None:
        self._cupy, self._stream, self._done = cupy, stream, done
        self._arrays, self._pinned = arrays, pinned

    def ready(self) -> list[Array]:
        """Return the arrays for the current stream, whose later work waits for the copy."""
        self._cupy.cuda.get_current_stream().wait_event(self._done)
        return list(self._arrays)

    def release(self) -> None:
        """Release the arrays once the work queued on the current stream is done with them."""
        self._done.synchronize()  # long done if they were used; pinned memory may be freed
        self._stream.wait_event(self._cupy.cuda.get_current_stream().record())
        self._arrays, self._pinned = [], []


def special(xp: Any) -> ModuleType:
    """Return the module of special functions (erf, ndtr, ...) for the module's arrays."""
    if xp is np:
        return scipy.special
    if xp.__name__ == "cupy":
        return importlib.import_module("cupyx.scipy.special")
    return xp.special


def cholesky(xp: Any) -> Callable[[Array], Array]:
    """Return the module's ``linalg.cholesky``, made to raise LinAlgError as NumPy's does.

    In CuPy this is a setting; without it an indefinite matrix comes back half factored.
    """
    if xp.__name__ != "cupy":
        function: Callable[[Array], Array] = xp.linalg.cholesky
        return function

    def raising(A: Array) -> Array:
        with importlib.import_module("cupyx").errstate(linalg="raise"):
            return xp.linalg.cholesky(A)

    return raising


def solve_triangular(xp: Any) -> Callable[..., Array]:
    """Return the module's ``solve_triangular(a, b, trans, lower, overwrite_b)``, like SciPy's."""
    if xp.__name__ == "cupy":
        return importlib.import_module("cupyx.scipy.linalg").solve_triangular
    return xp.linalg.solve_triangular


def wide(K: Array) -> Array:
    """Return a tile in float64: L^-1 would magnify the rounding of products in float32."""
    return K.astype(np.float64, copy=False)
