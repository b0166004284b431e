"""Learning curves of mini-batches: SVGP with few functions and with more, and a decoupled GP.

Rows of a rough field on the unit square; the error of the mean at places never seen, over steps and
over time, after Figure 2 of Cheng & Boots (2017).  A fit goes on from the checkpoint of the one
before it.  Printed beside: how good predictions of observations are, spread included.
"""

import sys
import tempfile
import time

import numpy as np

import daskgp
from daskgp import metrics
from daskgp.plot import canvas

NOISE = 0.1
LENGTHSCALE = 0.07
KEPT = 100
"""Steps between the states that a fit keeps."""


def main(
    rows=20_000, many=2_048, few=64, middle=256, marks=(50, 100, 200, 300, 400), path=None,
    seed=0,
):  # fmt: skip
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(rows + rows // 10, 2))
    f = field(X, rng)
    y = f + NOISE * rng.standard_normal(len(f))
    X, X_test, y, y_test, f_test = X[:rows], X[rows:], y[:rows], y[rows:], f[rows:]
    models = {
        f"SVGP, {few} functions": daskgp.SVGP(n_inducing=few),
        f"SVGP, {middle} functions": daskgp.SVGP(n_inducing=middle),
        'the same, hyperparameters="subset"': daskgp.SVGP(
            n_inducing=middle, hyperparameters="subset"
        ),
        f"DecoupledGP, {many:,} and {few}": daskgp.DecoupledGP(n_mean=many, n_covariance=few),
    }
    curves = {}
    for name, model in models.items():
        error, seconds, spent = np.empty(len(marks)), np.empty(len(marks)), 0.0
        with tempfile.TemporaryDirectory() as folder:
            for i, steps in enumerate(marks):
                began = time.process_time()
                model.set_params(max_iter=steps, progress=False)
                model.fit(X, y, checkpoint=f"{folder}/run")
                seconds[i] = spent + time.process_time() - began
                spent = seconds[i] if steps >= KEPT else 0.0
                error[i] = metrics.nmse(f_test, model.predict(X_test))
        mean, std = model.predict(X_test, return_std=True, include_noise=True)
        found = metrics.summary(y_test, mean, std**2)
        curves[name] = error, seconds
        print(
            f"{name:36s} nMSE of f " + " ".join(f"{value:.3f}" for value in error)
            + f"; {seconds[-1]:.0f} s, NLPD of y {found['nlpd']:.2f}, inside 95 % "
            f"{found['coverage_95']:.3f}, noise variance {model.noise_variance_ * y.var():.3f}"
        )  # fmt: skip
    if path:
        draw(marks, curves, path)
    return curves


def field(X, rng, waves=2_000):
    """Draw (n,) at X, approximately from a GP with a Matérn-3/2 kernel of variance 1."""
    heavy = np.sqrt(rng.chisquare(3, (waves, 1)) / 3)  # its spectrum is a Student-t
    frequencies = rng.standard_normal((waves, X.shape[1])) / heavy / LENGTHSCALE
    phases = rng.uniform(0, 2 * np.pi, waves)
    return np.sqrt(2 / waves) * np.cos(X @ frequencies.T + phases).sum(axis=1)


def draw(marks, curves, path):
    """Errors over steps and over seconds."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(8.6, 4.2), dpi=150, layout="constrained")
    axes = fig.subplots(1, 2, sharey=True)
    for (name, (error, seconds)), colour, mark in zip(
        curves.items(), canvas.LINES, "sov^", strict=False
    ):
        for ax, along in zip(axes, (marks, seconds), strict=True):
            ax.plot(along, error, color=colour, marker=mark, ms=5, lw=1.4, label=name)
    for ax, label in zip(axes, ("steps", "CPU seconds"), strict=True):
        ax.set(xscale="log", yscale="log", xlabel=label)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color="0.9", lw=0.6, which="both")
        ax.set_axisbelow(True)
    axes[0].set_xticks(marks, [str(mark) for mark in marks])
    axes[0].set_xticks([], minor=True)
    axes[0].set_ylabel("error of f (nMSE)")
    lines = axes[0].get_legend_handles_labels()
    fig.legend(*lines, loc="outside lower center", ncols=2, frameon=False)
    fig.savefig(path)


if __name__ == "__main__":
    main(path=sys.argv[1] if len(sys.argv) > 1 else None)
