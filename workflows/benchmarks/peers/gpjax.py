"""GPJax's collapsed bound, compiled."""

from typing import Any

import numpy as np
from datasets import Split
from harness import Outcome

from peers.tasks import Task

EVALUATIONS = 1.5
"""Values and gradients that an iteration of L-BFGS takes, about."""


def sgpr(split: Split, task: Task) -> Outcome:
    """Train inducing inputs by L-BFGS for as many iterations as the time allows."""
    import equinox
    import gpjax
    import jax

    jax.config.update("jax_enable_x64", True)
    clock = task.clock()
    start: Any = task.kernel(split)
    kind = {0.5: gpjax.kernels.Matern12, 1.5: gpjax.kernels.Matern32}[task.smoothness]
    kernel = kind(lengthscale=jax.numpy.array(start.lengthscale), variance=1.0)
    prior = gpjax.gps.Prior(mean_function=gpjax.mean_functions.Constant(), kernel=kernel)
    model = prior * gpjax.likelihoods.Gaussian(obs_stddev=0.1**0.5)
    family = gpjax.variational_families.CollapsedVariationalGaussian
    q = family(model=model, inducing_inputs=jax.numpy.array(task.inducing(split)))
    data = gpjax.Dataset(X=jax.numpy.array(split.X), y=jax.numpy.array(split.y)[:, None])

    def loss(q: Any, data: Any) -> Any:
        return -gpjax.objectives.collapsed_elbo(q, data)

    evaluate = equinox.filter_jit(equinox.filter_value_and_grad(loss))
    jax.block_until_ready(evaluate(q, data))
    before = clock.seconds
    jax.block_until_ready(evaluate(q, data))
    one = clock.seconds - before
    taken = max(1, int((task.seconds - 2 * clock.seconds) / (EVALUATIONS * one)))
    q, _ = gpjax.fit_lbfgs(model=q, objective=loss, train_data=data, max_iters=taken)
    posterior = jax.block_until_ready(q.condition(data))
    fitted = clock.seconds

    @equinox.filter_jit
    def moments(posterior: Any, places: Any) -> tuple[Any, Any]:
        f = posterior(places, covariance="diagonal")
        noise = posterior.observation_variance
        return f.mean, f.variance + noise

    parts = np.array_split(split.X_test, max(1, len(split.X_test) // 1_000))
    found = [map(np.ravel, moments(posterior, part)) for part in parts]
    mean, variance = map(np.concatenate, zip(*found, strict=True))
    return Outcome(fitted, clock.seconds - fitted, mean, variance, {"steps": taken})
