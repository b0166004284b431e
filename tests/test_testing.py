"""The checks that ship with the package notice what they are for, and name it."""

import dataclasses
from typing import ClassVar, NamedTuple
from unittest import SkipTest

import dask
import dask.array as da
import dask.threaded
import numpy as np
import pytest
from distributed import Client

from daskgp import kernels, likelihoods, testing
from daskgp.errors import SettingError
from daskgp.estimators.base import GaussianProcess
from daskgp.models.exact import Exact
from daskgp.models.markov.lma import LMA
from daskgp.models.method import Declared, Pass
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.values import Footprint, Moments, Theta, add

COMPUTE = {
    "compute": lambda x: x.compute(),
    "threads": lambda x: x.compute(scheduler="threads"),
    "sync": lambda x: x.compute(scheduler="sync"),
    "processes": lambda x: x.compute(scheduler="processes"),
    "several": lambda x: dask.compute(x, 2 * x, scheduler="threads"),
    "method persist": lambda x: x.persist(scheduler="sync"),
    "persist": lambda x: dask.persist(x),
    "array": np.asarray,
    "store": lambda x: da.store(x, np.empty(3)),
    "threaded": lambda x: dask.threaded.get(dict(x.dask), x.__dask_keys__()),
    "local": lambda x: dask.get(dict(x.dask), x.__dask_keys__()),
}


@pytest.mark.parametrize("compute", COMPUTE.values(), ids=COMPUTE)
def test_no_compute_notices(compute):
    x = da.ones(3, chunks=2)
    with testing.no_compute(), pytest.raises(AssertionError, match="nothing should be"):
        compute(x)
    assert x.sum().compute() == 3.0  # and only inside


@pytest.mark.parametrize("method", ["compute", "persist", "get"])
def test_no_compute_notices_a_client(scheduler, method):
    x = da.ones(3, chunks=2)
    with Client(scheduler) as client:
        with testing.no_compute():
            with pytest.raises(AssertionError, match="nothing should be"):
                x.compute()
            with pytest.raises(AssertionError, match="nothing should be"):
                getattr(client, method)(x)
            with pytest.raises(AssertionError, match="nothing should be"):
                client.submit(int, 3)
        assert x.sum().compute() == 3.0


def test_no_compute_lets_lazy_work_pass():
    with testing.no_compute():
        x = (da.ones((4, 3), chunks=2) @ da.ones(3)).rechunk(3)
    assert x.sum().compute() == 12.0


@dataclasses.dataclass(frozen=True)
class Wrong(Exact):
    """An exact GP with an error of one part in a thousand somewhere."""

    where: str = ""

    def objective(self, prepared, total):
        found = super().objective(prepared, total)
        return found._replace(value=found.value * (1 + 1e-3 * (self.where == "evidence")))

    def predict(self, theta, state, X, near=None, want="mean"):
        found = super().predict(theta, state, X, near, want)
        if self.where == "mean":
            return found._replace(mean=1.001 * found.mean)
        return found._replace(variance=1.001 * found.variance) if self.where else found


def problem():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (30, 2))
    return X, np.sin(X) + 0.1 * rng.standard_normal((30, 2))


@pytest.mark.parametrize("where", ["evidence", "mean", "variance"])
def test_the_exact_limit_is_a_dense_computation(where):
    theta = Theta(kernels.Matern32(0.8), 0.1)
    testing.check_exact_limit(Wrong(), theta, *problem())
    with pytest.raises(AssertionError):
        testing.check_exact_limit(Wrong(where=where), theta, *problem())


@pytest.mark.parametrize("model", [Exact(), SGPR()], ids=lambda model: model.name)
def test_methods_have_an_exact_limit(model):
    theta = Theta(kernels.RBF(0.5) + kernels.Linear(0.2), 0.1, problem()[0][:4])
    testing.check_exact_limit(model, theta, *problem())


# -- checks by name --------------------------------------------------------------------------


class Deaf(SGPR):
    """Forgets to say that it uses noise variances of rows."""

    takes_noise = False


class Deafer(SGPR):
    """Says that it uses them, and does not."""

    def local(self, prepared, block, near=()):
        return super().local(prepared, block._replace(noise=None), near)


class Alone(LMA):
    """Forgets to say that it conditions rows on those of other blocks."""

    takes_neighbours = False


class Rising(Exact):
    """Has a wrong gradient."""

    def objective(self, prepared, total):
        found = super().objective(prepared, total)
        gradient = found.gradient._replace(noise=1.001 * found.gradient.noise)
        return found._replace(gradient=gradient)


class Centred(SGPR):
    """Writes to the rows that it is given."""

    def local(self, prepared, block, near=()):
        block.X[...] -= 1e-9
        return super().local(prepared, block, near)


class Middle(NamedTuple):
    total: np.ndarray
    square: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, piece):
        y = piece.own.y
        return cls(y.sum(axis=0), np.array((y**2).sum()), np.array(len(y)))


