"""Stationary kernels in one pass on a GPU: tiles, their gradients, and sums that keep no tile.

A tile made by array functions is written and read once per function; here an entry is computed in
registers and leaves them as a value or as part of a sum.  The source below is compiled for each
formula, type and number of features if the array module can compile, which NumPy cannot.  Sums and
products of kernels are made of such parts by array functions, by choice: their number is unbounded,
and compiling each would take longer than it saves.

Letters: features U (n, q) and W (m, q), so r^2 = |u - w|^2 by differences, free of cancellation;
K (n, m) values and D = K_bar dk/dr^2; S weights (a, t) of functions over points, F (t, n).  Sums in
the inputs' type have 64 terms or one thread's share of a row; these are added up in float64, in an
order that depends on the shapes alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from daskgp.arrays import backend
from daskgp.arrays.backend import to_host
from daskgp.typing import Array

MOST_FEATURES = 24
"""Most features that a thread keeps in registers; kernels with more use array functions."""
MOST_COLUMNS = 8
"""Most dense functions summed without a tile; for more, a tile times a matrix is faster."""
THREADS = 128
"""Threads per block; a power of two."""
PIECE = 64
"""Terms that are added in the inputs' type."""
PART_BYTES = 1 << 26
"""Most bytes of partial sums."""
MOST_BLOCKS = 65_535
"""Most blocks along the second axis of a grid."""

FORMULAS = {
    "rbf": """
    *value = v * EXP((real)-0.5 * r2);
    *slope = (real)-0.5 * *value;
    *by_shape = 0;""",
    "matern12": """
    real r = SQRT(r2);
    *value = v * EXP(-r);
    *slope = r > 0 ? (real)-0.5 * *value / r : 0;
    *by_shape = 0;""",
    "matern32": """
    real s = SQRT((real)3 * r2), e = v * EXP(-s);
    *value = (1 + s) * e;
    *slope = (real)-1.5 * e;
    *by_shape = 0;""",
    "matern52": """
    real s = SQRT((real)5 * r2), e = v * EXP(-s);
    *value = (1 + s + s * s / 3) * e;
    *slope = (real)(-5.0 / 6.0) * (1 + s) * e;
    *by_shape = 0;""",
    "rational_quadratic": """
    real b = 1 + (real)0.5 * r2 / shape, l = LOG(b);
    *value = v * EXP(-shape * l);
    *slope = (real)-0.5 * *value / b;
    *by_shape = -shape * *value * (1 / b - 1 + l);""",
}
"""C code of the value and its derivatives by r^2 and the logarithm of the shape."""

