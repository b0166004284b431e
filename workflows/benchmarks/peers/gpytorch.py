"""GPyTorch's stochastic variational GP, and its sparse GP with an inducing-point kernel."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from datasets import Split
from harness import Outcome

from daskgp import kernels

INDUCING, BATCH_ROWS, EPOCHS, STEPS, RATE, NOISE = 1_024, 1_024, 100, 3_000, 0.01, 0.1
JITTER = {"float32": 1e-4, "float64": 1e-6}
PREDICTED = 4_096
"""Rows that are predicted at a time."""
Over = Callable[[Callable], bool]
"""Question after each step of a training, with a function that predicts: whether it is over."""


def in_gpytorch(kernel: kernels.Kernel) -> Any:
    """Return a kernel of GPyTorch's with the same values."""
    import gpytorch
    import torch

    smoothness = {kernels.Matern12: 0.5, kernels.Matern32: 1.5, kernels.Matern52: 2.5}
    if type(kernel) not in (kernels.RBF, *smoothness):
        raise ValueError(f"{kernel!r} is not compared with GPyTorch: choose rbf or a matern")
    scale: Any = kernel.lengthscale  # type: ignore[attr-defined]
    several = {"ard_num_dims": len(scale)} if isinstance(scale, tuple) else {}
    base: Any = (
        gpytorch.kernels.RBFKernel(**several)
        if isinstance(kernel, kernels.RBF)
        else gpytorch.kernels.MaternKernel(nu=smoothness[type(kernel)], **several)
    )
    base.lengthscale = torch.tensor(scale)
    found = gpytorch.kernels.ScaleKernel(base)
    found.outputscale = kernel.variance  # type: ignore[attr-defined]
    return found


