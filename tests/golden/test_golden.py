"""Models of earlier versions predict what they did, and info shows them: see write.py here."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from daskgp.cli.__main__ import main
from tests.golden.answers import answers
from tests.golden.write import MODELS, load

EXACT, DRAWN, BY_SINES = 1e-12, 1e-9, 1e-7
"""Relative tolerances.  The last bits of products and of NumPy's sines differ between processors:
factors of nearly singular covariances, as of draws at close places, magnify them, and so do solves
with little noise."""
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
    for form in ([], ["--json"]):
        shown = CliRunner().invoke(main, ["info", *form, f"{tmp_path}/model.zarr"])
        assert shown.exit_code == 0, shown.output
    for question in dict.fromkeys(key.split("/")[0] for key in wanted):
        near = DRAWN if question == "samples" else EXACT
        near = BY_SINES if name.startswith("geographic") else near
        for key, found in answers(model, question, rows).items():
            scale = np.nanmax(np.abs(wanted[key]))
            np.testing.assert_allclose(
                found, wanted[key], rtol=near, atol=near * scale, err_msg=key
            )
