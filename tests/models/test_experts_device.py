"""Combined experts on a device that refuses what a GPU refuses: the numbers of the host."""

import dataclasses
import itertools

import numpy as np
import pytest
from effective import effective

from daskgp import ExpertsGP, kernels, testing
from daskgp.data import Rows, partition
from daskgp.data.partition import Span
from daskgp.fit.experts import Objectives
from daskgp.fit.rounds import EXPERT_TASKS, Rounds
from daskgp.models import REGISTRY
from daskgp.models.method import Pass
from daskgp.models.scaling import identity
from daskgp.models.sparse import sparse_grid
from daskgp.models.sparse.opticom import OptiCom
from daskgp.models.values import Block, Theta, add_lists, move
from daskgp.runtime.executor import Executor
from tests.agree import assert_close

KERNEL = kernels.Matern32(lengthscale=(0.5, 0.8), variance=1.4) + kernels.Linear(variance=0.3)
SIZES = (7, 1, 9)
SETTINGS = {
    **{rule: {"aggregation": rule} for rule in ("poe", "gpoe", "bcm", "rbcm", "grbcm", "npae")},
    "noisy poe": {"aggregation": "poe", "noise_in_experts": True},
    "optimal": {},
    "paper": {"weights": "paper", "variance": "paper"},
    "share": {"weights": "paper", "central": 0.6},
}

every_kind = pytest.mark.parametrize("kind", ["exact-experts", "sparse-experts"])
every_setting = pytest.mark.parametrize("chosen", SETTINGS.values(), ids=SETTINGS)


pytestmark = pytest.mark.usefixtures("gpu")


def problem(n=17, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, 2))
    y = np.sin(5 * X @ np.ones((2, 2)) + np.arange(2)) + 0.2 * rng.standard_normal((n, 2))
    return X, y


def theta_of(kind):
    Z = np.random.default_rng(1).uniform(0, 1, (5, 2)) if kind == "sparse-experts" else None
    return Theta(KERNEL, 0.1, Z)


def rounds_of(kind, device, dtype="float64", read_rows=4):
    edges = np.concatenate([[0], np.cumsum(SIZES)]).tolist()
    spans = tuple(itertools.starmap(Span, itertools.pairwise(edges)))
    X, y = problem()
    X[3, 0] = np.nan
    rows = Rows(X, y, None, ("a", "b"), ("u", "v"))
    return Rounds(
        rows,
        partition.alone(spans),
        identity(2, 2),
        Executor(None, False),
        dtype,
        device,
        read_rows=read_rows if REGISTRY[kind].divisible else None,
        least_tasks=EXPERT_TASKS,
        seed=3,
    )


def assert_predicts_alike(gpu, model, theta, state, near=(None, None)):
    T, _ = problem(6, seed=2)
    theta_there, state_there = move(theta, "gpu"), move(state, "gpu")
    optimal = getattr(model, "aggregation", "optimal") == "optimal"
    joint = optimal and not (model.name == "exact-experts" and model.variance == "paper")
    for want in ("mean", "variance", *(("covariance",) if joint else ())):
        wanted = model.predict(theta, state, T, near[0], want)
        found = model.predict(theta_there, state_there, gpu.asarray(T), near[1], want)
        assert isinstance(found.mean, gpu.ndarray)
        assert_close(move(found, "cpu"), wanted)


def summary_of(rows, model, theta):
    """What the combination needs of one expert."""
    if model.divisible:
        return model.summarise(rows, model.prepare(theta))
    return model.solve(theta, rows)


def rows_there(piece):
    """The rows as a pass is handed them."""
    return [piece.own]


def solved(rounds, model, theta):
    """Summaries of the experts, the state and the value on the host, and each expert's rows."""
    alone = dataclasses.replace(model, n_experts=1) if model.divisible else type(model)(1, "poe")
    each = rounds.map(summary_of, alone, theta)
    state, value = model.solve(theta, rounds)
    blocks = [block for (block,) in rounds.gather(Pass("rows", rows_there, add_lists, cut=False))]
    return each, state, value, blocks


@every_setting
@every_kind
def test_ensembles(gpu, kind, chosen):
    model, theta = REGISTRY[kind](n_experts=len(SIZES), **chosen), theta_of(kind)
    each, state, value, blocks = solved(rounds_of(kind, "cpu"), model, theta)
    found, solved_there, value_there, there = solved(rounds_of(kind, "gpu"), model, theta)
    assert isinstance(there[0].X, gpu.ndarray)
    assert_close(found, each)
    assert_close(value_there, value)
    assert_close(solved_there, state, rtol=1e-6)
    near = (
        testing.HeldExperts(model, theta, state, blocks),
        testing.HeldExperts(model, move(theta, "gpu"), move(state, "gpu"), there),
    )
    assert_predicts_alike(gpu, model, theta, state, near)


@pytest.mark.parametrize("variance", ["linear", "paper"])
def test_opticom(gpu, variance):
    model, block = OptiCom(2, variance=variance), Block(*problem())
    theta = Theta(KERNEL, 0.1, sparse_grid.build(2, 2).points)
    prepared = model.prepare(theta)
    total = model.local(prepared, block)
    found = model.local(move(prepared, "gpu"), move(block, "gpu"))
    assert isinstance(found.gram, gpu.ndarray)
    assert_close(move(found, "cpu"), total)
    assert_predicts_alike(gpu, model, theta, model.posterior(prepared, total))


@pytest.mark.parametrize("read_rows", [4, 100])
@every_kind
def test_objectives(kind, read_rows):
    def found(device):
        rounds, theta = rounds_of(kind, device, read_rows=read_rows), theta_of(kind)
        model = REGISTRY[kind](n_experts=len(SIZES))
        each = Objectives(model, rounds, theta, with_inputs=theta.inputs is not None)
        at = theta.to_vector(each.with_inputs)
        return each.map(lambda evaluate, vector: evaluate(vector), range(3), [at, at + 0.1, at])

    assert_close(found("gpu"), found("cpu"))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("expert", ["exact", "sparse"])
@pytest.mark.parametrize("aggregation", ["grbcm", "npae", "optimal"])
def test_fit_and_predict(expert, aggregation, dtype):
    X, y = problem(40)

    def found(device):
        gp = effective(
            ExpertsGP,
            expert=expert,
            aggregation=aggregation,
            n_experts=3,
            n_inducing=6,
            max_iter=1,
            dtype=dtype,
            device=device,
            progress=False,
        )
        return gp.fit(X, y).predict(X[:5] + 0.01, return_std=True)

    assert_close(found("gpu"), found("cpu"), 1e-6 if dtype == "float64" else 1e-2)