SOURCE = r"""
HELPER void evaluate(real r2, real v, real shape, real *value, real *slope, real *by_shape)
{@FORMULA@
}

HELPER real squared(const real *u, const real *w)
{
    real r2 = 0;
    for (int k = 0; k < Q; ++k) { real d = u[k] - w[k]; r2 += d * d; }
    return r2;
}

/* K (n, m) of U (n, Q) and W' (Q, m): one thread per column, some rows per block. */
ENTRY void tile(const real *U, const real *Wt, real *K, long long n, long long m, real v,
                real shape)
{
    long long j = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (j >= m) return;
    real w[Q];
    for (int k = 0; k < Q; ++k) w[k] = Wt[k * m + j];
    for (long long first = (long long)blockIdx.y * 8; first < n; first += gridDim.y * 8LL)
        for (long long i = first; i < first + 8 && i < n; ++i) {
            real value, slope, by_shape;
            evaluate(squared(U + i * Q, w), v, shape, &value, &slope, &by_shape);
            K[i * m + j] = value;
        }
}

/* Per row, sums over columns of 2 D (u - w), K_bar K and K_bar dk/dlog shape: (n, Q + 2). */
ENTRY void pull_rows(const real *U, const real *Wt, const real *K_bar, double *out, long long n,
                     long long m, real v, real shape)
{
    SHARED double sums[(Q + 2) * THREADS];
    long long i = blockIdx.x;
    int t = threadIdx.x;
    real u[Q], part[Q + 2];
    for (int k = 0; k < Q; ++k) u[k] = U[i * Q + k];
    for (int k = 0; k < Q + 2; ++k) part[k] = 0;
    for (long long j = t; j < m; j += THREADS) {
        real d[Q], r2 = 0, value, slope, by_shape, bar = K_bar[i * m + j];
        for (int k = 0; k < Q; ++k) { d[k] = u[k] - Wt[k * m + j]; r2 += d[k] * d[k]; }
        evaluate(r2, v, shape, &value, &slope, &by_shape);
        for (int k = 0; k < Q; ++k) part[k] += 2 * bar * slope * d[k];
        part[Q] += bar * value;
        part[Q + 1] += bar * by_shape;
    }
    for (int k = 0; k < Q + 2; ++k) sums[k * THREADS + t] = part[k];
    for (int half = THREADS / 2; half > 0; half /= 2) {
        BARRIER();
        if (t < half)
            for (int k = 0; k < Q + 2; ++k) sums[k * THREADS + t] += sums[k * THREADS + t + half];
    }
    if (t == 0)
        for (int k = 0; k < Q + 2; ++k) out[i * (Q + 2) + k] = sums[k * THREADS];
}

/* Per column, sums over the rows of a part of 2 D (w - u): (parts, Q, m). */
ENTRY void pull_columns(const real *U, const real *Wt, const real *K_bar, double *out, long long n,
                        long long m, long long rows, real v, real shape)
{
    long long j = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (j >= m) return;
    long long stop = (blockIdx.y + 1LL) * rows;
    if (stop > n) stop = n;
    real w[Q];
    double total[Q];
    for (int k = 0; k < Q; ++k) { w[k] = Wt[k * m + j]; total[k] = 0; }
    for (long long first = blockIdx.y * rows; first < stop; first += PIECE) {
        real part[Q];
        for (int k = 0; k < Q; ++k) part[k] = 0;
        for (long long i = first; i < first + PIECE && i < stop; ++i) {
            real d[Q], r2 = 0, value, slope, by_shape, bar = K_bar[i * m + j];
            for (int k = 0; k < Q; ++k) { d[k] = w[k] - U[i * Q + k]; r2 += d[k] * d[k]; }
            evaluate(r2, v, shape, &value, &slope, &by_shape);
            for (int k = 0; k < Q; ++k) part[k] += 2 * bar * slope * d[k];
        }
        for (int k = 0; k < Q; ++k) total[k] += part[k];
    }
    for (int k = 0; k < Q; ++k) out[(blockIdx.y * (long long)Q + k) * m + j] = total[k];
}

/* Sums over runs of points of S' K(U, W): (runs, T, n), points in shared memory, several rows per
   thread, which reads a point once for all of them. */
ENTRY void contract(const real *U, const real *S, const long long *starts, const real *Wt,
                    double *out, long long runs, long long n, real v, real shape)
{
    SHARED real u[PIECE * Q];
    SHARED real s[PIECE * T];
    long long x = (long long)blockIdx.x * (THREADS * ROWS) + threadIdx.x;
    real w[ROWS][Q];
    for (int r = 0; r < ROWS; ++r)
        for (int k = 0; k < Q; ++k) w[r][k] = x + r * THREADS < n ? Wt[k * n + x + r * THREADS] : 0;
    for (long long g = blockIdx.y; g < runs; g += gridDim.y) {
        double total[ROWS][T];
        for (int r = 0; r < ROWS; ++r)
            for (int c = 0; c < T; ++c) total[r][c] = 0;
        for (long long first = starts[g]; first < starts[g + 1]; first += PIECE) {
            int count = starts[g + 1] - first < PIECE ? (int)(starts[g + 1] - first) : PIECE;
            BARRIER();
            for (int i = threadIdx.x; i < count * Q; i += THREADS) u[i] = U[first * Q + i];
            for (int i = threadIdx.x; i < count * T; i += THREADS) s[i] = S[first * T + i];
            BARRIER();
            real part[ROWS][T];
            for (int r = 0; r < ROWS; ++r)
                for (int c = 0; c < T; ++c) part[r][c] = 0;
            for (int i = 0; i < count; ++i)
                for (int r = 0; r < ROWS; ++r) {
                    real value, slope, by_shape;
                    evaluate(squared(u + i * Q, w[r]), v, shape, &value, &slope, &by_shape);
                    for (int c = 0; c < T; ++c) part[r][c] += s[i * T + c] * value;
                }
            for (int r = 0; r < ROWS; ++r)
                for (int c = 0; c < T; ++c) total[r][c] += part[r][c];
        }
        for (int r = 0; r < ROWS; ++r)
            if (x + r * THREADS < n)
                for (int c = 0; c < T; ++c) out[(g * T + c) * n + x + r * THREADS] = total[r][c];
    }
}

/* Per point, sums over the rows of a part of F_bar K for its T functions, D (u - w)^2 and the
   shape's: (parts, T + Q + 1, a), one thread per point, rows in shared memory. */
ENTRY void learn(const real *Ut, const real *S, const int *column, const real *W,
                 const real *F_bar, double *out, long long a, long long n, long long rows, real v,
                 real shape)
{
    SHARED real w[PIECE * Q];
    long long p = (long long)blockIdx.x * THREADS + threadIdx.x;
    long long stop = (blockIdx.y + 1LL) * rows;
    if (stop > n) stop = n;
    real u[Q], s[T];
    double total[T + Q + 1];
    for (int k = 0; k < Q; ++k) u[k] = p < a ? Ut[k * a + p] : 0;
    for (int c = 0; c < T; ++c) s[c] = p < a ? S[p * T + c] : 0;
    for (int k = 0; k < T + Q + 1; ++k) total[k] = 0;
    const real *bars = F_bar + (p < a ? column[p] * n : 0);
    for (long long first = blockIdx.y * rows; first < stop; first += PIECE) {
        int count = stop - first < PIECE ? (int)(stop - first) : PIECE;
        BARRIER();
        for (int i = threadIdx.x; i < count * Q; i += THREADS) w[i] = W[first * Q + i];
        BARRIER();
        real part[T + Q + 1];
        for (int k = 0; k < T + Q + 1; ++k) part[k] = 0;
        for (int i = 0; i < count; ++i) {
            real d[Q], r2 = 0, bar = 0, value, slope, by_shape;
            for (int k = 0; k < Q; ++k) { d[k] = u[k] - w[i * Q + k]; r2 += d[k] * d[k]; }
            evaluate(r2, v, shape, &value, &slope, &by_shape);
            for (int c = 0; c < T; ++c) {
                real f = bars[c * n + first + i];
                part[c] += f * value;
                bar += s[c] * f;
            }
            real D = bar * slope;
            for (int k = 0; k < Q; ++k) part[T + k] += D * d[k] * d[k];
            part[T + Q] += bar * by_shape;
        }
        for (int k = 0; k < T + Q + 1; ++k) total[k] += part[k];
    }
    if (p < a)
        for (int k = 0; k < T + Q + 1; ++k)
            out[(blockIdx.y * (long long)(T + Q + 1) + k) * a + p] = total[k];
}
"""

