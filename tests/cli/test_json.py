"""Results as one line of JSON, and nothing else on stdout."""

import json

import numpy as np
import pytest
import zarr
from commands import dataset, invoke, refused, succeed

import daskgp
from daskgp.cli import main


@pytest.fixture
def rows():
    X = np.random.default_rng(0).uniform(size=(60, 2))
    return X, np.sin(6 * X[:, 0])


@pytest.fixture
def data(rows, tmp_path):
    return dataset(tmp_path / "data.zarr", *rows)


@pytest.fixture
def model(rows, tmp_path):
    place = str(tmp_path / "m.zarr")
    daskgp.ExactGP("matern32(0.5)", optimizer=None).fit(*rows).save(place)
    return place


def test_info_of_a_dataset_and_of_places(data, rows, tmp_path):
    found = succeed("info", data, "--json")
    assert (found["store"], found["kind"], found["rows"]) == (data, "dataset", 60)
    assert len(found["features"]) == 2
    assert len(found["targets"]) == 1
    assert found["chunks"] * found["chunk_rows"] >= 60
    assert found["blocks"] is None
    assert found["complete"] is True
    group = zarr.create_group(tmp_path / "places.zarr")
    group.create_array("X", shape=(5, 2), chunks=(5, 2), dtype="f8")
    found = succeed("info", tmp_path / "places.zarr", "--json")
    assert (found["rows"], found["targets"], found["bytes"]) == (5, [], 80)
    assert found["complete"] is None
    daskgp.prepare(data, str(tmp_path / "blocks.zarr"), "hilbert", block_rows=20)
    blocks = succeed("info", tmp_path / "blocks.zarr", "--json")["blocks"]
    assert (blocks["number"], blocks["rows"], blocks["order"]) == (3, 20, "hilbert")


def test_info_of_a_model_has_its_hyperparameters_as_numbers(model):
    found, fitted = succeed("info", model, "--json"), daskgp.load(model)
    assert (found["kind"], found["model"], found["rows"]) == ("model", "exact", 60)
    assert found["complete"] is True
    assert found["checksum"] == fitted.solved_.token
    assert found["written_by"] == f"daskgp {daskgp.__version__}"
    for stated, known in zip(found["hyperparameters"], fitted.hyperparameters_, strict=True):
        assert stated["name"] == known.name
        assert stated["value"] == pytest.approx(known.value)
        assert stated["standard_error"] is None  # not trained: not a number in Python
    assert found["noise_variance"] == pytest.approx(fitted.noise_variance_)
    assert (found["trend"], found["trials"]) == ([], [])
    assert found["seen"][0]["rows"] == 60


def test_info_of_an_unfinished_model(tmp_path):
    group = zarr.create_group(tmp_path / "m.zarr")
    group.attrs.update({"format": "daskgp-model", "complete": False})
    found = succeed("info", tmp_path / "m.zarr", "--json")
    assert (found["kind"], found["complete"], found["kept"]) == ("model", False, {})


def test_info_of_predictions(model, data, tmp_path):
    out = tmp_path / "out.zarr"
    succeed("predict", model, data, out)
    found = succeed("info", out, "--json")
    assert (found["kind"], found["rows"], found["complete"]) == ("predictions", 60, True)
    assert found["chunks"] == found["chunks_done"] >= 1
    assert (found["model"], found["input"], found["lock"]) == (model, data, None)
    assert [run["exit"] for run in found["runs"]] == [0]


def test_an_error_keeps_its_code_and_its_line(model, tmp_path):
    zarr.create_group(tmp_path / "other.zarr").create_group("things")
    other = tmp_path / "other.zarr"
    assert refused("info", other, "--json") == refused("info", other)
    for command in ("plan", "check"):
        more = [other] if command == "check" else []
        assert refused(command, model, *more, "--json") == refused(command, model, *more)


def test_json_belongs_to_commands_that_print_tables():
    tables = {"info", "plan", "check", "cross-validate", "examples", "workflow"}
    for command in main.commands:
        assert ("--json" in invoke(command, "--help").stdout) == (command in tables)


