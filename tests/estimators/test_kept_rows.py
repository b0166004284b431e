"""Rows that predictions read back: those of the fit, or an error in one line."""

import shutil

import pytest
from commands import dataset, rows
from effective import effective
from fits import forget

import daskgp
from daskgp import LMA, CaGP, ExpertsGP, kernels
from daskgp.errors import StoreError

KNOWN = {"kernel": kernels.Matern32(0.5), "optimizer": None}
KEEPING = {
    "lma": LMA(**KNOWN, n_support=12, block_rows=40),
    "experts": effective(ExpertsGP, **KNOWN, n_experts=4, expert="exact"),
    "cagp": CaGP(**KNOWN, n_actions=12),
}


@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.parametrize("damage", ["removed", "fewer rows", "no blocks", "another model's"])
def test_a_model_store_whose_rows_are_not_those_of_the_fit_is_refused(name, damage, tmp_path):
    X, y = rows(120)
    KEEPING[name].fit(X, y).save(tmp_path / "m.zarr")
    kept = tmp_path / "m.zarr" / "rows"
    shutil.rmtree(kept)
    if damage == "fewer rows":
        daskgp.prepare((X[:100], y[:100]), kept, block_rows=40, progress=False)
    elif damage == "no blocks":
        dataset(kept, X + 1.0, y)
    elif damage == "another model's":
        KEEPING[name].fit(X + 1.0, y).save(tmp_path / "other.zarr")
        shutil.copytree(tmp_path / "other.zarr" / "rows", kept)
    forget()
    with pytest.raises(StoreError, match=r"m\.zarr|fit again|rows") as error:
        daskgp.load(tmp_path / "m.zarr").predict(X[:5])
    assert "\n" not in str(error.value)
