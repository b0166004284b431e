"""Inducing functions: eq. 19 entry by entry, every gradient by differences, and one covariance."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskgp.arrays.backend import to_host
from daskgp.errors import DeviceError, InputError, SettingError
from daskgp.kernels import RBF, Constant, Linear, Matern32, Matern52, radial, weights
from daskgp.models.variational import multiscale
from daskgp.models.variational.basis import KernelBasis, make
from daskgp.models.variational.inducing_functions import Points, Through
from daskgp.models.variational.multiscale import Multiscale
from daskgp.testing import central_differences

ARD = (0.8, 2.0, 1.3)
SMOOTHED = {
    "ard": Multiscale(RBF(ARD, 1.7)),
    "isotropic": Multiscale(RBF(1.4, 0.6)),
    "unresolved": Multiscale(RBF()),
}
KINDS = {
    **SMOOTHED,
    "kernel rbf": KernelBasis(RBF(ARD, 1.7)),
    "kernel matern": KernelBasis(Matern32(0.9, 2.0, active_dims=[2])),
    "kernel sum": KernelBasis(Matern52(ARD) + 0.3 * Linear(0.4) + Constant(0.5)),
}
METHODS = ["values", "gram", "mixed", "among"]
smoothed = pytest.mark.parametrize("of", SMOOTHED.values(), ids=SMOOTHED)
everyone = pytest.mark.parametrize("of", KINDS.values(), ids=KINDS)
methods = pytest.mark.parametrize("method", METHODS)


@pytest.fixture
def small_patches(monkeypatch):
    """Tiles that few points and rows fill, so that small problems are cut."""
    monkeypatch.setattr(weights, "DENSE_PATCH", (3, 4))
    monkeypatch.setattr(weights, "DEVICE_PATCH", (5, 5))
    monkeypatch.setattr(multiscale, "SQUARE", 3)
    monkeypatch.setattr(multiscale, "DEVICE_SQUARE", 4)
    monkeypatch.setattr(radial, "_STRIP", 1)


def points(rng, of, m, d=3, spread=0.5):
    scales = spread * rng.normal(size=(m, d)) if isinstance(of, Multiscale) else np.empty((0, d))
    return Points(rng.normal(size=(m, d)), scales)


class Problem:
    """Arguments of every method, and of its objective: the sum of a cotangent times its result."""

    def __init__(self, rng, of, m=5, q=4, n=6, t=2, d=3, xp=np, dtype=np.float64):
        def sent(array):
            return xp.asarray(array.astype(dtype))

        self.of = of
        self.P, self.Q = (Points(*map(sent, points(rng, of, size, d))) for size in (m, q))
        self.X, self.weights = sent(rng.normal(size=(n, d))), sent(rng.normal(size=(m, t)))
        shapes = {"values": (n, m), "gram": (m, m), "mixed": (t, n), "among": (t, q)}
        self.bars = {name: sent(rng.normal(size=shape)) for name, shape in shapes.items()}

    def value(self, method, of=None, P=None, weights=None, Q=None):
        of, P, Q = of or self.of, P or self.P, Q or self.Q
        S = self.weights if weights is None else weights
        if method == "values":
            return of.values(P, self.X)[0]
        if method == "gram":
            return of.gram(P)[0]
        return of.mixed(P, S, self.X) if method == "mixed" else of.among(P, S, Q)

    def through(self, method):
        of, bar = self.of, self.bars[method]
        if method == "values":
            return of.values(self.P, self.X)[1](bar)
        if method == "gram":
            return of.gram(self.P)[1](bar)
        if method == "mixed":
            return of.mixed_vjp(self.P, self.weights, self.X, bar)
        return of.among_vjp(self.P, self.weights, self.Q, bar)

    def objective(self, method, **changed):
        return float((self.bars[method] * self.value(method, **changed)).sum())

    def by_differences(self, method):
        """The gradient, entry by entry; by second points and weights only where there are any."""

        def by(at, change):
            return central_differences(lambda v: self.objective(method, **change(v)), at)

        P, Q, kind, kernel = self.P, self.Q, type(self.of), self.of.kernel
        by_log = by(kernel.log_parameters, lambda v: {"of": kind(kernel.with_log_parameters(v))})
        first = Points(
            by(P.inputs, lambda v: {"P": Points(v, P.log_scales)}),
            by(P.log_scales, lambda v: {"P": Points(P.inputs, v)}),
        )
        others = None
        if method == "among":
            others = Points(
                by(Q.inputs, lambda v: {"Q": Points(v, Q.log_scales)}),
                by(Q.log_scales, lambda v: {"Q": Points(Q.inputs, v)}),
            )
        takes = method in ("mixed", "among")
        found = by(self.weights, lambda v: {"weights": v}) if takes else None
        return Through(by_log, first, others, found)


def flat(through):
    """The arrays of a gradient by name, on the host."""
    arrays = {"log_parameters": through.log_parameters, "weights": through.weights}
    for name in ("points", "others"):
        part = getattr(through, name)
        if part is not None:
            arrays |= {f"{name}.{field}": part._asdict()[field] for field in part._fields}
    return {name: to_host(array) for name, array in arrays.items() if array is not None}


def assert_same(found, wanted, rtol=1e-7, atol=1e-7):
    found, wanted = flat(found), flat(wanted)
    assert found.keys() == wanted.keys()
    for name, array in found.items():
        np.testing.assert_allclose(array, wanted[name], rtol, atol, err_msg=name)


def eq19(kernel, P, Q):
    """[DGP] eq. 19 by its definition, unit amplitude."""
    d = P.inputs.shape[1]
    s = np.exp(kernel.log_parameters[1:]) * np.ones(d)
    C = np.ones((len(P.inputs), len(Q.inputs)))
    for a in range(len(C)):
        for b in range(C.shape[1]):
            for j in range(d):
                one, other = (
                    s[j] * math.exp(P.log_scales[a, j]),
                    s[j] * math.exp(Q.log_scales[b, j]),
                )
                total = one**2 + other**2
                gap = P.inputs[a, j] - Q.inputs[b, j]
                C[a, b] *= math.sqrt(2 * one * other / total) * math.exp(-(gap**2) / total)
    return C


def latent(X):
    """The functions of rows whose lengths are the kernel's own."""
    return Points(X, np.zeros_like(X))


