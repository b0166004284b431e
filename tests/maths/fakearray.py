"""A strict stand-in for CuPy: NumPy inside, but nothing that a device array would refuse.

It raises on implicit conversion to the host, on mixing with NumPy arrays or with another fake
device, and on any function or argument that CuPy lacks.  It is stricter than CuPy where that would
wait for the device in passing: ``float(a)``, ``bool(a)`` and ``int(a)`` raise, ``a.get()`` alone
moves, and ``xp.moves`` counts how often.  ``module("a")`` and ``module("b")`` are two devices.
"""

import types

import numpy as np
import scipy.linalg
import scipy.special

from tests.maths import fakestreams

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
SPECIAL = """
    digamma erf erfc erfcx erfinv exp1 expit gamma gammaln log_expit log_ndtr logit ndtr ndtri psi
    zeta
"""
LACKING = {"casting", "initial", "kind", "like", "optimize", "order", "subok", "where"}
"""Arguments that CuPy's functions lack or that differ there."""
SCALARS = (bool, int, float, str, type(None), type, np.generic, np.dtype, slice, type(Ellipsis))


class FakeArray:
    """An array on a fake device; made by the functions of ``module(name)``."""

    __array_ufunc__ = None  # numpy_array + fake_array must fail, not loop over elements
    __hash__ = None

    def __init__(self, data, xp):
        self._data = np.asarray(data)
        self._xp = xp

    def __array__(self, *args, **kwargs):
        raise TypeError("implicit conversion of a fake device array to a NumPy array")

    def __array_namespace__(self, api_version=None):
        return self._xp

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __len__(self):
        return len(self._data)

    def _refuse(self, *args):
        raise TypeError("a number of a fake device array wanted in passing: use backend.number")

    __float__ = __int__ = __bool__ = __index__ = __complex__ = item = tolist = _refuse

    def __repr__(self):
        return f"FakeArray({self._data!r}, {self._xp.__name__})"

    def __getitem__(self, key):
        return _wrap(self._data[_unwrap(key, self._xp)], self._xp)

    def __setitem__(self, key, value):
        self._data[_unwrap(key, self._xp)] = _unwrap(value, self._xp)

    def get(self):
        """The explicit move to the host."""
        self._xp.moves += 1
        return self._data.copy()

    @property
    def flags(self):
        """As CuPy has them: nothing says whether an array may be written."""
        f = self._data.flags
        return types.SimpleNamespace(
            c_contiguous=f.c_contiguous, f_contiguous=f.f_contiguous, owndata=f.owndata
        )

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
        if lacking := LACKING & kwargs.keys():
            raise TypeError(f"{function.__name__} has no {sorted(lacking)} on a device")
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


def _solve_triangular(a, b, trans=0, lower=False, overwrite_b=False):
    """Like cupyx's: the type of the matrix decides, and memory that may be used is used."""
    assert a.ndim == 2, "CuPy 13 solves with one matrix at a time"
    given, a = b, _real(a)
    found = scipy.linalg.solve_triangular(a, b.astype(a.dtype), trans=trans, lower=lower)
    if not (overwrite_b and given.flags.f_contiguous and given.dtype == a.dtype):
        return np.asfortranarray(found)
    given[...] = found
    return given


def _matmul(a, b, out=None):
    """Like CuPy's: ``out`` is one piece of memory and of the type of the product."""
    if out is not None:
        assert out.flags.c_contiguous, "Output array must be C-contiguous"
        assert out.dtype == np.result_type(a.dtype, b.dtype), "Not supported dtype combination."
    return np.matmul(a, b, out=out)


def _empty(like):
    """NaN, as memory may hold that was used before."""

    def empty(*args, **kwargs):
        found = like(*args, **kwargs)
        found.fill(np.nan if found.dtype.kind in "fc" else 1)
        return found

    return empty


def _real(a):
    """cuSOLVER and cuBLAS know two types, and refuse matrices without an entry."""
    assert a.size, "cuBLAS and cuSOLVER refuse an empty matrix"
    return a if a.dtype in (np.float32, np.float64) else a.astype(np.float64)


def _cholesky(a):
    """Like CuPy's default: NaN where NumPy would raise."""
    stack = _real(a).reshape(-1, *a.shape[-2:])
    found = np.full_like(stack, np.nan)
    for into, matrix in zip(found, stack, strict=True):
        try:
            into[...] = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            continue
    return found.reshape(a.shape)


def _solve(a, b):
    """Like CuPy's default: NaN where NumPy would raise; b has as many dimensions as a."""
    assert a.ndim == b.ndim, "modules differ in what they make of other shapes"
    try:
        return np.linalg.solve(_real(a), b)
    except np.linalg.LinAlgError:
        return np.full_like(b, np.nan)


def _einsum(*args, **kwargs):
    """CuPy promises no view: writing to what einsum gives changes nothing else."""
    return np.array(np.einsum(*args, **kwargs))


def _asarray(xp):
    def asarray(value, dtype=None):
        # the explicit move to the device
        data = _unwrap(value, xp) if isinstance(value, FakeArray) else np.array(value)
        data = data if dtype is None else data.astype(dtype, copy=False)
        if data.dtype.kind not in "biufc":
            raise ValueError(f"Unsupported dtype {data.dtype}")
        return FakeArray(data, xp)

    return asarray


def module(name):
    """A fake array module; arrays of different modules do not mix."""
    xp = types.ModuleType(f"fakearray_{name}")
    xp.moves = 0
    for function in _FUNCTIONS.split():
        setattr(xp, function, _call(getattr(np, function), xp))
    for constant in CONSTANTS:
        setattr(xp, constant, getattr(np, constant))
    xp.asarray = _asarray(xp)
    xp.array = _asarray(xp)
    xp.einsum = _call(_einsum, xp)
    xp.matmul = _call(_matmul, xp)
    xp.empty, xp.empty_like = _call(_empty(np.empty), xp), _call(_empty(np.empty_like), xp)
    xp.ndarray = FakeArray
    xp.finfo = np.finfo
    xp.linalg = types.SimpleNamespace(
        cholesky=_call(_cholesky, xp),
        solve=_call(_solve, xp),
        solve_triangular=_call(_solve_triangular, xp),
    )
    functions = {name: getattr(scipy.special, name) for name in SPECIAL.split()}
    xp.special = types.SimpleNamespace(**{k: _call(f, xp) for k, f in functions.items()})
    fakestreams.add(xp)
    return xp
