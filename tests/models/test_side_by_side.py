"""Small problems side by side on a device: the numbers of one by one on the host, in few steps."""

import itertools

import numpy as np
import pytest

from daskgp import kernels
from daskgp.models.exact import Exact
from daskgp.models.experts.exact import ExactExperts
from daskgp.models.markov.lma import LMA
from daskgp.models.values import Block, Theta, move
from tests.agree import assert_close

ARD = kernels.Matern32(lengthscale=(0.5, 0.8), variance=1.4)
SUM = ARD + 0.3 * kernels.Linear(variance=0.3)
SIZES = {
    "ragged": (6, 6, 6, 6, 4),
    "one block": (5,),
    "one row": (1, 1, 1),
    "few rows": (2, 2, 3),  # fewer than there are support inputs
    "mixed": (3, 5, 3, 5),
}
TIGHT = {"rtol": 1e-10, "atol": 1e-10}

every_size = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


@pytest.fixture(autouse=True)
def gpu(gpu):
    """It notes the shapes of what it factors."""
    right, gpu.factored = gpu.linalg.cholesky, []
    gpu.linalg.cholesky = lambda A: gpu.factored.append(A.shape) or right(A)
    return gpu


def blocks_of(sizes, dtype="float64"):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (sum(sizes), 2))
    y = np.sin(5 * X @ np.ones((2, 2)) + np.arange(2)) + 0.2 * rng.standard_normal(X.shape)
    edges = np.cumsum((0, *sizes))
    return [Block(X[a:b].astype(dtype), y[a:b]) for a, b in itertools.pairwise(edges)]


def there(value):
    return move(value, "gpu")


def there_all(values):
    return [there(value) for value in values]


# --- windows


def windows_of(sizes, reach=1, dtype="float64"):
    blocks = blocks_of(sizes, dtype)
    return [(block, tuple(blocks[i + 1 : i + 1 + reach])) for i, block in enumerate(blocks)]


def moved(windows):
    return [(there(block), tuple(map(there, near))) for block, near in windows]


def prepared_of(kernel=ARD, m=5):
    return LMA().prepare(Theta(kernel, 0.1, np.random.default_rng(1).uniform(0, 1, (m, 2))))


def one_by_one(prepared, windows):
    """Sum of the summaries, the cotangent by it and the gradient, on the host."""
    model = LMA()
    total = model.local_many(prepared, windows)
    objective = model.objective(prepared, total)
    each = [
        model.local_vjp(prepared, block, objective.cotangent, near).to_vector(True)
        for block, near in windows
    ]
    return total, objective.cotangent, sum(each)


@pytest.mark.parametrize("reach", [0, 1, 2])
@pytest.mark.parametrize("kernel", [ARD, SUM], ids=["matern", "sum"])
@every_size
def test_gradient_of_windows(sizes, kernel, reach):
    prepared, windows = prepared_of(kernel), windows_of(sizes, reach)
    total, cotangent, wanted = one_by_one(prepared, windows)
    given = there(prepared), moved(windows)
    found, factored = LMA().local_and_windows(*given)
    assert_close(tuple(move(found, "cpu")), tuple(total), **TIGHT)
    for kept in (None, factored):
        gradient = LMA().local_vjp_many(*given, there(cotangent), kept)
        assert_close(gradient.to_vector(True), wanted, **TIGHT)


@every_size
def test_windows_that_are_kept_are_those_of_one_by_one(sizes):
    prepared, windows = prepared_of(), windows_of(sizes)
    _, factored = LMA().local_and_windows(there(prepared), moved(windows))
    for (block, near), window in zip(windows, factored, strict=True):
        _, wanted = LMA().local_and_window(prepared, block, near)
        assert_close(tuple(move(window, "cpu")), tuple(wanted), **TIGHT)


def test_several_windows_on_the_host_are_one_after_another():
    prepared, windows = prepared_of(), windows_of((3, 3, 2))
    total, cotangent, wanted = one_by_one(prepared, windows)
    found, factored = LMA().local_and_windows(prepared, windows)
    for kept in (None, factored):
        gradient = LMA().local_vjp_many(prepared, windows, cotangent, kept)
        np.testing.assert_array_equal(gradient.to_vector(True), wanted)
    assert_close(tuple(found), tuple(total), 0, 0)


def test_windows_of_float32_rows_keep_their_sums_in_float64(gpu):
    prepared = prepared_of()
    _, cotangent, wanted = one_by_one(prepared, windows_of((6, 6, 6)))
    given = there(prepared), moved(windows_of((6, 6, 6), dtype="float32"))
    total, factored = LMA().local_and_windows(*given)
    assert {a.dtype for a in (total.gram, *factored[0][2:])} == {np.dtype("float64")}
    gradient = LMA().local_vjp_many(*given, there(cotangent), factored).to_vector(True)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=1e-3)


