"""Noise variances of rows against GPyTorch, where it is installed."""

import numpy as np
import pytest

import daskgp
from daskgp import kernels

gpytorch = pytest.importorskip("gpytorch")
torch = pytest.importorskip("torch")

S, RNG = 0.2, np.random.default_rng(0)
X, Z, T = (RNG.uniform(0, 3, (n, 2)) for n in (120, 12, 9))
Y = np.sin(2 * X[:, 0]) + 0.3 * RNG.standard_normal(120)
ERRORS = 10.0 ** RNG.uniform(-4, 0.5, 120)


class Sparse(gpytorch.models.ApproximateGP):
    """Their sparse variational GP, with the hyper-parameters of ours."""

    def __init__(self, inputs):
        q = gpytorch.variational.NaturalVariationalDistribution(len(inputs))
        way = gpytorch.variational.VariationalStrategy(self, inputs, q, False, jitter_val=1e-9)
        super().__init__(way)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(1.5))
        self.covar_module.base_kernel.lengthscale, self.covar_module.outputscale = 0.8, 1.2

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.fixture
def theirs():
    """Their model and likelihood, after the natural step that is exact, and the bound there."""
    torch.set_default_dtype(torch.float64)
    x, y, e = map(torch.from_numpy, (X, Y, ERRORS))
    model = Sparse(torch.from_numpy(Z))
    likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(e, learn_additional_noise=True)
    likelihood.second_noise = S
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(Y))
    step = gpytorch.optim.NGD(model.variational_parameters(), num_data=len(Y), lr=1.0)
    model.train()
    (-bound(model(x), y)).backward()
    step.step()
    with torch.no_grad():
        value = float(bound(model(x), y)) * len(Y)
    yield model.eval(), value
    torch.set_default_dtype(torch.float32)


def test_svgp_has_the_bound_and_the_predictions_of_gpytorch(theirs):
    model, value = theirs
    ours = daskgp.SVGP(
        kernels.Matern32(0.8, variance=1.2),
        noise_variance=S,
        inducing=Z,
        mean="zero",
        standardize=False,
        optimizer=None,
        train_points=False,
        natural=1.0,
        batch_rows=len(Y),
        max_iter=3,
        progress=False,
    ).fit(X, Y, y_variance=ERRORS)
    with torch.no_grad():
        wanted = model(torch.from_numpy(T))
    mean, std = ours.predict(T, return_std=True)
    np.testing.assert_allclose(mean, wanted.mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(std**2, wanted.variance, rtol=1e-6, atol=1e-6)
    assert ours.history_[-1]["objective"] == pytest.approx(value, rel=1e-6)
