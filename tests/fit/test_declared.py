"""What a method does not take is refused before any work, by what it declares."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import zarr
from commands import dataset

import daskgp
from daskgp import testing
from daskgp.errors import SettingError
from daskgp.estimators.base import GaussianProcess
from daskgp.models import REGISTRY
from daskgp.models.exact import Exact
from daskgp.models.markov.lma import LMA
from daskgp.models.sparse.sgpr import SGPR
from tests.contract import cases

FIXED = {"kernel": "matern32(0.5)", "optimizer": None}
ERRORS = np.full(cases.N, 0.1)


@dataclass(frozen=True)
class Deaf(SGPR):
    """Does not say that it uses noise variances of rows."""

    takes_noise: ClassVar[bool] = False


class DeafGP(daskgp.SGPR):
    def _model(self):
        return Deaf()


@dataclass(frozen=True)
class Kept(Exact):
    keeps_rows: ClassVar[bool] = True


class WindowsGP(GaussianProcess):
    def _model(self):
        return LMA(1)


class KeptGP(GaussianProcess):
    def _model(self):
        return Kept()


class WholeGP(daskgp.LMA):
    def _model(self):
        return Exact()


@pytest.mark.parametrize("given", ["y_variance", "sample_weight"])
def test_noise_that_a_method_would_ignore_is_refused(given):
    (X, y), model = cases.rows(), DeafGP(n_inducing=10, **FIXED)
    line = (
        f"^{given} is given, and DeafGP would ignore it, because its method does not declare "
        "takes_noise"
    )
    for work in (model.fit, model.plan):
        with testing.no_compute(), pytest.raises(SettingError, match=line):
            work(X, y, **{given: ERRORS})
    model.fit(X, y)
    before = model.predict(X)
    with pytest.raises(SettingError, match=line):
        model.update(X[:9], y[:9], **{given: ERRORS[:9]})
    np.testing.assert_array_equal(model.predict(X), before)


def test_noise_of_a_store_can_be_left_out(tmp_path):
    X, y = cases.rows()
    dataset(tmp_path / "d.zarr", X, y)
    group = zarr.open_group(tmp_path / "d.zarr", mode="r+")
    group.create_array("y_variance", data=ERRORS, chunks=(100,))
    given = daskgp.open_dataset(tmp_path / "d.zarr")
    with pytest.raises(SettingError, match="leave it out \\(y_variance=False where the store has"):
        DeafGP(n_inducing=10, **FIXED).fit(*given)
    DeafGP(n_inducing=10, **FIXED).fit(*given, y_variance=False)


@pytest.mark.parametrize("name", REGISTRY)
def test_every_method_of_the_package_uses_noise_of_rows(name):
    assert REGISTRY[name].takes_noise  # as tests/contract/test_row_noise.py finds


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (WindowsGP, "WindowsGP has rows in AsStored, with no neighbours, and its method says"),
        (WholeGP, "WholeGP has rows in Blocks, with neighbours, and its method does not say"),
        (KeptGP, "KeptGP has rows in AsStored, which predictions cannot read back, and its method"),
    ],
)
def test_rows_that_do_not_suit_a_method_are_refused(kind, line):
    with testing.no_compute(), pytest.raises(SettingError, match=line):
        kind(**FIXED).fit(*cases.rows())
