"""fvGP: exact on few rows, and gp2Scale, exact with a kernel of compact support."""

import time
from typing import Any

import numpy as np
from datasets import Split
from harness import Outcome

from peers.tasks import Task

ROWS, RADIUS = 20_000, 0.2
"""Rows of a log-likelihood, and the radius in degrees beyond which the kernel is zero."""
EXACT_ROWS = 2_500


def exact(split: Split, task: Task) -> Outcome:
    """Train the exact GP of some rows by L-BFGS on logarithms until the time is up."""
    import fvgp
    from scipy.optimize import minimize

    clock, few = task.clock(), split.drawn(EXACT_ROWS)
    start = np.array([1.0, *task.kernel(split).lengthscale, 0.1])  # type: ignore[attr-defined]
    rough = task.smoothness == 0.5

    def kernel(x: np.ndarray, z: np.ndarray, values: np.ndarray) -> np.ndarray:
        q = fvgp.kernels.get_distance_matrix(x / values[1:-1], z / values[1:-1])
        form = fvgp.kernels.exponential_kernel if rough else fvgp.kernels.matern_kernel_diff1
        return values[0] * form(q, 1.0)

    def slopes(x: np.ndarray, z: np.ndarray, values: np.ndarray) -> np.ndarray:
        scale = values[1:-1]
        q = fvgp.kernels.get_distance_matrix(x / scale, z / scale)
        pull = np.exp(-q) / np.maximum(q, 1e-12) if rough else 3 * np.exp(-(3**0.5) * q)
        apart = (np.subtract.outer(a, b) ** 2 for a, b in zip(x.T, z.T, strict=True))
        by_scale = (values[0] * pull * d / s**3 for d, s in zip(apart, scale, strict=True))
        return np.stack([kernel(x, z, values) / values[0], *by_scale, np.zeros(q.shape)])

    def noise(x: np.ndarray, values: np.ndarray) -> np.ndarray:
        return np.full(len(x), values[-1])

    def noise_slopes(x: np.ndarray, values: np.ndarray) -> np.ndarray:
        own = np.arange(len(values)) == len(values) - 1
        return np.repeat(own[:, None], len(x), axis=1).astype(float)

    def trained(_: object) -> np.ndarray:
        def loss(logs: np.ndarray) -> tuple[float, np.ndarray]:
            values = np.exp(logs)
            slope = model.neg_log_likelihood_gradient(hyperparameters=values)
            value = -float(np.ravel(model.log_likelihood(hyperparameters=values))[0])
            return value, np.ravel(slope) * values

        def ended(logs: np.ndarray) -> None:
            if clock.over:
                raise StopIteration

        bounds = [(v - 7, v + 7) for v in np.log(start)]
        own: dict[str, Any] = {"method": "L-BFGS-B", "bounds": bounds, "callback": ended}
        return np.exp(minimize(loss, np.log(start), jac=True, **own).x)

    model = fvgp.GP(
        few.X,
        few.y,
        init_hyperparameters=start,
        kernel_function=kernel,
        kernel_function_grad=slopes,
        noise_function=noise,
        noise_function_grad=noise_slopes,
    )
    model.train(method=trained, hyperparameter_bounds=np.stack([start / 1e3, start * 1e3], axis=1))
    fitted, parts = clock.seconds, []
    for places in np.array_split(split.X_test, max(1, len(split.X_test) // 1_000)):
        mean = model.posterior_mean(places)["m(x)"]
        variance = model.posterior_covariance(places, variance_only=True, add_noise=True)["v(x)"]
        parts.append((np.ravel(mean), np.ravel(variance)))
    moments = map(np.concatenate, zip(*parts, strict=True))
    return Outcome(fitted, clock.seconds - fitted, *moments)


def log_likelihood(split: Split, threads: int) -> Outcome:
    """Evaluate one log-likelihood with fvGP's own kernel and settings: a time, no prediction."""
    import fvgp
    import imate  # noqa: F401  what gp2Scale needs besides
    from distributed import Client

    small = split.thinned(ROWS)
    y = small.y - small.y.mean()
    asked = np.array([y.var(), RADIUS, RADIUS])
    with Client(n_workers=threads, threads_per_worker=1, dashboard_address=None) as client:
        model = fvgp.GP(
            small.X,
            y,
            init_hyperparameters=np.array([y.var(), 1.05 * RADIUS, 1.05 * RADIUS]),
            noise_variances=np.full(len(y), 0.05 * y.var()),
            gp2Scale=True,
            gp2Scale_batch_size=max(1, len(y) // 4),
            dask_client=client,
        )
        began = time.perf_counter()
        value = float(np.ravel(model.log_likelihood(asked))[0])
        seconds = time.perf_counter() - began
        filled = model.prior.K.nnz / len(y) ** 2
    remark = f"one log-likelihood of {len(y):,} rows ({value:.6g}), {filled:.1%} non-zero"
    return Outcome(seconds, remarks={"remark": remark})
