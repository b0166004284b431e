"""A strict stand-in for CuPy: NumPy inside, but nothing that a device array would refuse.

It raises on implicit conversion to the host, on mixing with NumPy arrays or with another fake
device, and on any function that CuPy lacks.  ``module("a")`` and ``module("b")`` are two devices.
"""

import importlib.machinery
import types

import numpy as np

_FUNCTIONS = """
    abs add arange argmax argmin argsort asarray ascontiguousarray broadcast_to clip concatenate
    copyto cos cumsum diag diag_indices diagonal divide dot einsum empty empty_like exp expm1 eye
    fill_diagonal full full_like hstack isfinite isnan linspace log log1p log2 logical_and
    logical_not matmul max maximum mean min minimum moveaxis multiply negative nonzero ones
    ones_like outer reshape rint sign sin sort sqrt square stack subtract sum take tensordot tile
    trace tril triu vdot vstack where zeros zeros_like
"""
_BINARY = "add sub mul truediv pow matmul mod floordiv and or xor"
_PLAIN = "lt le gt ge eq ne neg abs invert"
_METHODS = """
    all any argmax argmin astype copy cumsum diagonal dot max mean min prod ravel reshape squeeze
    std sum take trace transpose var
"""
CONSTANTS = ("inf", "nan", "pi", "newaxis", "float32", "float64", "int64", "bool_")
SCALARS = (bool, int, float, str, type(None), type, np.generic, np.dtype, slice, type(Ellipsis))


class FakeArray:
    """An array on a fake device; made by the functions of ``module(name)``."""

    __array_ufunc__ = None  # numpy_array + fake_array must fail, not loop over elements
    __hash__ = None

    def __init__(self, data, xp):
        self._data = np.asarray(data)
        self._xp = xp
        xp.cuda.allocate(self._data.nbytes)

    def __array__(self, *args, **kwargs):
        raise TypeError("implicit conversion of a fake device array to a NumPy array")

    def __array_namespace__(self, api_version=None):
        return self._xp

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __len__(self):
        return len(self._data)

    def __float__(self):
        return float(self._data)

    def __int__(self):
        return int(self._data)

    def __bool__(self):
        return bool(self._data)

    def __repr__(self):
        return f"FakeArray({self._data!r}, {self._xp.__name__})"

    def __getitem__(self, key):
        return _wrap(self._data[_unwrap(key, self._xp)], self._xp)

    def __setitem__(self, key, value):
        self._data[_unwrap(key, self._xp)] = _unwrap(value, self._xp)

    def get(self):
        """The explicit move to the host."""
        self._xp.cuda.log.append(("get", self.shape))
        return self._data.copy()

    def set(self, host, stream):
        """A copy from the host that a stream makes when it comes to it."""
        assert host.base is not None, "only pinned memory is copied beside other work"
        stream.do(("copy", self.shape), lambda: np.copyto(self._data, host))

    @property
    def T(self):
        return _wrap(self._data.T, self._xp)

    @property
    def shape(self):
        return self._data.shape

    @property
    def dtype(self):
        return self._data.dtype

    @property
    def ndim(self):
        return self._data.ndim

    @property
    def size(self):
        return self._data.size

    @property
    def nbytes(self):
        return self._data.nbytes


def _wrap(value, xp):
    """Results stay on the device, scalars included, as CuPy's do."""
    if isinstance(value, tuple):
        return tuple(_wrap(v, xp) for v in value)
    return FakeArray(value, xp) if isinstance(value, np.ndarray | np.generic) else value


def _unwrap(value, xp):
    if isinstance(value, FakeArray):
        if value._xp is not xp:
            raise TypeError(f"an array of {value._xp.__name__} in a call of {xp.__name__}")
        return value._data
    if isinstance(value, list | tuple):
        plain = tuple if isinstance(value, tuple) else list
        return plain(_unwrap(v, xp) for v in value)
    if isinstance(value, SCALARS):
        return value
    raise TypeError(f"Unsupported type {type(value)} in a call of {xp.__name__}")


def _call(function, xp):
    def call(*args, **kwargs):
        out = kwargs.get("out")
        args = tuple(_unwrap(a, xp) for a in args)
        kwargs = {key: _unwrap(value, xp) for key, value in kwargs.items()}
        result = function(*args, **kwargs)
        return out if out is not None else _wrap(result, xp)

    call.__name__ = getattr(function, "__name__", "call")
    return call


def _method(name):
    def method(self, *args, **kwargs):
        return _call(getattr(type(self._data), name), self._xp)(self, *args, **kwargs)

    return method


def _in_place(name):
    def method(self, other):
        _call(getattr(np.ndarray, name), self._xp)(self, other)
        return self

    return method


for _name in _BINARY.split():
    setattr(FakeArray, f"__{_name}__", _method(f"__{_name}__"))
    setattr(FakeArray, f"__r{_name}__", _method(f"__r{_name}__"))
    setattr(FakeArray, f"__i{_name}__", _in_place(f"__i{_name}__"))
