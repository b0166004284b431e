"""The variance of LMA at new places: two ways to extend the model to them.

Training rows lie in six cells of the unit square, which follow one another along a snake.  Given
its covariance with both neighbours in the line as it is, a place counts what they have in common
twice, and its variance can come out negative.  Conditioned on the same rows with all their
covariances it cannot.

The method is called here as Dask calls it, without Dask: a summary a block, their sum, a solve,
and predictions from the rows around each block.
"""

import functools
import sys

import numpy as np

from daskgp import kernels
from daskgp.models.markov.lma import LMA
from daskgp.models.values import Block, Theta
from daskgp.plot import fields

CELLS = ((0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (1, 2))
SIDES = np.array([1 / 2, 1 / 3])


def cell_of(X):
    """Return the position along the snake (n,) of the cell that contains each row."""
    cells = np.minimum(X / SIDES, [1.999, 2.999]).astype(int)
    return np.array([CELLS.index(tuple(cell)) for cell in cells.tolist()])


def variance(model, theta, blocks, places):
    """Posterior variance at places, each from the blocks on both sides of its own."""
    near = [blocks[i + 1 : i + 1 + model.markov_order] for i in range(len(blocks))]
    prepared = model.prepare(theta)
    summaries = [model.local(prepared, *pair) for pair in zip(blocks, near, strict=True)]
    state = model.posterior(prepared, functools.reduce(model.combine, summaries))
    found, own = np.empty(len(places)), cell_of(places)
    for i in range(len(blocks)):
        around = blocks[max(i - model.markov_order, 0) : i + model.markov_order + 1]
        rows = model.condition(theta, state, around)
        found[own == i] = model.predict(
            theta, state, places[own == i], rows, want="variance"
        ).variance
    return found


def main(rows=20, grid=120, path=None, seed=0):
    rng = np.random.default_rng(seed)
    inputs = [(cell + rng.uniform(size=(rows, 2))) * SIDES for cell in np.array(CELLS)]
    blocks = [Block(X, np.zeros((rows, 1))) for X in inputs]  # the variance needs no targets
    theta = Theta(kernels.Matern32(lengthscale=0.2), 0.01, inputs=rng.uniform(size=(4, 2)))

    side = (np.arange(grid) + 0.5) / grid
    places = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    found = {
        form: variance(LMA(markov_order=1, prediction=form), theta, blocks, places)
        for form in ("paper", "consistent")
    }
    for form, values in found.items():
        print(f"{form:10s}  variance {values.min():.4f} to {values.max():.4f}, prior 1")
    if path:
        fields.maps(
            places,
            {f'prediction="{form}"': values for form, values in found.items()},
            one_scale=True,
            names=("$x_1$", "$x_2$"),
            label="posterior variance",
            below=0.0,
            marked=np.concatenate(inputs),
            lines=[(np.array(CELLS) + 0.5) * SIDES],
            path=path,
        )
    return found


if __name__ == "__main__":
    main(path=sys.argv[1] if len(sys.argv) > 1 else None)
