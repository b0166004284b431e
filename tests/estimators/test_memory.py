"""Work that does not fit is refused with a number that does, and a plan needs no work."""

import re

import dask.array as da
import pytest
from commands import rows
from effective import effective
from fits import zarr_rows
from sklearn.base import clone

import daskgp
from daskgp import LMA, PIC, SGPR, CaGP, ExpertsGP, kernels, testing
from daskgp.errors import PlanError
from daskgp.runtime.executor import Executor

KNOWN = {"kernel": kernels.Matern32(0.5), "optimizer": None}


def zeros(n):
    return da.zeros((n, 2), chunks=(n // 100, 2)), da.zeros(n, chunks=n // 100)


def suggested(model, setting, n):
    """The value of a setting that a refusal names, None where the work would begin."""
    with testing.no_compute(), pytest.raises((PlanError, AssertionError)) as error:
        model.fit(*zeros(n))
    if error.type is AssertionError:
        return None
    assert "\n" not in str(error.value)
    return int(re.findall(rf"{setting} to at (?:most|least) (\d+)", str(error.value))[0])


MANY = {"n_experts": 4_096, "n_inducing": 256}
REFUSED = {
    "lma": (LMA(block_rows=50_000), 400_000, 2**30),
    "pic": (PIC(block_rows=50_000, dtype="float32"), 400_000, 2**30),
    "wide": (LMA(block_rows=50_000, markov_order=5, n_support=2_000), 400_000, 2**30),
    "sgpr": (SGPR(block_rows=20_000_000), 20_000_000, 2**30),
    "exact": (ExpertsGP(expert="exact", n_experts=20), 400_000, 2**31),
    "grbcm": (ExpertsGP(expert="exact", n_experts=8, aggregation="grbcm"), 200_000, 2**31),
    "many rows": (ExpertsGP(expert="exact", n_experts=10, aggregation="poe"), 10**7, 2**31),
    "npae": (ExpertsGP(**MANY, aggregation="npae"), 400_000, 2**31),
    "rbcm": (ExpertsGP(**MANY, aggregation="rbcm"), 400_000, 2**31),
}
"""Estimators, rows, and bytes of a task."""


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_with_a_number_that_does(case, tmp_path, monkeypatch):
    made, n, limit = REFUSED[case]
    monkeypatch.setattr(Executor, "memory_per_task", lambda self: limit)
    setting = "n_experts" if isinstance(made, ExpertsGP) else "block_rows"
    made = clone(made).set_params(store=str(tmp_path))
    found, given = suggested(made, setting, n), getattr(made, setting)
    assert 1 <= found != given
    assert (found < given) is (case not in ("exact", "grbcm", "many rows"))
    assert suggested(clone(made).set_params(**{setting: found}), setting, n) is None
    if setting == "block_rows":  # and not needlessly small
        assert suggested(clone(made).set_params(block_rows=3 * found), setting, n) is not None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("made", "limit", "says"),
    [
        (LMA(n_support=4_000, block_rows=1_000), 2**29, "choose fewer inputs of the method or giv"),
        (ExpertsGP(n_experts=4, n_inducing=4_000), 2**28, "fewer inducing inputs or give the work"),
    ],
)
def test_memory_too_small_for_any_number_asks_for_more(made, limit, says, monkeypatch):
    monkeypatch.setattr(Executor, "memory_per_task", lambda self: limit)
    with pytest.raises(PlanError, match=says):
        made.fit(*zeros(400_000))


@pytest.mark.parametrize(
    ("made", "units", "large"),
    [
        (LMA(**KNOWN, n_support=12, block_rows=40), (38, 8), LMA(n_support=100, block_rows=512)),
        (
            effective(ExpertsGP, **KNOWN, n_experts=5, n_inducing=12, expert="exact"),
            (60, 5),
            ExpertsGP(n_inducing=100),
        ),
        (CaGP(**KNOWN, n_actions=12), None, CaGP(n_actions=100, support=50)),
    ],
    ids=["lma", "experts", "cagp"],
)
def test_a_plan_needs_no_work(made, units, large, tmp_path):
    given = zarr_rows(tmp_path / "t.zarr", *rows(300, seed=5))
    with testing.no_compute():
        found, huge = daskgp.plan(made, *given), daskgp.plan(large, *zeros(10**7))
    assert found.rows == 300
    assert units in (None, (found.block_rows, found.tasks))
    assert huge.block_rows <= 65_536
    if isinstance(made, LMA):
        assert huge.block_rows <= 512
        assert -(-(10**7) // 2_048) <= huge.tasks <= -(-(10**7) // 512)  # thin blocks share a task
    assert huge.bytes_per_task < 1 << 30


def test_plans_of_actions_follow_from_their_points():
    with testing.no_compute():
        few, many, whole = (
            CaGP(n_actions=100, **more).plan(*zeros(10**7))
            for more in ({"support": 50}, {}, {"actions": "random"})
        )
    assert few.operations < many.operations
    assert whole.bytes_client > 8 * 10**9