# --- values


@pytest.mark.usefixtures("small_patches")
@smoothed
def test_values_are_equation_19(xp, rng, of):
    here = Problem(rng, of, m=10, q=7, n=19)
    P, Q, X, S, rho = here.P, here.Q, here.X, here.weights, math.sqrt(of.kernel.variance or 1.0)
    wanted = {
        "values": rho * eq19(of.kernel, latent(X), P),
        "gram": eq19(of.kernel, P, P),
        "mixed": rho * S.T @ eq19(of.kernel, P, latent(X)),
        "among": S.T @ eq19(of.kernel, P, Q),
    }
    there = Problem(np.random.default_rng(20), of, m=10, q=7, n=19, xp=xp)
    for method, array in wanted.items():
        found = there.value(method)
        assert isinstance(found, xp.ndarray)
        np.testing.assert_allclose(to_host(found), array, rtol=1e-11, atol=1e-13)


@methods
@pytest.mark.parametrize("kernel", [RBF(ARD), RBF(1.4), RBF()], ids=["ard", "isotropic", "none"])
def test_functions_of_scale_one_are_the_latent_function(rng, method, kernel):
    here = Problem(rng, Multiscale(kernel))
    here.P, here.Q = latent(here.P.inputs), latent(here.Q.inputs)
    plain = Problem(np.random.default_rng(20), KernelBasis(kernel))
    plain.P, plain.Q = here.P, here.Q
    for name in ("X", "weights", "bars"):
        setattr(plain, name, getattr(here, name))
    np.testing.assert_allclose(here.value(method), plain.value(method), rtol=1e-12, atol=1e-14)
    found, wanted = flat(here.through(method)), flat(plain.through(method))
    for name, array in wanted.items():
        if "log_scales" in name:
            assert array.shape == (0, 3)
            continue
        if name == "log_parameters":
            # the amplitude is the root of the variance against f, and 1 among the functions
            array[0] *= 0 if method in ("gram", "among") else 0.5
        np.testing.assert_allclose(found[name], array, rtol=1e-11, atol=1e-12)


