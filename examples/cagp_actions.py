"""Actions of CaGP: how near they come to the leading eigenvectors, and whether that matters.

Rows of a field on the unit square.  While a fit goes on, the distance between the space that its
actions span and that of as many leading eigenvectors of the kernel matrix, which leave the least
entropy, beside the bound.  Distances are Grassmann's: the norm of the principal angles.
"""

import sys

import numpy as np
from scipy.linalg import subspace_angles

import daskgp
from daskgp import kernels
from daskgp.plot import canvas

NOISE_VARIANCE = 0.02
ACTIONS = {
    "CG": {"actions": "cg"},
    "learned, nearby rows": {},
    "learned, rows as they lie": {"order": None},
    "random": {"actions": "random"},
}


def main(rows=300, number=16, steps=(0, 1, 2, 4, 8, 16, 32), path=None, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(rows, 2))
    truth = kernels.RBF(lengthscale=0.3)
    factor = np.linalg.cholesky(truth(X) + NOISE_VARIANCE * np.eye(rows))
    y = factor @ rng.standard_normal(rows)

    distance, bound, last = {}, {}, {}
    for name, choice in ACTIONS.items():
        distance[name], bound[name] = np.empty(len(steps)), np.empty(len(steps))
        for i, most in enumerate(steps):  # a fit begins as one that was allowed fewer steps
            training = {"optimizer": "l-bfgs", "max_iter": most} if most else {"optimizer": None}
            if most and choice.get("actions") in ("cg", "eigen"):
                training["refreshes"] = 1
            model = daskgp.CaGP(
                kernels.RBF(lengthscale=0.5, variance=1.0),
                n_actions=number,
                **training,
                mean="zero",
                standardize=False,
                progress=False,
                **choice,
            ).fit(X, y)
            distance[name][i] = angle(model, number)
            bound[name][i] = model.objective_ / rows
        last[name] = model
        print(f"{name:26s} distance " + " ".join(f"{value:5.2f}" for value in distance[name]))
        print(f"{'':26s} bound    " + " ".join(f"{value:5.2f}" for value in bound[name]))
    if path:
        draw(last, distance, bound, steps, number, path)
    return distance, bound


def dense(model):
    """Actions (n, t) of a fit as an array."""
    S = model.actions_
    return S if isinstance(S, np.ndarray) else S.toarray()


def leading(model, number):
    """Return the leading eigenvectors (n, t) of the kernel matrix of a fit, the largest first."""
    return np.linalg.eigh(model.kernel_(model.points_))[1][:, : -number - 1 : -1]


def angle(model, number):
    """Grassmann distance of the actions of a fit to the leading eigenvectors."""
    return np.linalg.norm(subspace_angles(leading(model, number), dense(model)))


def draw(last, distance, bound, steps, number, path):
    """One action of each kind, and what becomes of all."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(8.6, 6.6), dpi=150, layout="constrained")
    fig.get_layout_engine().set(w_pad=0.05, h_pad=0.05, wspace=0.04)
    above, below = fig.subfigures(2, 1, height_ratios=(9, 14))
    cg, near, lie, _ = last.values()
    own = {
        "an eigenvector": (cg.points_, leading(cg, number)[:, 4]),
        "a CG action": (cg.points_, dense(cg)[:, 4]),
        "learned,\nnearby rows": (near.points_, dense(near)[:, number // 2]),
        "learned,\nrows as they lie": (lie.points_, dense(lie)[:, number // 2]),
    }
    drawn = above.subplots(1, 4)
    for ax, (title, (X, weights)) in zip(drawn, own.items(), strict=True):
        there, most = weights != 0, np.abs(weights).max()
        ax.scatter(*X[~there].T, s=5, color="0.85")
        image = ax.scatter(
            *X[there].T, c=weights[there] / most, s=14, cmap="PuOr", vmin=-1, vmax=1,
            edgecolors="0.3", linewidths=0.3,
        )  # fmt: skip
        ax.set(xticks=[], yticks=[], aspect="equal", title=title, xlabel="$x_1$")
        ax.title.set_fontsize("medium")
        ax.spines[:].set_color("0.7")
    drawn[0].set_ylabel("$x_2$")
    bar = above.colorbar(image, ax=drawn, shrink=0.8, aspect=20)
    bar.set_label("weight of a row / largest weight")
    panels = {"Grassmann distance to the eigenvectors": distance, "bound per row (nats)": bound}
    marks, along = "osD^", np.arange(len(steps))
    axes = below.subplots(1, 2)
    for ax, (label, lines) in zip(axes, panels.items(), strict=True):
        for (name, values), mark, colour in zip(lines.items(), marks, canvas.LINES, strict=False):
            ax.plot(along, values, color=colour, marker=mark, ms=5, lw=1.4, label=name)
        ax.set_xticks(along, [str(step) for step in steps])
        ax.set_xlabel("iterations of training")
        ax.set_ylabel(label)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color="0.9", lw=0.6)
        ax.set_axisbelow(True)
    axes[0].set_ylim(0, 1.06 * max(values.max() for values in distance.values()))
    lines = axes[0].get_legend_handles_labels()
    below.legend(*lines, loc="outside lower center", ncols=4, frameon=False)
    fig.savefig(path)


if __name__ == "__main__":
    main(path=sys.argv[1] if len(sys.argv) > 1 else None)
