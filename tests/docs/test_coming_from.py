"""The models of the page for users of other packages predict what those packages do."""

import importlib
import re

import numpy as np
import pytest
from docs_text import ROOT, code_blocks

PAGE = ROOT / "docs" / "guides" / "coming-from.md"
# What `python workflows/benchmarks/coming_from.py` prints.
THEIRS = {
    ("PyKrige", 0): {
        "mean": [9.87379552506399, 10.009473255410038, 9.064150332248],
        "std": [1.4866439782582745, 1.3022245581211431, 1.1521869143773869],
    },
    ("PyKrige", 1): {
        "mean": [9.874630899268043, 10.03099424994071, 8.970537632440836],
        "std": [1.4866482354371393, 1.3029707932414956, 1.1677792444595914],
    },
    ("GSTools", 0): {
        "mean": [9.861386813711436, 10.050404148007203, 9.12217548905626],
        "std": [0.8709578656160919, 0.6996073532069345, 0.7327604885950576],
    },
    ("GPBoost", 0): {
        "mean": [-0.21293595928005563, 0.04404798149405857, -0.9126876776042838],
        "std": [0.9635428749385878, 0.6683015225987812, 0.617219778669567],
    },
    ("scikit-learn", 0): {
        "mean": [-0.10259627907359992, 0.007432275705359315, -0.6095453358820424],
        "std": [0.542210975403425, 0.33738378320070733, 0.46867934257113336],
        "evidence": -76.27729567584839,
    },
}
AGREED = 1e-9
"""The relative difference that is allowed: two digits beside those that the page tells of."""


def sections(text):
    """The sections of a page by their headings, the part before them by the empty one."""
    first, *others = re.split(r"^## ", text, flags=re.MULTILINE)
    return {"": first} | {part.splitlines()[0]: part for part in others}


@pytest.fixture(scope="module")
def ours():
    """What the page's models of daskgp predict, by package and number of the model.

    Blocks build on the names of those before them, as a reader runs them.
    """
    names, found = {}, {}
    for package, text in sections(PAGE.read_text()).items():
        for model, code in enumerate(code_blocks(text, "python")):
            for result in ("mean", "std", "evidence"):
                names.pop(result, None)
            exec(compile(code, package, "exec"), names)
            found[package, model] = dict(names)
    return found


@pytest.mark.whole
@pytest.mark.parametrize("model", THEIRS, ids=lambda model: "{} {}".format(*model))
def test_ours_is_what_the_package_predicts(model, ours):
    for name, value in THEIRS[model].items():
        np.testing.assert_allclose(ours[model][name], value, rtol=AGREED)


def test_an_expert_of_a_circle_is_the_model_of_its_nearest_rows(ours):
    names = ours["GPSat", 0]
    assert 5 < names["inside"].sum() < 59
    np.testing.assert_allclose(names["local"], names["alone"], rtol=AGREED)


def test_the_nearest_rows_without_noise_are_simple_kriging_on_the_globe(ours):
    """As pyinterp's source does it, with chords on a sphere."""
    names = ours["pyinterp", 0]

    def points(lon_lat):
        lon, lat = np.radians(lon_lat).T
        unit = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], -1)
        return 6371.0088 * unit

    def covariance(a, b):
        d = np.sqrt(3) * np.linalg.norm(a[:, None] - b[None], axis=-1) / 100.0
        return 4.0 * (1 + d) * np.exp(-d)

    rows, values = points(names["lon_lat"]), names["y"] - names["y"].mean()
    for place, mean in zip(points(names["places"]), names["mean"], strict=True):
        near = np.argsort(np.linalg.norm(rows - place, axis=1))[:11]
        own = covariance(rows[near], rows[near])
        weights = np.linalg.solve(own, covariance(rows[near], place[None]))[:, 0]
        assert mean == pytest.approx(values[near] @ weights, abs=1e-3)


@pytest.mark.whole
@pytest.mark.parametrize("model", THEIRS, ids=lambda model: "{} {}".format(*model))
def test_the_numbers_are_those_of_the_package_where_it_is_installed(model, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "workflows" / "benchmarks")
    script = importlib.import_module("coming_from")
    package, number = model
    pytest.importorskip(script.PACKAGES[package])
    parts = sections(PAGE.read_text())
    (data,) = code_blocks(parts[""], "python")
    found = script.predictions(data, code_blocks(parts[package], "py")[number])
    for name, value in THEIRS[model].items():
        np.testing.assert_allclose(found[name], value, rtol=1e-10)


def test_every_package_has_a_table_of_words_and_a_model_of_ours():
    parts = sections(PAGE.read_text())
    for package in ("PyKrige", "GSTools", "gstat", "GPBoost", "GPSat", "pyinterp", "scikit-learn"):
        assert f"| {package} | daskgp |\n" in parts[package]
        assert code_blocks(parts[package], "python") or "(#pykrige)" in parts[package]
        run = any(package == name for name, _ in THEIRS)
        assert run or "not run here" in parts[package]
