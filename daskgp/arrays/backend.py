"""NumPy or CuPy for an array; the only door to cupy.

Arrays stay where they are: only ``to_device``, ``to_host`` and ``Copies`` move data.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
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

logger = logging.getLogger(__name__)

NO_GPU = "install daskgp[gpu] on a machine with an NVIDIA GPU, or ask for device='cpu'"
_announced: set[str] = set()
_BROKEN = (ImportError, OSError, RuntimeError, AttributeError, ValueError)
"""What an import of CuPy raises that does not fit its driver, CUDA or NumPy."""


def namespace(*arrays: Any) -> Any:
    """The array module that holds all the arrays.

    Parameters
    ----------
    *arrays : array or scalar
        Scalars and None belong to every module and are passed over.

    Returns
    -------
    module
        ``numpy`` for NumPy arrays or when there is no array at all, ``cupy`` for CuPy arrays,
        otherwise what the arrays' ``__array_namespace__`` answers.

    Raises
    ------
    DeviceError
        If the arrays are held by different modules.

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


def is_numpy(xp: Any) -> bool:
    """Whether the array module is NumPy, whose arrays SciPy's BLAS may work on in place."""
    return xp is np


def resolve_device(device: str) -> str:
    """The device to compute on, "cpu" or "gpu".

    Parameters
    ----------
    device : {"auto", "cpu", "gpu"}
        "auto" takes a GPU where CuPy finds one and logs, once, what it chose.

    Raises
    ------
    DeviceError
        If "gpu" is asked for and cannot be had; the message says why and what to do.
    SettingError
        If ``device`` is none of the three.
    """
    if device == "cpu":
        return "cpu"
    check_device(device)
    reason = _why_no_gpu()
    if device == "gpu":
        if reason:
            raise DeviceError(f"device='gpu' cannot be had: {reason}; {NO_GPU}")
        return "gpu"
    chosen = "cpu" if reason else "gpu"
    if chosen not in _announced:
        _announced.add(chosen)
        level = logging.WARNING if reason and reason != _MISSING else logging.INFO
        logger.log(level, "device='auto' chose the %s%s", chosen, f": {reason}" if reason else "")
    return chosen


def check_device(device: str) -> None:
    """SettingError for a device that is none of the three."""
    if device not in ("auto", "cpu", "gpu"):
        raise SettingError(f"device must be 'auto', 'cpu' or 'gpu', not {shown(device)}")


def why_no_gpu() -> str:
    """The reason this process has no usable GPU in one line, empty if it has one."""
    return _why_no_gpu()


def count_gpus() -> tuple[int, str]:
    """GPUs of this machine, and why there are none; nothing is computed to find out."""
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
"""Of a module of CuPy why it is no good: it is tried once a process."""
_FULL = "the device has no memory left"


def _cupy() -> tuple[Any, str]:
    """CuPy, or why it cannot be had."""
    if importlib.util.find_spec("cupy") is None:
        return None, _MISSING
    try:
        return importlib.import_module("cupy"), ""
    except _BROKEN as error:
        return None, f"cupy cannot be imported ({_line(error)})"


def _why_not_working(cupy: Any) -> str:
    """The reason a small computation fails, which wants all libraries that larger ones do."""
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
    """Installed distributions of CuPy: two of them overwrite each other's files."""
    names = (distribution.name for distribution in importlib.metadata.distributions())
    return sorted({name for name in names if name and re.match(r"cupy(-cuda|-rocm|$)", name)})


def _line(error: BaseException) -> str:
    """What an error goes back to, in one line: CuPy wraps it in advice of many lines."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line.strip("=")), type(error).__name__)


def to_device(array: Any, device: str, dtype: Any = None) -> Array:
    """The array on "cpu" or "gpu", moved only if it lies elsewhere; cast if a dtype is given.

    Raises
    ------
    DeviceError
        If the GPU cannot be had.
    """
    if resolve_device(device) == "cpu":
        host = to_host(array)
        return host if dtype is None else host.astype(dtype, copy=False)
    cupy = importlib.import_module("cupy")
    return cupy.asarray(array, dtype=dtype)


def to_host(array: Any) -> np.ndarray:
    """The array as a NumPy array; one move for a device array, none for a host array."""
    if isinstance(array, np.ndarray):
        return array
    get = getattr(array, "get", None)
    return np.asarray(get() if callable(get) else array)


def number(value: Any) -> float:
    """A scalar as a Python float: the one way a number leaves a device, since it waits for it.

    Examples
    --------
    >>> number(np.ones(2).sum())
    2.0
    """
    get = getattr(value, "get", None)
    return float(get() if callable(get) else value)


def compiles(xp: Any) -> bool:
    """Whether functions written in CUDA C can be compiled for the module's arrays."""
    return hasattr(xp, "RawModule")