CUDA = """
#define ENTRY extern "C" __global__
#define HELPER __device__ __forceinline__
#define SHARED __shared__
#define BARRIER __syncthreads
"""
"""Definitions of the words in capitals on a GPU."""


def source(formula: str, dtype: Any, features: int, columns: int = 1) -> str:
    """Return the C source of all functions for a formula, a type, q features and t functions."""
    single = np.dtype(dtype) == np.float32
    names = {
        "real": "float" if single else "double",
        **{name.upper(): name + "f" * single for name in ("exp", "sqrt", "log")},
        "Q": features,
        "T": columns,
        "ROWS": _rows_of_thread(dtype, features, columns),
        "THREADS": THREADS,
        "PIECE": PIECE,
    }
    defined = "".join(f"#define {name} {value}\n" for name, value in names.items())
    return defined + SOURCE.replace("@FORMULA@", FORMULAS[formula])


@cache
def _compiled(xp: Any, name: str, sizes: tuple[int, int], *settings: Any) -> Any:
    """Compile a function of ``source(*settings)``; the source depends on ``sizes`` too."""
    return backend.device_source(xp, CUDA + source(*settings)).get_function(name)


class Pulled(NamedTuple):
    """Gradients with respect to log variance (the sum of K_bar K), log shape and both features."""

    variance: float
    shape: float
    U: Array
    W: Array


class Learned(NamedTuple):
    """Gradients with respect to the weights (a, t) and log shape, and sums per feature.

    The sums ``squares`` (q,) are those of D (u - w)^2.
    """

    weights: Array
    squares: np.ndarray
    shape: float


