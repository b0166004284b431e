"""A mean of many functions and a covariance of few, beside models whose functions do both.

Noisy observations of a sinc that waves more often than ten functions can follow, after Figure 1 of
Cheng & Boots (2017).  With ten functions SVGP takes what it cannot follow for noise.  The
decoupled GP has a hundred in its mean, which is then nearly that of SVGP with a hundred, and ten
in its covariance, which does not know that the mean knows more: its band is wide between them.
"""

import sys

import numpy as np

import daskgp
from daskgp import kernels
from daskgp.plot import canvas

NOISE = 0.1
WIDTH = 10.0


def main(rows=500, few=10, many=100, steps=1_000, places=601, path=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-WIDTH, WIDTH, (rows, 1))
    y = np.sinc(X[:, 0]) + NOISE * rng.standard_normal(rows)
    x = np.linspace(-1.2 * WIDTH, 1.2 * WIDTH, places)
    truth, inside = np.sinc(x), np.abs(x) <= WIDTH

    kernel, settings = kernels.RBF(), {"max_iter": steps, "progress": False}
    models = {
        f"SVGP, {few} functions": daskgp.SVGP(kernel, n_inducing=few, **settings),
        f"DecoupledGP, {many} in the mean, {few} in the covariance": daskgp.DecoupledGP(
            kernel, n_mean=many, n_covariance=few, **settings
        ),
        f"SVGP, {many} functions": daskgp.SVGP(kernel, n_inducing=many, **settings),
    }
    found = {}
    for name, model in models.items():
        mean, std = model.fit(X, y).predict(x[:, None], return_std=True)
        noise = np.sqrt(model.noise_variance_) * y.std()
        points = model.covariance_points_ if "Decoupled" in name else model.inducing_
        found[name] = {"mean": mean, "std": std, "noise": noise, "points": points[:, 0]}
        error = np.sqrt(np.mean((mean - truth)[inside] ** 2))
        print(
            f"{name:56s} RMSE of f {error:.3f}, mean std of f {std[inside].mean():.3f}, "
            f"std of the noise found {noise:.3f}"
        )
    if path:
        draw(x, truth, X[:, 0], y, found, path)
    return found


def draw(x, truth, X, y, found, path):
    """Plot one panel per model: truth, rows, mean, and two standard deviations."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(9, 3.9), dpi=150, layout="constrained")
    axes = fig.subplots(1, len(found), sharex=True, sharey=True)
    for ax, (name, of) in zip(axes, found.items(), strict=True):
        mean, std = of["mean"], of["std"]
        for spread, shade, what in (
            (np.hypot(std, of["noise"]), 0.15, "an observation ± 2 std"),
            (std, 0.35, "f ± 2 std"),
        ):
            low, high = mean - 2 * spread, mean + 2 * spread
            ax.fill_between(x, low, high, color=canvas.INK, alpha=shade, lw=0, label=what)
        ax.plot(X, y, ls="", marker=".", ms=2.5, color="0.5", label="rows")
        ax.plot(x, truth, color="black", lw=1, ls="--", label="truth")
        ax.plot(x, mean, color=canvas.LINES[1], lw=1.4, label="mean")
        bottom = np.full(len(of["points"]), 0.03)
        ax.plot(
            of["points"], bottom, "^", ms=4, color=canvas.ALARM, transform=ax.get_xaxis_transform(),
            label="functions of the covariance", clip_on=False,
        )  # fmt: skip
        ax.set(title=name.replace(", ", ",\n", 1), xlabel="x", xlim=(x[0], x[-1]))
        ax.title.set_fontsize("medium")
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color="0.9", lw=0.6)
        ax.set_axisbelow(True)
    axes[0].set_ylabel("y")
    labels = axes[0].get_legend_handles_labels()
    fig.legend(*labels, loc="outside lower center", ncols=3, frameon=False)
    fig.savefig(path)


if __name__ == "__main__":
    main(path=sys.argv[1] if len(sys.argv) > 1 else None)
