"""A gap in the data: what CaGP is sure of, and what a sparse GP is sure of without cause.

Rows along one input with a gap, and each method with the hyper-parameters that its own training
finds.  A sparse GP of as many inducing inputs as CaGP has actions is nearly certain at the one in
the gap.  The variance of CaGP is that of the exact GP with the same hyper-parameters, and above it
what more actions would take away.
"""

import sys

import numpy as np

import daskgp
from daskgp import kernels
from daskgp.plot import canvas

GAP = 0.5, 0.75
NOISE_VARIANCE = 0.02
PLAIN = {"mean": "zero", "standardize": False, "progress": False}


def main(rows=100, number=6, places=301, path=None, seed=5):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1 - GAP[1] + GAP[0], rows)
    X = np.sort(X + np.where(GAP[0] < X, GAP[1] - GAP[0], 0))[:, None]
    x = np.linspace(0, 1, places)
    known = kernels.Matern32(lengthscale=0.15)
    f = drawn(known, np.concatenate([X, x[:, None]]), rng)
    y, truth = f[:rows] + np.sqrt(NOISE_VARIANCE) * rng.standard_normal(rows), f[rows:]

    kernel, grid = kernels.Matern32(), np.linspace(0.02, 0.98, number)[:, None]
    models = {
        "exact GP": daskgp.ExactGP(kernel, **PLAIN),
        f"SGPR, {number} inducing inputs": daskgp.SGPR(kernel, inducing=grid, **PLAIN),
        f"CaGP, {number} learned actions": daskgp.CaGP(kernel, n_actions=number, **PLAIN),
        f"CaGP, {number} CG actions": daskgp.CaGP(kernel, n_actions=number, actions="cg", **PLAIN),
    }
    found = {}
    for name, model in models.items():
        model.fit(X, y)
        noise = model.noise_variance_
        exact = daskgp.ExactGP(model.kernel_, noise_variance=noise, optimizer=None, **PLAIN)
        _, data = exact.fit(X, y).predict(x[:, None], return_std=True)
        mean, std = model.predict(x[:, None], return_std=True)
        part = np.zeros(places)
        if isinstance(model, daskgp.CaGP):
            part = model.predict(x[:, None], return_computational=True)[1]
        found[name] = {"mean": mean, "std": std, "data": data, "part": part, "noise": noise}
        at = np.argmin(np.abs(x - grid[np.abs(grid - np.mean(GAP)).argmin()]))
        print(
            f"{name:24s} noise variance {noise:.3f}, lengthscale {model.kernel_.lengthscale:.2f}; "
            f"std of f at {x[at]:.2f}: {std[at]:.2f}, exact {data[at]:.2f}, computational "
            f"{part[at]:.2f}; in the middle of the gap {std[np.argmin(abs(x - 0.625))]:.2f}"
        )
    if path:
        draw(x, truth, X[:, 0], y, grid[:, 0], found, path)
    return found


def drawn(kernel, X, rng):
    """Draw from the GP at rows X, without noise."""
    factor = np.linalg.cholesky(kernel(X) + 1e-8 * np.eye(len(X)))
    return factor @ rng.standard_normal(len(X))


def draw(x, truth, X, y, grid, found, path):
    """Posteriors above, their variance by its parts below."""
    from matplotlib.figure import Figure

    blue, orange = canvas.LINES[:2]
    fig = Figure(figsize=(9, 6.4), dpi=150, layout="constrained")
    axes = fig.subplots(2, len(found), sharex=True, sharey="row", height_ratios=(3, 2))
    for (above, below), (name, of) in zip(axes.T, found.items(), strict=True):
        mean, std, whole = of["mean"], of["std"], np.sqrt(of["std"] ** 2 + of["noise"])
        for spread, shade in ((whole, 0.15), (std, 0.35)):
            label = "f ± 2 std" if spread is std else "observation ± 2 std"
            low, high = mean - 2 * spread, mean + 2 * spread
            above.fill_between(x, low, high, color=blue, alpha=shade, lw=0, label=label)
        above.plot(x, mean, color=blue, lw=1.4, label="mean")
        above.plot(x, truth, color="black", lw=1, ls="--", label="truth")
        above.plot(X, y, ls="", marker=".", ms=3, color="0.4", label="rows")
        above.set_title(name.replace(", ", ",\n"), fontsize="medium")
        below.set_xlabel("x")
        data, variance = of["data"] ** 2, of["std"] ** 2
        if name.startswith("SGPR"):
            for ax in (above, below):
                bottom, low = ax.get_xaxis_transform(), np.full(len(grid), 0.04)
                ax.plot(
                    grid, low, "^", color=canvas.ALARM, transform=bottom, label="inducing inputs"
                )
            below.plot(x, variance, color=canvas.ALARM, lw=1.4, label="variance of SGPR")
            data_label = "exact GP, same hyper-parameters"
            below.plot(x, data, color="black", lw=1.2, ls=":", label=data_label)
        else:
            below.fill_between(x, 0, data, color=blue, alpha=0.35, lw=0, label="data part")
            below.plot(x, variance, color="black", lw=1, label="whole variance")
        if name.startswith("CaGP"):
            below.fill_between(
                x, data, variance, color=orange, alpha=0.6, lw=0, hatch="////", edgecolor="white",
                label="computational part",
            )  # fmt: skip
        for ax in (above, below):
            ax.spines[["top", "right"]].set_visible(False)
            ax.grid(color="0.9", lw=0.6)
            ax.set_axisbelow(True)
    axes[1, 0].set_ylim(-0.1 * max((of["std"] ** 2).max() for of in found.values()), None)
    axes[0, 0].set_ylabel("y")
    axes[1, 0].set_ylabel("variance of f")
    named = {}
    for ax in axes.flat:
        drawn, labels = ax.get_legend_handles_labels()
        named |= dict(zip(labels, drawn, strict=True))
    fig.legend(
        named.values(), named, loc="outside lower center", ncols=4, fontsize="small", frameon=False
    )
    fig.savefig(path)


if __name__ == "__main__":
    main(path=sys.argv[1] if len(sys.argv) > 1 else None)