class Svgp:
    """GPyTorch's SVGP on rows in memory with learned inducing inputs that start at Z (m, d).

    From a kernel of daskgp's and noise variance 0.1, or without a kernel from GPyTorch's own.
    Rows to predict are less the first of ``scaling`` and over the second.
    """

    def __init__(
        self,
        split: Split,
        Z: np.ndarray,
        kernel: kernels.Kernel | None,
        dtype: str,
        jitter: float | None = None,
        scaling: tuple[Any, Any] = (0.0, 1.0),
    ) -> None:
        import gpytorch
        import torch
        from gpytorch import variational

        d, self.scaling = split.X.shape[1], scaling
        self.dtype: Any = getattr(torch, dtype)
        self.X, self.y = (torch.tensor(part, dtype=self.dtype) for part in split[:2])
        covariance = in_gpytorch(kernel or kernels.Matern32((0.6931,) * d, 0.6931, ard=True))
        distribution = variational.CholeskyVariationalDistribution(len(Z))

        class Model(gpytorch.models.ApproximateGP):
            def __init__(self) -> None:
                points = torch.tensor(Z)
                own = variational.VariationalStrategy(self, points, distribution, jitter_val=jitter)
                super().__init__(own)
                self.mean, self.kernel = gpytorch.means.ConstantMean(), covariance

            def forward(self, x: Any) -> Any:
                return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
        if kernel is not None:
            self.likelihood.noise = NOISE
        self.model, self.likelihood = Model().to(self.dtype), self.likelihood.to(self.dtype)

    def steps(
        self, number: int, batch: int, decay: bool = False, rate: Callable | None = None
    ) -> Iterator[float]:
        """Train; yield the seconds of all steps so far.

        ``decay`` lowers the learning rate twice, or ``rate`` has its factor at a step.
        """
        import gpytorch
        import torch

        torch.manual_seed(0)
        adam = torch.optim.Adam([*self.model.parameters(), *self.likelihood.parameters()], lr=RATE)
        marks = [number // 2, 3 * number // 4] if decay else []
        rate = rate or (lambda step: 0.1 ** sum(step >= mark for mark in marks))
        schedule = torch.optim.lr_scheduler.LambdaLR(adam, rate)
        bound = gpytorch.mlls.VariationalELBO(self.likelihood, self.model, num_data=len(self.y))
        order, seconds = torch.randperm(len(self.y)), 0.0
        for _ in range(number):
            self.model.train(), self.likelihood.train()
            began = time.perf_counter()
            if len(order) < min(batch, len(self.y)):
                order = torch.randperm(len(self.y))
            rows, order = order[:batch], order[batch:]
            adam.zero_grad()
            loss = -bound(self.model(self.X[rows]), self.y[rows])
            loss.backward()
            adam.step()
            schedule.step()
            seconds += time.perf_counter() - began
            yield seconds

    @property
    def noise(self) -> float:
        """Noise variance."""
        return float(self.likelihood.noise.item())

    @property
    def divergence(self) -> float:
        """KL[q || p] of the inducing values."""
        return float(self.model.variational_strategy.kl_divergence().item())

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance (n,) of y."""
        import torch

        self.model.eval(), self.likelihood.eval()
        X = (X - self.scaling[0]) / self.scaling[1]
        with torch.no_grad():
            parts = [
                self.likelihood(self.model(torch.tensor(X[i : i + PREDICTED], dtype=self.dtype)))
                for i in range(0, len(X), PREDICTED)
            ]
            means, variances = ([getattr(p, name) for p in parts] for name in ("mean", "variance"))
            return torch.cat(means).double().numpy(), torch.cat(variances).double().numpy()


def svgp(split: Split, threads: int) -> Outcome:
    """Fit standardised rows from centres of k-means for 100 epochs, 3,000 steps at least."""
    from sklearn.cluster import MiniBatchKMeans

    began, most = time.perf_counter(), min(INDUCING, len(split.y) // 2)
    centres = MiniBatchKMeans(most, n_init=1, random_state=0).fit(split.X).cluster_centers_
    model = Svgp(split, centres, None, "float32")
    steps = max(STEPS, EPOCHS * -(-len(split.y) // BATCH_ROWS))
    for _ in model.steps(steps, BATCH_ROWS, decay=True):
        pass
    fitted = time.perf_counter()
    moments = model.predict(split.X_test)
    return Outcome(fitted - began, time.perf_counter() - fitted, *moments, {"steps": steps})


def random_svgp(split: Split, kernel: str, dtype: str, number: int = INDUCING) -> Svgp:
    """Return the model of standardised rows with inducing inputs drawn from them.

    It starts from the lengthscales of daskgp's kernel at the median distance of the rows.
    """
    from scipy.spatial.distance import pdist

    X, y = np.asarray(split.X), np.asarray(split.y)
    shift, scale = X.mean(axis=0), X.std(axis=0)
    rows, rng = (X - shift) / scale, np.random.default_rng(0)
    few = rows[rng.choice(len(rows), min(2_000, len(rows)), replace=False)]
    middle = float(np.median(pdist(few)))
    start = kernels.parse(kernel).resolve(np.full(X.shape[1], middle), middle)
    Z = rows[rng.choice(len(rows), min(number, len(rows) // 2), replace=False)]
    return Svgp(split._replace(X=rows, y=y), Z, start, dtype, JITTER[dtype], (shift, scale))


def sgpr(X: np.ndarray, y: np.ndarray, Z: np.ndarray, kernel: Any) -> Callable[[], float]:
    """Return a function that evaluates the bound of GPyTorch's SGPR with all its gradients."""
    model, loss = sparse(X, y, Z, kernel)

    def evaluate() -> float:
        model.zero_grad()
        value = -loss()
        value.backward()
        return value.item() * len(y)

    return evaluate


def sparse(
    X: np.ndarray, y: np.ndarray, Z: np.ndarray, kernel: kernels.Kernel
) -> tuple[Any, Callable[[], Any]]:
    """Return GPyTorch's SGPR, and a function with its loss per row."""
    import gpytorch
    import torch

    torch.set_default_dtype(torch.float64)
    inputs, targets = torch.tensor(X), torch.tensor(y)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = NOISE

    class Model(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(inputs, targets, likelihood)
            own, points = in_gpytorch(kernel), torch.tensor(Z)
            self.mean = gpytorch.means.ZeroMean()
            self.kernel = gpytorch.kernels.InducingPointKernel(own, points, likelihood)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    model = Model().train()
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood.train(), model)
    return model, lambda: -evidence(model(inputs), targets)


def train_sgpr(split: Split, Z: np.ndarray, kernel: kernels.Kernel, over: Over) -> None:
    """Train SGPR by L-BFGS with a strong Wolfe line search until it is over."""
    import torch

    model, loss = sparse(split.X, split.y, Z, kernel)
    search = torch.optim.LBFGS(model.parameters(), max_iter=1, line_search_fn="strong_wolfe")

    def evaluate() -> Any:
        search.zero_grad()
        value = loss()
        value.backward()
        return value

    def predict(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            found = model.eval().likelihood.eval()(model(torch.tensor(X)))
            moments = found.mean.numpy(), found.variance.numpy()
        model.train(), model.likelihood.train()
        return moments

    while True:
        search.step(evaluate)
        if over(predict):
            return


def train_svgp(
    split: Split, Z: np.ndarray, kernel: kernels.Kernel, over: Over, steps: int, batch: int
) -> None:
    """Train SVGP with Adam in float32 until it is over."""
    model = Svgp(split, Z, kernel, "float32", JITTER["float32"])
    for _ in model.steps(steps, batch, decay=True):
        if over(model.predict):
            return