def test_a_plan_and_warnings_leave_one_line(data):
    result = invoke("plan", data, "--model", "exact", "--json", "-v")
    assert result.exit_code == 0
    (line,) = result.stdout.splitlines()
    assert json.loads(line)["rows"] == 60


# -- models made of several ------------------------------------------------------------------


@pytest.fixture
def hurdle(rows, tmp_path):
    X, y = rows
    parts = (
        daskgp.ExactGP("matern32(0.5)", likelihood=name, optimizer=None, progress=False)
        for name in ("bernoulli", "lognormal")
    )
    place = str(tmp_path / "hurdle.zarr")
    daskgp.HurdleGP(*parts).fit(X, np.maximum(y, 0.0)).save(place)
    return place


def test_a_model_made_of_several_is_shown_with_each_of_them(hurdle, rows, tmp_path):
    found = succeed("info", hurdle, "--json")
    assert (found["model"], found["complete"]) == ("HurdleGP", True)
    assert found["parts"]["occurrence"]["rows"] == 60
    assert found["parts"]["amount"]["likelihood"].startswith("LogNormal")
    shown = invoke("info", hurdle).stdout
    assert "HurdleGP" in shown
    assert shown.index("occurrence") < shown.index("Bernoulli") < shown.index("LogNormal")
    X, y = rows
    base = daskgp.ExactGP("matern32(0.5)", optimizer=None, progress=False)
    labels = np.array(["dry", "wet"])[(y > 0).astype(int)]
    daskgp.GPClassifier(base).fit(X, labels).save(str(tmp_path / "classes.zarr"))
    found = succeed("info", tmp_path / "classes.zarr", "--json")
    assert (found["classes"], found["link"]) == (["dry", "wet"], "logit")
    assert "dry, wet" in invoke("info", str(tmp_path / "classes.zarr")).stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [("hurdle", "HurdleGP"), ("GPClassifier", "GPClassifier"), ("classifier", "GPClassifier")],
)
def test_models_made_of_several_are_fitted_in_python(name, said, data, tmp_path):
    line = refused("fit", data, tmp_path / "m.zarr", "--model", name)
    assert f"made of several, which commands do not fit: fit daskgp.{said} in Python" in line


def test_a_model_made_of_several_is_scored(hurdle, rows, tmp_path):
    X, y = rows
    test = dataset(tmp_path / "test.zarr", X, np.maximum(y, 0.0))
    found = succeed("score", hurdle, test)
    wanted = daskgp.load(hurdle).scores(X, np.maximum(y, 0.0))
    assert {name: found[name] for name in wanted} == pytest.approx(wanted)
    error = refused("predict", hurdle, test, tmp_path / "out.zarr")
    assert f"or one of its models, such as {hurdle}/occurrence" in error
    assert succeed("predict", f"{hurdle}/amount", test, tmp_path / "out.zarr")["rows"] == 60


def test_classes_of_text_are_scored_in_python(rows, tmp_path):
    X, y = rows
    base, labels = daskgp.ExactGP(optimizer=None, progress=False), np.where(y > 0, "wet", "dry")
    model, test = tmp_path / "m.zarr", dataset(tmp_path / "test.zarr", X, (y > 0) * 1.0)
    daskgp.GPClassifier(base).fit(X, labels).save(str(model))
    line = refused("score", model, test)
    assert f"the classes of {model} are text, such as dry" in line
    assert "daskgp.load(MODEL).scores(X, y)" in line
    daskgp.GPClassifier(base).fit(X, y > 0).save(str(tmp_path / "bool.zarr"))
    assert succeed("score", tmp_path / "bool.zarr", test)["n"] == len(y)
    line = refused("score", tmp_path / "bool.zarr", dataset(tmp_path / "y.zarr", X, y))
    assert "y has numbers that are no whole ones, such as" in line
    assert "give the class of each row" in line