@everyone
def test_the_gram_matrix_is_symmetric_with_the_variances_on_its_diagonal(rng, of):
    P = points(rng, of, 7)
    K, _ = of.gram(P)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_allclose(np.diag(K), of.own(P), rtol=1e-15)
    np.testing.assert_allclose(of.among(P, np.eye(7), P), K, rtol=1e-9, atol=1e-12)


@given(
    logs=st.lists(st.floats(math.log(0.2), math.log(5)), min_size=6, max_size=24),
    seed=st.integers(0, 10**6),
    d=st.integers(1, 3),
)
def test_all_functions_have_one_covariance(logs, seed, d):
    rng = np.random.default_rng(seed)
    m = len(logs) // (2 * d)
    scales = np.reshape(logs[: 2 * m * d], (2, m, d))
    P, Q = (Points(rng.normal(size=(m, d)), s) for s in scales)
    X, of = np.vstack([P.inputs, rng.normal(size=(3, d))]), Multiscale(RBF(0.7, 2.0))
    PQ, PX, QX = of.among(P, np.eye(m), Q), of.values(P, X)[0].T, of.values(Q, X)[0].T
    joint = np.block(
        [[of.gram(P)[0], PQ, PX], [PQ.T, of.gram(Q)[0], QX], [PX.T, QX.T, of.kernel(X)]]
    )
    assert np.linalg.eigvalsh(joint).min() >= -1e-12 * np.trace(joint)


def test_equation_19_integrates_products_of_gaussians():
    # Features phi(u) ~ exp(-(u - z)^2 / l^2), each divided by the root of its integral of squares:
    # the integral of phi phi' is sqrt(2 l l' / (l^2 + l'^2)) exp(-(z - z')^2 / (l^2 + l'^2)), and
    # exp(-(x - x')^2 / (2 s^2)) = k(x, x') where both widths are the lengthscale s.
    s, variance = 0.7, 1.9
    P, X = Points(np.array([[0.3], [-1.0]]), np.log([[2.5], [0.4]])), np.array([[0.1], [0.9]])
    u = np.linspace(-15, 15, 20_001)[:, None]

    def features(at, lengths):
        phi = np.exp(-(((u - at) / lengths) ** 2))
        return phi / np.sqrt((phi**2).sum(axis=0) * (u[1] - u[0]))

    of = Multiscale(RBF(s, variance))
    smooth = features(P.inputs[:, 0], s * np.exp(P.log_scales[:, 0]))
    plain = math.sqrt(variance) * features(X[:, 0], s)
    step = u[1] - u[0]
    np.testing.assert_allclose(of.gram(P)[0], smooth.T @ smooth * step, rtol=1e-10)
    np.testing.assert_allclose(of.values(P, X)[0], plain.T @ smooth * step, rtol=1e-10)
    np.testing.assert_allclose(of.kernel(X), plain.T @ plain * step, rtol=1e-10)


@smoothed
def test_inputs_far_from_zero_and_rows_far_from_points(rng, of):
    here = Problem(rng, of)
    near = {method: here.value(method) for method in METHODS}
    here.P, here.Q = (Points(A.inputs + 1e5, A.log_scales) for A in (here.P, here.Q))
    here.X = here.X + 1e5
    for method, wanted in near.items():
        np.testing.assert_allclose(here.value(method), wanted, rtol=1e-8, atol=1e-9)
    here.X = here.X + 1e9
    assert not here.value("values").any()
    assert not flat(here.through("mixed"))["log_parameters"].any()


