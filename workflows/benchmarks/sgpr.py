"""SGPR's bound with all its gradients, side by side with GPyTorch and GPflow.

    python workflows/benchmarks/sgpr.py [--rows 36000] [--only daskgp]

One process each, float64, all cores, Matérn-3/2 ARD, gradients with respect to kernel, noise and
inducing inputs.  The floor is the time the method's dense products and solves, 4 n m², would take
at the measured rate of a large matrix product.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import click
import numpy as np
from rich.console import Console
from rich.table import Table

NOISE, LENGTHSCALE = 0.1, 2.0


def problem(n: int, d: int, m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, targets and inducing inputs of a smooth noisy function."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = np.sin(X @ np.linspace(1, 0.2, d)) + NOISE**0.5 * rng.standard_normal(n)
    return X, y, X[rng.choice(n, m, replace=False)]


def best_of(repeats: int, function: Callable[[], float]) -> tuple[float, float]:
    """Shortest time of a few runs after a first, and the value."""
    value, seconds = function(), []
    for _ in range(repeats):
        began = time.perf_counter()
        value = function()
        seconds.append(time.perf_counter() - began)
    return min(seconds), value


def gemm_rate(size: int = 4096) -> float:
    """Operations a second of a float64 matrix product on all cores."""
    A = np.random.default_rng(0).standard_normal((size, size))
    seconds, _ = best_of(3, lambda: float((A @ A)[0, 0]))
    return 2 * size**3 / seconds


def with_daskgp(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Callable[[], float]:
    """Two rounds over blocks by the threads of this process."""
    from daskgp import data, kernels
    from daskgp.data import partition
    from daskgp.fit import rounds
    from daskgp.models.scaling import identity
    from daskgp.models.sparse.sgpr import SGPR
    from daskgp.models.values import Theta
    from daskgp.runtime.executor import Executor

    rows = data.rows_of(X, y, "", shared_memory=True)
    windows = partition.alone(partition.blocks(len(rows), rows.chunks))
    kernel = kernels.Matern32(lengthscale=(LENGTHSCALE,) * X.shape[1])
    stage = rounds.Rounds(
        SGPR(), rows, windows, identity(X.shape[1], 1), Executor(None, show=False)
    )
    theta = Theta(kernel, NOISE, Z)
    return lambda: stage.value_and_gradient(theta).value


def with_gpflow(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Callable[[], float]:
    """GPflow's SGPR, compiled."""
    import gpflow
    import tensorflow as tf

    model = gpflow.models.SGPR(
        (X, y[:, None]),
        gpflow.kernels.Matern32(lengthscales=np.full(X.shape[1], LENGTHSCALE)),
        Z.copy(),
        noise_variance=NOISE,
    )

    @tf.function
    def step() -> tuple:
        with tf.GradientTape() as tape:
            value = model.maximum_log_likelihood_objective()
        return value, tape.gradient(value, model.trainable_variables)

    return lambda: float(step()[0])


def with_gpytorch(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Callable[[], float]:
    """GPyTorch's SGPR: an exact GP with an inducing-point kernel."""
    import gpytorch
    import torch

    torch.set_default_dtype(torch.float64)
    X_t, y_t = torch.tensor(X), torch.tensor(y)

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood: gpytorch.likelihoods.GaussianLikelihood) -> None:
            super().__init__(X_t, y_t, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            base = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=X.shape[1])
            )
            base.outputscale, base.base_kernel.lengthscale = 1.0, LENGTHSCALE
            self.covar_module = gpytorch.kernels.InducingPointKernel(
                base, torch.tensor(Z), likelihood
            )

        def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = NOISE
    model = Model(likelihood).train()
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood.train(), model)

    def step() -> float:
        model.zero_grad()
        value = evidence(model(X_t), y_t)
        value.backward()
        return value.item() * len(y)

    return step


CONTENDERS = {"daskgp": with_daskgp, "gpflow": with_gpflow, "gpytorch": with_gpytorch}


def measure(name: str, rows: int, features: int, inducing: int, repeats: int) -> dict:
    """Seconds, value and peak memory of one contender, in this process."""
    function = CONTENDERS[name](*problem(rows, features, inducing))
    seconds, value = best_of(repeats, function)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"name": name, "seconds": seconds, "bound": value, "peak_mib": peak}


def report(results: list[dict], floor: float, rate: float) -> Table:
    """Times and memory of all, as ratios to daskgp."""
    ours = next((r for r in results if r["name"] == "daskgp"), results[0])
    table = Table(title=f"SGPR value and all gradients (GEMM {rate / 1e9:.0f} GFLOP/s)")
    for column in ("", "seconds", "× daskgp", "peak MiB", "× daskgp", "bound", "floor / time"):
        table.add_column(column, justify="right" if column else "left")
    for r in results:
        table.add_row(
            r["name"],
            f"{r['seconds']:.2f}",
            f"{r['seconds'] / ours['seconds']:.1f}",
            f"{r['peak_mib']:.0f}",
            f"{r['peak_mib'] / ours['peak_mib']:.1f}",
            f"{r['bound']:.1f}",
            f"{floor / r['seconds']:.2f}",
        )
    return table


@click.command()
@click.option("--rows", default=36_000, show_default=True)
@click.option("--features", default=8, show_default=True)
@click.option("--inducing", default=1_024, show_default=True)
@click.option("--repeats", default=3, show_default=True)
@click.option("--only", type=click.Choice(list(CONTENDERS)), multiple=True)
@click.option("--here", type=click.Choice(list(CONTENDERS)), hidden=True)
def main(
    rows: int, features: int, inducing: int, repeats: int, only: tuple[str, ...], here: str | None
) -> None:
    """Measure each contender in a process of its own and print a table."""
    if here:
        print(json.dumps(measure(here, rows, features, inducing, repeats)))
        return
    sizes = [f"--rows={rows}", f"--features={features}", f"--inducing={inducing}"]
    results = []
    for name in only or CONTENDERS:
        command = [sys.executable, __file__, *sizes, f"--repeats={repeats}", f"--here={name}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            print(f"{name} did not run: {reason}", file=sys.stderr)
            continue
        results.append(json.loads(done.stdout.splitlines()[-1]))
    if not results:
        raise click.ClickException("no contender ran: pip install 'daskgp[bench]'")
    rate = gemm_rate()
    floor = 4 * rows * inducing**2 / rate
    Console(width=100).print(report(results, floor, rate))
    print(f"floor {floor:.2f} s: 4 n m^2 operations; 3 n m^2 would take {0.75 * floor:.2f} s")


if __name__ == "__main__":
    main()
