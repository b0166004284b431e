"""NumPy or CuPy for an array; the only door to cupy.

Arrays stay where they are: nothing here moves data except ``to_device`` and ``to_host``.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import scipy.special

from daskgp.errors import DeviceError, SettingError
from daskgp.typing import Array

logger = logging.getLogger(__name__)

_NO_GPU = "install daskgp[gpu] on a machine with an NVIDIA GPU, or ask for device='cpu'"
_announced: set[str] = set()


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
    found: Any = None
    for array in arrays:
        if not hasattr(array, "shape") or isinstance(array, np.generic):
            continue
        module = _module_of(array)
        if found is not None and module is not found:
            raise DeviceError(
                f"arrays are on two devices, {found.__name__} and {module.__name__}: "
                "move them to one with to_device or to_host"
            )
        found = module
    return np if found is None else found


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
    if device not in ("auto", "gpu"):
        raise SettingError(f"device must be 'auto', 'cpu' or 'gpu', not {device!r}")
    reason = _why_no_gpu()
    if device == "gpu":
        if reason:
            raise DeviceError(f"device='gpu' cannot be had: {reason}; {_NO_GPU}")
        return "gpu"
    chosen = "cpu" if reason else "gpu"
    if chosen not in _announced:
        _announced.add(chosen)
        logger.info("device='auto' chose the %s%s", chosen, f": {reason}" if reason else "")
    return chosen


def _why_no_gpu() -> str:
    """The reason there is no usable GPU, empty if there is one."""
    if importlib.util.find_spec("cupy") is None:
        return "cupy is not installed"
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        return f"cupy cannot be imported ({error})"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"the CUDA driver does not answer ({error})"
    return "" if count else "the CUDA driver finds no device"


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
    return xp.RawModule(code=source, options=("--std=c++14",))


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
        found: Callable[[Array], Array] = xp.linalg.cholesky
        return found

    def raising(A: Array) -> Array:
        with importlib.import_module("cupyx").errstate(linalg="raise"):
            return xp.linalg.cholesky(A)

    return raising


def solve_triangular(xp: Any) -> Callable[..., Array]:
    """SciPy's ``solve_triangular(a, b, trans, lower, overwrite_b)`` for another module."""
    if xp.__name__ == "cupy":
        return importlib.import_module("cupyx.scipy.linalg").solve_triangular
    return xp.linalg.solve_triangular
