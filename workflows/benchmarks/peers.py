"""Other packages on standardised rows; ``defaults.py`` says with which settings."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

NEIGHBOURS = {"vecchia": 20, "full_scale_vecchia": 30}
"""To fit; predictions use 60."""
VIF_INDUCING = 200
INDUCING, BATCH_ROWS, EPOCHS, STEPS, RATE = 1_024, 1_024, 100, 3_000, 0.01


class Outcome(NamedTuple):
    """Prediction of y with its noise, and what it took."""

    fit_s: float
    predict_s: float
    mean: np.ndarray
    variance: np.ndarray | None = None
    remarks: dict[str, Any] = {}  # noqa: RUF012  never changed


def vecchia(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, threads: int) -> Outcome:
    """GPBoost's Vecchia approximation."""
    return _gpboost(X, y, X_test, threads, "vecchia")


def full_scale_vecchia(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, threads: int) -> Outcome:
    """GPBoost's Vecchia approximation of what inducing points leave."""
    inducing = {"num_ind_points": min(VIF_INDUCING, len(y) // 4)}
    return _gpboost(X, y, X_test, threads, "full_scale_vecchia", **inducing)


def _gpboost(
    X: np.ndarray, y: np.ndarray, X_test: np.ndarray, threads: int, kind: str, **settings: Any
) -> Outcome:
    import gpboost

    began = time.perf_counter()
    model = gpboost.GPModel(
        gp_coords=X,
        cov_function="matern_ard",
        cov_fct_shape=1.5,
        gp_approx=kind,
        num_neighbors=NEIGHBOURS[kind],
        vecchia_ordering="random",
        num_parallel_threads=threads,
        **settings,
    )
    model.fit(y=y)
    fitted = time.perf_counter()
    model.set_prediction_data(num_neighbors_pred=60)
    found = model.predict(gp_coords_pred=X_test, predict_var=True, predict_response=True)
    done = time.perf_counter()
    parameters = [float(value) for value in np.ravel(model.get_cov_pars(std_err=False))]
    remarks = {"parameters": parameters}
    return Outcome(fitted - began, done - fitted, found["mu"], found["var"], remarks)


def trees(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, threads: int) -> Outcome:
    """scikit-learn's boosted trees; threads are those of OMP_NUM_THREADS."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    began = time.perf_counter()
    model = HistGradientBoostingRegressor(
        learning_rate=0.05,
        max_iter=3_000,
        early_stopping=True,
        validation_fraction=0.1,
        n_iter_no_change=50,
        random_state=0,
    ).fit(X, y)
    fitted = time.perf_counter()
    mean = model.predict(X_test)
    remarks = {"trees": int(model.n_iter_)}
    return Outcome(fitted - began, time.perf_counter() - fitted, mean, None, remarks)


def svgp(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, threads: int) -> Outcome:
    """GPyTorch's stochastic variational GP."""
    import gpytorch
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    began = time.perf_counter()
    rows, target = (torch.as_tensor(part, dtype=torch.float32) for part in (X, y))
    model = _variational(rows)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    adam = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=RATE)
    steps = max(STEPS, EPOCHS * -(-len(y) // BATCH_ROWS))
    rate = torch.optim.lr_scheduler.MultiStepLR(adam, [steps // 2, 3 * steps // 4])
    model.train(), likelihood.train()
    order = torch.randperm(len(y))
    for _ in range(steps):
        if len(order) < min(BATCH_ROWS, len(y)):
            order = torch.randperm(len(y))
        batch, order = order[:BATCH_ROWS], order[BATCH_ROWS:]
        adam.zero_grad()
        loss = -bound(model(rows[batch]), target[batch])
        loss.backward()
        adam.step()
        rate.step()
    fitted = time.perf_counter()
    model.eval(), likelihood.eval()
    means, variances = [], []
    with torch.no_grad():
        for part in torch.as_tensor(X_test, dtype=torch.float32).split(4 * BATCH_ROWS):
            found = likelihood(model(part))
            means.append(found.mean.double().numpy())
            variances.append(found.variance.double().numpy())
    done = time.perf_counter()
    remarks = {"steps": steps, "bound": -loss.item()}
    return Outcome(
        fitted - began, done - fitted, np.concatenate(means), np.concatenate(variances), remarks
    )


def _variational(rows: Any) -> Any:
    """Return GPyTorch's model: whitened, inducing inputs at centres of k-means."""
    import gpytorch
    import torch
    from gpytorch import variational
    from sklearn.cluster import MiniBatchKMeans

    number = min(INDUCING, len(rows) // 2)
    centres = MiniBatchKMeans(number, n_init=1, random_state=0).fit(rows.numpy()).cluster_centers_

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            distribution = variational.CholeskyVariationalDistribution(number)
            inputs = torch.as_tensor(centres, dtype=torch.float32)
            super().__init__(variational.VariationalStrategy(self, inputs, distribution))
            self.mean = gpytorch.means.ConstantMean()
            kernel = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=rows.shape[1])
            self.kernel = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, X: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(X), self.kernel(X))

    return Model()