def device_source(xp: Any, source: str) -> Any:
    """Compiled CUDA C; its ``get_function(name)`` is called with grid, block and arguments."""
    return xp.RawModule(code=source)  # the C++ that CuPy takes for its own: all are new enough


class DeviceMemory(NamedTuple):
    """Bytes of the current GPU: what CuPy could still allocate, and all there are."""

    free: int
    total: int


def device_memory() -> DeviceMemory | None:
    """The memory of the current GPU; None where another allocator than CuPy's pool rules it."""
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
    """Give back what CuPy's pools keep of arrays that are gone."""
    cupy = importlib.import_module("cupy")
    cupy.get_default_memory_pool().free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()


@contextmanager
def device_memory_is_named(where: str, remedy: str, divided: bool = False) -> Iterator[None]:
    """A GPU that ran out of memory inside as a DeviceMemoryError that goes to other processes."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_device_memory(error):
            raise
        seen = f"the GPU ran out of memory ({_line(error)})"
        raise DeviceMemoryError(seen, where, remedy, divided) from None


def _is_device_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):  # of CuPy's pool or another allocator, but not of NumPy
        return not type(error).__module__.startswith("numpy")
    names = "MemoryAllocation", "ALLOC_FAILED", "OUT_OF_MEMORY"  # runtime, libraries, driver
    return any(name in str(error) for name in names)


class Copies:
    """Copies of host arrays to the GPU beside what it computes, by a stream of their own.

    Arrays go through pinned memory, as copies that do not wait must.  Two rules keep the streams
    in order: the computing stream waits for a copy before it is used (``Copy.ready``), and the
    copying stream waits for what was computed with it before its memory can be had again
    (``Copy.release``).
    """

    def __init__(self) -> None:
        self._cupy = importlib.import_module("cupy")
        self._device = self._cupy.cuda.Device()
        fresh = self._cupy.cuda.Stream(non_blocking=True)
        self._stream = _copying.setdefault(self._device.id, fresh)

    def begin(self, arrays: Sequence[np.ndarray]) -> Copy:
        """Begin to copy arrays; any thread may."""
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
                self._stream.synchronize()  # pinned memory must not go while it is copied
                raise
            return Copy(self._cupy, self._stream, copied, pinned, self._stream.record())

    def _pinned(self, array: np.ndarray) -> np.ndarray:
        memory = self._cupy.cuda.alloc_pinned_memory(array.nbytes)
        host: np.ndarray = np.ndarray(array.shape, array.dtype, buffer=memory)
        host[...] = array
        return host


_copying: dict[int, Any] = {}
"""The copying stream of each device: memory goes back to the stream that it came from."""


class Copy:
    """Arrays on their way to the GPU; made by ``Copies``."""

    def __init__(
        self, cupy: Any, stream: Any, arrays: list[Array], pinned: list[np.ndarray], done: Any
    ) -> None:
        self._cupy, self._stream, self._done = cupy, stream, done
        self._arrays, self._pinned = arrays, pinned

    def ready(self) -> list[Array]:
        """The arrays, for the current stream: what it does from now on waits for the copy."""
        self._cupy.cuda.get_current_stream().wait_event(self._done)
        return list(self._arrays)

    def release(self) -> None:
        """Give the arrays up once what the current stream was told to do with them is done."""
        self._done.synchronize()  # long done where they were used; pinned memory may go
        self._stream.wait_event(self._cupy.cuda.get_current_stream().record())
        self._arrays, self._pinned = [], []


def special(xp: Any) -> ModuleType:
    """The module of special functions (erf, ndtr, ...) that works on the module's arrays."""
    if is_numpy(xp):
        return scipy.special
    if xp.__name__ == "cupy":
        return importlib.import_module("cupyx.scipy.special")
    return xp.special


def cholesky(xp: Any) -> Callable[[Array], Array]:
    """The module's ``linalg.cholesky``, told to raise LinAlgError as NumPy does.

    CuPy takes that as a setting; without it an indefinite matrix comes back half factored.
    """
    if xp.__name__ != "cupy":
        function: Callable[[Array], Array] = xp.linalg.cholesky
        return function

    def raising(A: Array) -> Array:
        with importlib.import_module("cupyx").errstate(linalg="raise"):
            return xp.linalg.cholesky(A)

    return raising


def solve_triangular(xp: Any) -> Callable[..., Array]:
    """SciPy's ``solve_triangular(a, b, trans, lower, overwrite_b)`` for another module."""
    if xp.__name__ == "cupy":
        return importlib.import_module("cupyx.scipy.linalg").solve_triangular
    return xp.linalg.solve_triangular


def wide(K: Array) -> Array:
    """A tile in float64: L^-1 would magnify the rounding of products in float32."""
    return K.astype(np.float64, copy=False)
