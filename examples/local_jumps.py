"""One GP per block predicts with jumps at the borders of the blocks; LMA joins them.

400 rows of 1 + cos(x) with noise in four blocks, and 16 support inputs: the toy of the paper on
LMA.  All that is drawn is the error of the mean, with two standard deviations around it.
"""

import itertools
import sys

import numpy as np

import daskgp
from daskgp import kernels
from daskgp.plot import curves

CUTS = (-2.5, 0.0, 2.5)


def truth(x):
    return 1 + np.cos(x)


def independent(kernel, noise, x, y, places):
    """Mean and standard deviation of an exact GP per block, which sees its own rows alone."""
    mean, std = np.empty(len(places)), np.empty(len(places))
    rows, asked = np.digitize(x, CUTS), np.digitize(places, CUTS)
    for block in range(len(CUTS) + 1):
        own, inside = rows == block, asked == block
        settings = {"noise_variance": noise, "standardize": False, "optimizer": None}
        model = daskgp.ExactGP(kernel, **settings).fit(x[own, None], y[own])
        mean[inside], std[inside] = model.predict(places[inside, None], return_std=True)
    return mean, std


def main(rows=100, path=None, seed=0):
    rng = np.random.default_rng(seed)
    edges = (-5.0, *CUTS, 5.0)
    x = np.concatenate([rng.uniform(*edge, rows) for edge in itertools.pairwise(edges)])
    y = truth(x) + 0.1 * rng.standard_normal(len(x))

    model = daskgp.LMA(
        kernels.RBF(),
        support=np.linspace(-5, 5, 16)[:, None],
        block_rows=rows,
        markov_order=1,
        neighbours="order",
        standardize=False,
    ).fit(x[:, None], y)
    print(f"{model.n_blocks_} blocks, {model.kernel_!r}, noise {model.noise_variance_:.4f}")

    # every cut from both of its sides
    sides = np.repeat(CUTS, 2) + np.tile([-1e-9, 1e-9], len(CUTS))
    places = np.sort(np.concatenate([np.linspace(-5, 5, 401), sides]))
    posteriors = {
        "one GP per block": independent(model.kernel_, model.noise_variance_, x, y, places),
        "LMA, B = 1": model.predict(places[:, None], return_std=True),
    }
    jumps = {}
    at = np.searchsorted(places, sides)
    for name, (mean, _) in posteriors.items():
        jumps[name] = np.abs(np.diff(mean[at])[::2])
        sizes = ", ".join(f"{jump:.1g}" for jump in jumps[name])
        print(f"{name:12s}  jumps of the mean at the cuts: {sizes}")
    if path:
        errors = {name: (mean - truth(places), std) for name, (mean, std) in posteriors.items()}
        curves.posterior_lines(
            places, errors, breaks=CUTS, names=("x", "prediction − true function"), path=path
        )
    return jumps


if __name__ == "__main__":
    main(path=sys.argv[1] if len(sys.argv) > 1 else None)