@dataclass(frozen=True)
class Fused:
    """Stationary formula with its variance and shape, on arrays of one device module."""

    xp: Any
    formula: str
    variance: float
    shape: float

    def tile(self, U: Array, W: Array, K: Array) -> np.ndarray:
        """Compute K (n, m) in its own memory, or copy it there if that is not contiguous."""
        (n, q), m = U.shape, len(W)
        values = K if K.flags.c_contiguous else self.xp.empty(K.shape, K.dtype)
        if values.size:
            grid = _blocks(m), min(-(-n // 8), MOST_BLOCKS)
            arrays = self._rows(U), self._columns(W), values
            self._launch("tile", grid, U.dtype, q, 1, *arrays, n, m)
        if values is not K:
            K[...] = values
        return K

    def pull(self, U: Array, W: Array, K_bar: Array) -> Pulled:
        """Return the gradient of sum(K_bar K) by features and parameters, recomputing K."""
        xp, (n, q), m = self.xp, U.shape, len(W)
        if not n or not m:
            return Pulled(0.0, 0.0, xp.zeros_like(U), xp.zeros_like(W))
        arrays = self._rows(U), self._columns(W), xp.ascontiguousarray(K_bar)
        by_rows = xp.empty((n, q + 2))
        self._launch("pull_rows", (n, 1), U.dtype, q, 1, *arrays, by_rows, n, m)
        rows = _part(n, 8 * q * m)
        by_columns = xp.empty((-(-n // rows), q, m))
        grid = _blocks(m), len(by_columns)
        self._launch("pull_columns", grid, U.dtype, q, 1, *arrays, by_columns, n, m, rows)
        variance, shape = to_host(by_rows[:, q:].sum(axis=0)).tolist()
        U_bar, W_bar = by_rows[:, :q].astype(U.dtype), by_columns.sum(axis=0).T.astype(W.dtype)
        return Pulled(variance, shape, U_bar, W_bar)

    def contract(self, U: Array, S: Array, starts: np.ndarray, W: Array) -> np.ndarray:
        """Return sums (runs, t, n) over runs of points, which begin at ``starts`` (runs + 1,)."""
        xp, (_, q), t, n, runs = self.xp, U.shape, S.shape[1], len(W), len(starts) - 1
        out = xp.empty((runs, t, n))
        if out.size:
            grid = _blocks(-(-n // _rows_of_thread(U.dtype, q, t))), min(runs, MOST_BLOCKS)
            offsets = xp.asarray(starts.astype(np.int64))
            arrays = self._rows(U), self._rows(S), offsets, self._columns(W), out
            self._launch("contract", grid, U.dtype, q, t, *arrays, runs, n)
        return out

    def learn(self, U: Array, S: Array, column: np.ndarray, W: Array, F_bar: Array) -> Learned:
        """Return the gradient of sum(F_bar F) by weights and parameters.

        The functions of point i are the rows of F_bar (., n) from ``column[i]`` on.
        """
        xp, (a, q), t, n = self.xp, U.shape, S.shape[1], len(W)
        if not a or not n:
            return Learned(xp.zeros(S.shape), np.zeros(q), 0.0)
        rows = _part(n, 8 * a * (t + q + 1), least=16 * PIECE)
        out = xp.empty((-(-n // rows), t + q + 1, a))
        first = xp.asarray(column.astype(np.int32))
        arrays = self._columns(U), self._rows(S), first, self._rows(W), self._rows(F_bar), out
        self._launch("learn", (_blocks(a), len(out)), U.dtype, q, t, *arrays, a, n, rows)
        total = out.sum(axis=0)
        numbers = to_host(total[t:].sum(axis=1))
        return Learned(total[:t].T, numbers[:q], float(numbers[q]))

    def _rows(self, A: Array) -> np.ndarray:
        return self.xp.ascontiguousarray(A)

    def _columns(self, A: Array) -> np.ndarray:
        """Return A' contiguous in memory: neighbouring threads read neighbouring entries."""
        return self.xp.ascontiguousarray(A.T)

    def _launch(
        self, name: str, grid: tuple[int, int], dtype: Any, q: int, t: int, *arguments: Any
    ) -> None:
        real = np.dtype(dtype).type
        sized = tuple(np.int64(a) if isinstance(a, int) else a for a in arguments)
        settings = self.formula, np.dtype(dtype).name, q, t
        function = _compiled(self.xp, name, (THREADS, PIECE), *settings)
        function(grid, (THREADS,), (*sized, real(self.variance), real(self.shape)))


def fused(xp: Any, formula: str | None, variance: float, shape: float, q: int) -> Fused | None:
    """Return the formula if the array module compiles it and q features fit, else None."""
    if formula is None or not 0 < q <= MOST_FEATURES or not backend.compiles(xp):
        return None
    return Fused(xp, formula, variance, shape)


def _rows_of_thread(dtype: Any, features: int, columns: int) -> int:
    """Return how many rows' features and sums fit in a thread's registers, four at most."""
    words = (np.dtype(dtype).itemsize // 4) * (features + columns) + 2 * columns
    return max(1, min(4, 48 // words))


def _blocks(size: int) -> int:
    return -(-size // THREADS)


def _part(n: int, row_bytes: int, least: int = 4 * PIECE) -> int:
    """Return the rows per part that keep the partial sums, ``row_bytes`` per part, small."""
    most = max(1, min(MOST_BLOCKS, PART_BYTES // max(row_bytes, 1)))
    return max(least, -(-n // most))
