"""GPyTorch within processor seconds: SVGP, and the variational nearest-neighbour GP, VNNGP."""

import warnings
from typing import Any

import numpy as np
from datasets import Split
from harness import Outcome

from peers.gpytorch import PREDICTED, Svgp, in_gpytorch
from peers.tasks import Task

BATCH_ROWS, NEIGHBOURS, RATE = 256, 50, 0.01


def svgp(split: Split, task: Task) -> Outcome:
    """Train inducing inputs by Adam in float32, on 1,024 rows a step, until the time is up."""
    clock = task.clock()
    model = Svgp(split, task.inducing(split), task.kernel(split), "float32", 1e-4)
    taken = 0
    for _ in model.steps(10**6, 1_024, rate=lambda _: clock.rate):
        taken += 1
        if clock.over:
            break
    fitted = clock.seconds
    moments = model.predict(split.X_test)
    return Outcome(fitted, clock.seconds - fitted, *moments, {"steps": taken})


def vnngp(split: Split, task: Task) -> Outcome:
    """Train VNNGP by Adam, all rows its inducing inputs, from q with the mean of the targets.

    Rows come in a random order and are conditioned on 50 of those before; more to predict.
    """
    import gpytorch
    import torch

    warnings.filterwarnings("ignore", category=ImportWarning)
    clock, n = task.clock(), len(split.y)
    torch.manual_seed(0)
    order = np.random.default_rng(0).permutation(n)
    X, y = (torch.tensor(np.asarray(part)[order], dtype=torch.float32) for part in split[:2])
    near, batch = min(NEIGHBOURS, n // 4), min(BATCH_ROWS, n // 4)
    q = gpytorch.variational.MeanFieldVariationalDistribution(n)

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            own = gpytorch.variational.NNVariationalStrategy(
                self, X, q, k=near, training_batch_size=batch
            )
            super().__init__(own)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = in_gpytorch(task.kernel(split))

        def forward(self, x: Any) -> Any:
            moments = self.mean_module(x), self.covar_module(x)
            return gpytorch.distributions.MultivariateNormal(*moments)

    likelihood, model = gpytorch.likelihoods.GaussianLikelihood(), Model().float()
    likelihood.noise = 0.1
    strategy = model.variational_strategy
    q.variational_mean.data.copy_(y)
    q._variational_stddev.data.fill_(0.1)
    strategy.variational_params_initialized.fill_(1)
    parameters = [*model.parameters(), *likelihood.parameters()]
    adam = torch.optim.Adam(parameters, lr=RATE)
    rate = torch.optim.lr_scheduler.LambdaLR(adam, lambda _: clock.rate)
    bound, taken = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=n), 0
    model.train(), likelihood.train()
    while not clock.over:
        adam.zero_grad()
        found = model(None)
        loss = -bound(found, y[strategy.current_training_indices])
        loss.backward()
        adam.step()
        rate.step()
        taken += 1
    fitted = clock.seconds
    model.eval(), likelihood.eval()
    strategy.k = strategy.nn_util.k = min(task.neighbours, n)
    strategy.nn_util.set_nn_idx(X)
    places, size = torch.tensor(split.X_test, dtype=torch.float32), PREDICTED // 16
    with torch.no_grad():
        parts = [likelihood(model(places[i : i + size])) for i in range(0, len(places), size)]
        moments = (torch.cat([getattr(p, name) for p in parts]) for name in ("mean", "variance"))
        moments = [part.double().numpy() for part in moments]
    return Outcome(fitted, clock.seconds - fitted, *moments, {"steps": taken})