for _name in _PLAIN.split():
    setattr(FakeArray, f"__{_name}__", _method(f"__{_name}__"))
for _name in _METHODS.split():
    setattr(FakeArray, _name, _method(_name))


def _solve_triangular(a, b, trans=0, lower=False):
    import scipy.linalg

    return scipy.linalg.solve_triangular(a, b, trans=trans, lower=lower)


def _cholesky(a):
    """Like CuPy's default: NaN where NumPy would raise."""
    try:
        return np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        return np.full_like(a, np.nan)


def _solve(a, b):
    """Like CuPy's default: NaN where NumPy would raise; b has as many dimensions as a."""
    assert a.ndim == b.ndim, "modules differ in what they make of other shapes"
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        return np.full_like(b, np.nan)


def _asarray(xp):
    def asarray(value, dtype=None):
        # the explicit move to the device
        if not isinstance(value, FakeArray):
            xp.cuda.log.append(("asarray", np.shape(value)))
        data = value._data if isinstance(value, FakeArray) else np.array(value)
        return FakeArray(data if dtype is None else data.astype(dtype), xp)

    return asarray


class OutOfMemoryError(MemoryError):
    """As CuPy's, which does not survive pickling either."""

    def __init__(self, size, total, limit=0):
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,}).")


class CUDARuntimeError(RuntimeError):
    """As CuPy's."""


class Event:
    """A mark on a stream: what was to be done before it."""

    def __init__(self, stream, place):
        self._stream, self._place = stream, place

    def synchronize(self):
        """Have the stream do all up to here."""
        self._stream.run(self._place)


class Stream:
    """Does nothing until somebody waits for it, as a slow device would."""

    def __init__(self, cuda, name):
        self._cuda, self._name, self._queue, self._done = cuda, name, [], 0

    def __enter__(self):
        self._cuda.current.append(self)

    def __exit__(self, *_):
        self._cuda.current.pop()

    def do(self, what, how):
        self._cuda.log.append((self._name, *what))
        self._queue.append(how)

    def run(self, place):
        while self._done < place:
            self._queue[self._done]()
            self._done += 1

    def record(self):
        self._cuda.log.append((self._name, "record", len(self._queue)))
        return Event(self, len(self._queue))

    def wait_event(self, event):
        self._cuda.log.append((self._name, "wait for", event._stream._name, event._place))
        event.synchronize()  # all that computes here does so at once

    def synchronize(self):
        self.run(len(self._queue))


class Device:
    """The only one."""

    id = 0

    def __init__(self, cuda):
        self.mem_info = cuda.free, cuda.total

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Pool:
    """A memory pool that keeps nothing."""

    def __init__(self, cuda):
        self._cuda = cuda

    def malloc(self, size):
        """As an allocator."""

    def free_bytes(self):
        return 0

    def used_bytes(self):
        return 0

    def get_limit(self):
        return 0

    def free_all_blocks(self):
        self._cuda.log.append(("free all blocks",))


class FakeCuda:
    """The part of ``cupy.cuda`` that is about devices, memory and streams, with a log.

    An array of more than ``limit`` bytes does not fit.
    """

    def __init__(self):
        self.log, self.limit, self.free, self.total = [], None, 1 << 30, 1 << 30
        self.pool = Pool(self)
        self.null = Stream(self, "null")
        self.current = [self.null]
        self.runtime = types.SimpleNamespace(
            getDeviceCount=lambda: 1, CUDARuntimeError=CUDARuntimeError
        )
        self.memory = types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError)

    def allocate(self, size):
        if self.limit is not None and size > self.limit:
            raise OutOfMemoryError(size, 0)

    def get_allocator(self):
        return self.pool.malloc

    def get_current_stream(self):
        return self.null

    def alloc_pinned_memory(self, size):
        self.log.append(("pinned", size))
        return bytearray(size)

    def Device(self):
        return Device(self)

    def Stream(self, non_blocking):
        assert non_blocking, "a blocking stream takes turns with the null stream"
        return Stream(self, "copying")


def module(name):
    """A fake array module; arrays of different modules do not mix."""
    xp = types.ModuleType(f"fakearray_{name}")
    xp.__spec__ = importlib.machinery.ModuleSpec(xp.__name__, None)
    xp.cuda = FakeCuda()
    xp.get_default_memory_pool = lambda: xp.cuda.pool
    xp.get_default_pinned_memory_pool = lambda: xp.cuda.pool
    for function in _FUNCTIONS.split():
        setattr(xp, function, _call(getattr(np, function), xp))
    for constant in CONSTANTS:
        setattr(xp, constant, getattr(np, constant))
    xp.asarray = _asarray(xp)
    xp.array = _asarray(xp)
    xp.ndarray = FakeArray
    xp.finfo = np.finfo
    xp.linalg = types.SimpleNamespace(
        cholesky=_call(_cholesky, xp),
        solve=_call(_solve, xp),
        solve_triangular=_call(_solve_triangular, xp),
    )
    return xp
