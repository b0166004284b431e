"""The checks that ship with the package notice what they are for."""

import dataclasses

import dask
import dask.array as da
import dask.threaded
import numpy as np
import pytest
from distributed import Client

from daskgp import kernels, testing
from daskgp.models.exact import Exact
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.values import Theta

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
