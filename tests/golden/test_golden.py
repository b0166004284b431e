"""Models of earlier versions predict what they did: see write.py beside this file."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.golden.answers import answers
from tests.golden.write import MODELS, load

EXACT, BY_SINES = 1e-12, 1e-7
"""Relative tolerances; sines of NumPy differ in their last bit between processors, which solves
with little noise magnify."""
STORES = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.zip"))}


def test_every_model_has_a_store():
    assert STORES.keys() == MODELS.keys()


@pytest.mark.whole
@pytest.mark.parametrize("name", STORES)
def test_a_model_of_an_earlier_version_predicts_the_same(name, tmp_path):
    shutil.unpack_archive(STORES[name], tmp_path)
    model = load(name, tmp_path)
    with np.load(tmp_path / "answers.npz") as kept, np.load(tmp_path / "rows.npz") as rows:
        wanted, rows = dict(kept), dict(rows)
    assert wanted
    near = BY_SINES if name.startswith("geographic") else EXACT
    for question in dict.fromkeys(key.split("/")[0] for key in wanted):
        for key, found in answers(model, question, rows).items():
            scale = np.abs(wanted[key]).max()
            np.testing.assert_allclose(
                found, wanted[key], rtol=near, atol=near * scale, err_msg=key
            )