@smoothed
@pytest.mark.parametrize("log_scale", [-15.0, 15.0])
def test_scales_far_from_one(rng, of, log_scale):
    here = Problem(rng, of)
    here.P = Points(here.P.inputs, np.full_like(here.P.inputs, log_scale))
    rho = math.sqrt(of.kernel.variance or 1.0)
    wanted = rho * eq19(of.kernel, latent(here.X), here.P)
    np.testing.assert_allclose(here.value("values"), wanted, rtol=1e-9, atol=0)
    np.testing.assert_allclose(here.value("gram"), eq19(of.kernel, here.P, here.P), rtol=1e-9)
    for method in METHODS:
        for array in flat(here.through(method)).values():
            assert np.isfinite(array).all()


# --- gradients


@everyone
@methods
def test_gradient_against_differences(rng, of, method):
    here = Problem(rng, of)
    found = here.through(method)
    assert_same(found, here.by_differences(method))
    assert found.log_parameters.dtype == np.float64


@pytest.mark.usefixtures("small_patches")
@smoothed
@methods
@pytest.mark.parametrize("t", [1, 3])
def test_gradient_of_tiles_that_are_cut(xp, rng, of, method, t):
    here = Problem(rng, of, m=7, q=6, n=11, t=t)
    there = Problem(np.random.default_rng(20), of, m=7, q=6, n=11, t=t, xp=xp)
    found = there.through(method)
    assert type(found.log_parameters) is np.ndarray
    for part in (found.points, found.others):
        assert part is None or all(isinstance(array, xp.ndarray) for array in part)
    assert_same(found, here.by_differences(method))