def test_windows_of_one_shape_are_factored_by_one_call(gpu):
    given = there(prepared_of()), moved(windows_of(SIZES["ragged"]))
    gpu.moves = 0
    LMA().local_and_windows(*given)
    assert gpu.factored == [(3, 12, 12), (10, 10), (4, 4)]
    assert gpu.moves == 2 + 3 + 3  # whether it is finite, log|C|; of a factor alone its diagonal


def test_another_window_brings_no_more_back_than_its_kernels_gradient(gpu):
    prepared = prepared_of()
    _, cotangent, _ = one_by_one(prepared, windows_of((4, 4)))
    moves = []
    for count in (1, 4):
        windows = moved(windows_of((4,) * count, reach=0))
        _, factored = LMA().local_and_windows(there(prepared), windows)
        gpu.moves = 0
        gpu.factored.clear()
        LMA().local_vjp_many(there(prepared), windows, there(cotangent), factored)
        moves.append(gpu.moves)
        assert gpu.factored == []
    assert moves[1] - moves[0] == 3 * moves_of_a_pull(gpu)


def moves_of_a_pull(gpu):
    X = there(blocks_of((4,))[0].X)
    gpu.moves = 0
    ARD.vjp(X, None, gpu.ones((4, 4)))
    return gpu.moves


# --- exact experts

THETA = Theta(SUM, 0.1)


def rows_of(sizes):
    return list(blocks_of(sizes))


@every_size
def test_objectives_of_exact_experts(sizes):
    wanted = [Exact().objective(THETA, rows) for rows in rows_of(sizes)]
    for found in (
        Exact().objective_many(THETA, there_all(rows_of(sizes))),
        [Exact().objective(THETA, there(rows)) for rows in rows_of(sizes)],
    ):
        assert [each.cotangent for each in found] == [None] * len(sizes)
        numbers = [(each.value, tuple(each.gradient)) for each in found]
        assert_close(numbers, [(each.value, tuple(each.gradient)) for each in wanted], **TIGHT)


@every_size
def test_summaries_of_exact_experts(sizes):
    model = ExactExperts(len(sizes))
    wanted = [model.summarise(THETA, block) for block in blocks_of(sizes)]
    found = model.summarise_many(THETA, there_all(blocks_of(sizes)))
    assert {type(each.value) for each in found} == {float}
    assert_close([tuple(each) for each in found], [tuple(each) for each in wanted], **TIGHT)


def test_several_experts_on_the_host_are_one_after_another():
    blocks, model = blocks_of((4, 4, 3)), ExactExperts(3)
    wanted = [model.summarise(THETA, block) for block in blocks]
    for found, right in zip(model.summarise_many(THETA, blocks), wanted, strict=True):
        assert_close(tuple(found), tuple(right), 0, 0)
    many = Exact().objective_many(THETA, rows_of((4, 4, 3)))
    for found, rows in zip(many, rows_of((4, 4, 3)), strict=True):
        right = Exact().objective(THETA, rows)
        assert_close(
            (found.value, tuple(found.gradient)), (right.value, tuple(right.gradient)), 0, 0
        )


def test_experts_of_one_size_are_factored_by_one_call(gpu):
    blocks = there_all(blocks_of((4, 5, 4, 5, 4, 4)))
    gpu.moves = 0
    ExactExperts(6).summarise_many(THETA, blocks)
    assert gpu.factored == [(4, 4, 4), (2, 5, 5)]
    assert gpu.moves == 2 * 2  # of each size whether it is finite, and all that is found
    gpu.factored.clear()
    gpu.moves = 0
    Exact().objective_many(Theta(ARD, 0.1), blocks)
    assert gpu.factored == [(4, 4, 4), (2, 5, 5)]
    found = gpu.moves
    assert found == 2 * 2 + 6 * moves_of_a_pull(gpu)


def test_one_expert_that_needs_jitter_changes_no_other(caplog):
    kernel = kernels.RBF(1.0)
    twice = np.zeros((2, 2))
    blocks = [Block(X, np.ones((2, 1))) for X in (np.eye(2), twice, 2 * np.eye(2))]
    theta, model = Theta(kernel, 1e-18), ExactExperts(3)
    found = model.summarise_many(theta, there_all(blocks))
    assert caplog.text.count("needed a jitter") == 1
    for i in (0, 2):
        assert_close(tuple(found[i]), tuple(model.summarise(theta, blocks[i])), **TIGHT)
