"""The method that CONTRIBUTING writes is a method."""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from daskgp import testing
from daskgp.errors import SettingError

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture(scope="module")
def written():
    """What the page's code leaves behind; running it checks the method's laws."""
    found = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(code, str(PAGE), "exec"), found)
    return found


def test_it_is_short(written):
    method = PAGE.read_text().split("class LinearModel")[1].split("@dataclass")[0]
    assert len(method.splitlines()) <= 60


def test_it_finds_the_weights(written):
    np.testing.assert_allclose(written["mean"], [1.0, -2.0, 0.5], atol=0.03)
    assert written["std"].max() < 0.03
    assert abs(written["model"].log_marginal_likelihood()) > 0


def test_it_keeps_the_promises_of_an_estimator(written, tmp_path):
    model, rows = written["LinearGP"](block_rows=100, max_iter=3), written["rows"]
    targets = rows @ [1.0, -2.0, 0.5]
    with testing.no_compute():
        assert model.plan(rows, targets).bytes_per_task > 0
    model.fit(rows, targets)
    again = clone(model).fit(rows, targets)
    assert again.predict(rows[:5]).tobytes() == model.predict(rows[:5]).tobytes()
    covariance = model.predict(rows[:5], return_cov=True)[1]
    deviation = model.predict(rows[:5], return_std=True)[1]
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), deviation, rtol=1e-10)
    with pytest.raises(SettingError, match="LinearGP cannot be saved"):
        model.save(str(tmp_path / "model.zarr"))
    assert not [*tmp_path.iterdir()]
