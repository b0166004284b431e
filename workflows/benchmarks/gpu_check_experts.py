"""Numbers of combined experts on a GPU against NumPy's in float64.

    python workflows/benchmarks/gpu_check_experts.py

As ``gpu_check.py`` for the other methods: values of experts, weights and predictions by every rule,
and exact experts side by side; it ends with an error where a difference is beyond tolerance.
"""

from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import harness
from peers import arrays
from peers.arrays import D, Machine, blocks, places

from daskgp.models.exact import Exact
from daskgp.models.experts import inner_products
from daskgp.models.experts.ensemble import HeldExperts
from daskgp.models.experts.exact import ExactExperts
from daskgp.models.experts.sparse import SparseExperts
from daskgp.models.inducing import Prepared
from daskgp.models.method import Pass
from daskgp.models.values import Block, Piece, Theta, add, move

INDUCING, EXPERTS = 24, arrays.BLOCKS
RULES = ("poe", "gpoe", "bcm", "rbcm", "grbcm", "npae", "optimal")


@dataclass(frozen=True, eq=False)
class Alone:
    """Rows of one expert, over which a method sums without Dask."""

    rows: Block

    def sum(self, over: Pass, prepared: Prepared) -> Any:
        """Return what a pass makes of all rows, on the host."""
        return move(over.function(Piece(self.rows), prepared), "cpu")


def exact(model: ExactExperts, at: Theta, own: list[Block], machine: Machine) -> tuple[list, Any]:
    """Return the summaries of exact experts and their state, on the host."""
    each, cross = model.summarise_many(at, own), None
    if model.needs_cross:
        weights = [machine.xp.asarray(expert.weights) for expert in each]
        functions = list(zip([block.X for block in own], weights, strict=True))
        sums = [
            inner_products.cross_sums(at, block, alpha, i, functions, len(own))
            for i, (block, (_, alpha)) in enumerate(zip(own, functions, strict=True))
        ]
        cross = reduce(add, sums)
    return each, model.posterior(at, each, cross)


def sparse(model: SparseExperts, at: Theta, own: list[Block], _: Machine) -> tuple[list, Any]:
    """Return the summaries of sparse experts and their state, on the host."""
    prepared = model.prepare(at)
    each = [model.summarise(Alone(block), prepared) for block in own]
    return each, model.posterior(move(prepared, "cpu"), each)


def combined(model: Any, inputs: int, machine: Machine, dtype: str) -> list:
    """Return values of experts and predictions of a method that combines experts."""
    at, own = machine.theta(D, inputs), blocks(machine, dtype)
    each, state = (sparse if inputs else exact)(model, at, own, machine)
    state = move(state, machine.device)
    read = HeldExperts(model, at, state, own) if model.keeps_rows else None
    moments = model.predict(at, state, places(machine, dtype), read, "variance")
    return [*(expert.value for expert in each), moments.mean, moments.variance]


def together(machine: Machine, dtype: str) -> list:
    """Return objectives, gradients and weights of exact experts side by side."""
    at, own = machine.theta(D), blocks(machine, dtype)
    own.append(Block(own[0].X[1:], own[0].y[1:]))  # of another size
    objectives = Exact().objective_many(at, own)
    each = ExactExperts(len(own)).summarise_many(at, own)
    gradients = [found.gradient.to_vector(False) for found in objectives]
    return [*(f.value for f in objectives), *gradients, *(part for one in each for part in one)]


CHECKS: dict[str, arrays.Check] = {
    "exact experts, side by side": together,
    **{
        f"exact experts, {rule}": partial(combined, ExactExperts(EXPERTS, rule), 0)
        for rule in RULES
    },
    **{
        f"sparse experts, {rule}": partial(
            combined, SparseExperts(EXPERTS, rule, jitter=1e-6), INDUCING
        )
        for rule in RULES
    },
}


keys, measure, table = arrays.keys, arrays.checking(CHECKS), arrays.table
harness.command(globals(), array_module="cupy")