@dataclasses.dataclass(frozen=True)
class MiddleOfRows(Declared):
    """Predicts the mean of the rows everywhere, without an objective."""

    name: ClassVar[str] = "middle"
    state_type: ClassVar[type] = Middle

    def solve(self, theta, rows):
        return rows.sum(Pass("middle-rows", Middle.of, add)), None

    def predict(self, theta, state, X, near=None, want="mean"):
        mean = state.total / state.rows
        variance = state.square / state.rows / len(mean) - (mean**2).mean()
        return Moments(np.tile(mean, (len(X), 1)), variance=np.full(len(X), variance))

    def why_no_joint(self):
        return "there is none"

    def footprint(self, shape):
        return Footprint(64, 64, 64, 64, float(shape.rows), 64, 0)


class WindowsGP(GaussianProcess):
    """Forgets to arrange rows so that its method gets neighbours."""

    model_name = "windows"

    def _model(self):
        return LMA(1)


class Steep(kernels.RBF):
    def pullback(self, X, Z=None, work=None):
        K, pull = super().pullback(X, Z, work)

        def doubled(K_bar, overwrite=False):
            found = pull(K_bar, overwrite)
            return found._replace(log_parameters=2 * found.log_parameters)

        return K, doubled


class Sure(likelihoods.Poisson):
    def response(self, mean, variance):
        rate, spread = super().response(mean, variance)
        return rate, 0.5 * spread


INPUTS = problem()[0][:4]


def at(method, inputs=INPUTS):
    return testing.MethodAt(method, Theta(kernels.Matern32(0.8), 0.1, inputs))


@pytest.mark.parametrize(
    ("subject", "name", "line"),
    [
        (at(Deaf()), "takes_noise", "does not say takes_noise = True"),
        (at(Deafer()), "takes_noise", "it says takes_noise and ignores Block.noise"),
        (at(Alone()), "takes_neighbours", "does not say takes_neighbours = True"),
        (at(Rising(), None), "gradient", "Not equal to tolerance"),
        (at(Centred()), "layout", "read-only"),
        (WindowsGP("rbf"), "arrangement", "return another arrangement"),
        (Steep(0.7), "gradient", "gradient with respect to hyper-parameters"),
        (Sure(), "draws", "another variance than response says"),
    ],
    ids=lambda given: type(given).__name__,
)
@pytest.mark.whole
def test_what_is_forgotten_has_a_failing_check_of_its_name(subject, name, line):
    (check,) = (one for one in testing.checks_of(subject) if one.name == name)
    with pytest.raises((AssertionError, SettingError, ValueError), match=line) as caught:
        check(subject)
    assert caught.value.__notes__ == [f"{name}: {check.promise}"]


def test_a_method_without_an_objective_passes_the_checks_that_are_about_it():
    checks = testing.checks_of(at(MiddleOfRows(), None))
    assert {check.name for check in checks} == {
        "moments",
        "takes_noise",
        "layout",
        "footprint",
        "value",
    }
    for check in checks:
        check(at(MiddleOfRows(), None))


def test_checks_have_names_of_their_own_and_a_line():
    for subject in (kernels.RBF(), likelihoods.Gaussian(), at(SGPR()), WindowsGP()):
        checks = testing.checks_of(subject, whole=True)
        assert len({check.name for check in checks}) == len(checks) > 6
        assert all(20 < len(check.promise) < 100 for check in checks)
    with pytest.raises(SettingError, match="'rbf' has no checks: give a value of one of Kernel, "):
        testing.checks_of("rbf")


def test_checks_that_are_not_about_a_subject_are_skipped():
    (check,) = (
        one for one in testing.checks_of(likelihoods.Gaussian(), True) if one.name == "offset"
    )
    with pytest.raises(SkipTest, match="its y is standardised"):
        check(likelihoods.Gaussian())


def marks(decorator):
    _, cases = decorator.mark.args
    return {case.id: [mark.name for mark in case.marks] for case in cases}


def test_expected_failures_are_by_check_or_by_subject_and_check():
    decorate, subjects = testing.parametrize_with_checks, [kernels.RBF(), kernels.RBF(2.0)]
    plain = marks(decorate(subjects))
    assert plain["RBF1-gradient"] == plain["RBF2-gradient"] == []
    both = marks(decorate(subjects, {"gradient": "steep"}))
    assert both["RBF1-gradient"] == both["RBF2-gradient"] == ["xfail"]
    one = marks(decorate({"a": subjects[0], "b": subjects[1]}, {("b", "gradient"): "steep"}))
    assert (one["a-gradient"], one["b-gradient"]) == ([], ["xfail"])
    assert marks(decorate([likelihoods.Gaussian()]))["Gaussian-offset"] == ["skip"]
    for unknown in ("gradients", ("c", "gradient")):
        with pytest.raises(SettingError, match="is expected to fail, and no check of RBF1, RBF2"):
            decorate(subjects, {unknown: "steep"})