@methods
@pytest.mark.parametrize("name", ["ard", "kernel rbf"])
def test_gradient_where_points_are_the_same(rng, method, name):
    here = Problem(rng, KINDS[name], m=6, q=6, n=6)
    twice = [np.repeat(A[: len(A) // 2], 2, axis=0) for A in here.P]
    here.P = here.Q = Points(*twice)
    here.X = here.P.inputs.copy()
    assert_same(here.through(method), here.by_differences(method))
    if method == "gram":
        K = here.value("gram")
        np.testing.assert_allclose(K[::2, 1::2].diagonal(), K[0, 0], rtol=1e-14)


@smoothed
def test_tiles_of_the_sizes_in_use(rng, of):
    here = Problem(rng, of, m=300, q=140, n=150, t=3)
    P, Q, X, S, bars = here.P, here.Q, here.X, here.weights, here.bars
    np.testing.assert_allclose(of.mixed(P, S, X), S.T @ of.values(P, X)[0].T, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(of.among(P, S, P), S.T @ of.gram(P)[0], rtol=1e-9, atol=1e-11)
    wanted = of.values(P, X)[1]((S @ bars["mixed"]).T)
    wanted = wanted._replace(weights=of.values(P, X)[0].T @ bars["mixed"].T)
    assert_same(here.through("mixed"), wanted, rtol=1e-9, atol=1e-9)
    # C[P + Q, P + Q] with a derivative in one corner is C[P, Q]
    both = Points(*(np.vstack(pair) for pair in zip(P, Q, strict=True)))
    bar = np.zeros((440, 440))
    bar[:300, 300:] = S @ bars["among"]
    whole, found = of.gram(both)[1](bar), here.through("among")
    np.testing.assert_allclose(found.log_parameters, whole.log_parameters, rtol=1e-9)
    for i in range(2):
        np.testing.assert_allclose(found.points[i], whole.points[i][:300], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.others[i], whole.points[i][300:], rtol=1e-9, atol=1e-9)


@everyone
@pytest.mark.parametrize("method", ["values", "gram"])
def test_pulling_twice_changes_nothing(rng, of, method):
    here = Problem(rng, of)
    K, pull = of.values(here.P, here.X) if method == "values" else of.gram(here.P)
    bar = here.bars[method].copy()
    before = K.copy()
    with pytest.raises(ValueError, match="read-only"):
        K[0, 0] = 1
    first, again = pull(bar), pull(bar)
    np.testing.assert_array_equal(bar, here.bars[method])
    np.testing.assert_array_equal(K, before)
    assert_same(first, again, rtol=0, atol=0)
    assert_same(pull(bar, overwrite=True), first, rtol=1e-13, atol=1e-14)


# --- types and sizes


@pytest.mark.usefixtures("small_patches")
@everyone
@methods
def test_dtype_in_dtype_out(xp, rng, of, method):
    single = Problem(rng, of, m=7, n=11, xp=xp, dtype=np.float32)
    double = Problem(np.random.default_rng(20), of, m=7, n=11)
    F, through = single.value(method), single.through(method)
    assert F.dtype == np.float32
    np.testing.assert_allclose(to_host(F), double.value(method), rtol=1e-4, atol=2e-5)
    for name, array in flat(through).items():
        assert array.dtype == (np.float64 if name == "log_parameters" else np.float32)
    assert_same(through, double.through(method), rtol=5e-4, atol=5e-4)


@everyone
@methods
def test_wide_scales_and_weights_follow_narrow_inputs(rng, of, method):
    here = Problem(rng, of)
    here.X = here.X.astype(np.float32)
    here.P, here.Q = (A._replace(inputs=A.inputs.astype(np.float32)) for A in (here.P, here.Q))
    assert here.value(method).dtype == np.float32
    for name, array in flat(here.through(method)).items():
        assert array.dtype == (np.float64 if name == "log_parameters" else np.float32)


@everyone
@methods
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 6), (5, 1), (5, 0), (0, 6)])
def test_one_point_one_row_or_none(rng, of, method, m, n):
    here = Problem(rng, of, m=m, q=n, n=n, t=1)
    assert here.value(method).shape == here.bars[method].shape
    assert_same(here.through(method), here.by_differences(method))


@methods
@pytest.mark.parametrize("kind", ["kernel", "generalized"])
def test_one_column(rng, method, kind):
    here = Problem(rng, make(kind, RBF((0.8,), 1.7)), d=1)
    assert_same(here.through(method), here.by_differences(method))


# --- settings and arguments


def test_make():
    assert make("kernel", Linear()) == KernelBasis(Linear())
    assert make("generalized", RBF(2.0)) == Multiscale(RBF(2.0))
    with pytest.raises(SettingError, match='basis must be "kernel" or "generalized", not \'rbf\''):
        make("rbf", RBF())
    needs = 'basis="generalized" needs an RBF kernel: '
    with pytest.raises(SettingError, match=f"{needs}Matern32 is not one"):
        make("generalized", Matern32())
    with pytest.raises(SettingError, match=f"{needs}Sum is not one"):
        make("generalized", RBF() + 0.1)
    with pytest.raises(SettingError, match=rf"{needs}this one has active_dims=\(0,\), leave them"):
        make("generalized", RBF(active_dims=[0]))


@methods
def test_arguments_that_do_not_agree(fake, rng, method):
    here = Problem(rng, SMOOTHED["ard"])
    P = here.P
    here.P = Points(P.inputs, P.log_scales[:0])
    with pytest.raises(InputError, match=r"log_scales has shape \(0, 3\), the points \(5, 3\)"):
        here.value(method)
    here.P = Points(P.inputs, fake("a").asarray(P.log_scales))
    with pytest.raises(DeviceError):
        here.value(method)
    here = Problem(rng, Multiscale(RBF((1.0, 2.0))))
    with pytest.raises(InputError, match="RBF has 2 lengthscales, the points have 3 columns"):
        here.value(method)


def test_arguments_of_other_shapes(rng):
    of = SMOOTHED["ard"]
    here = Problem(rng, of)
    with pytest.raises(InputError, match="5 weights for 4 points"):
        of.mixed(Points(*(A[:4] for A in here.P)), here.weights, here.X)
    with pytest.raises(InputError, match="5 weights for 4 points"):
        of.among_vjp(Points(*(A[:4] for A in here.P)), here.weights, here.Q, here.bars["among"])
    with pytest.raises(InputError, match="K_bar has shape"):
        of.values(here.P, here.X)[1](here.bars["gram"])
    with pytest.raises(InputError, match="K_bar has shape"):
        of.gram(here.P)[1](here.bars["values"])
