"""The workflows run, small, as their users run them; the demo whole where slow."""

import json
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from commands import invoke, refused, succeed

import daskgp

WORKFLOWS = Path(__file__).parents[2] / "workflows"
SMALL = "n_inducing = 40\nmax_iter = 3"


def run(folder, script, *arguments, timeout=300):
    """What a script printed; it must succeed."""
    command = [sys.executable, str(WORKFLOWS / script), *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_demo_makes_a_calibrated_map_and_draws_it(tmp_path):
    sizes = ("--resolution", 4, "--neighbours", 10, "--workers", 1)
    found = json.loads(run(tmp_path, "demo.py", *sizes).splitlines()[-1])
    assert found["cells"] == 45 * 90 > found["measured"] > 0
    assert found["rmse_where_measured"] < 0.8 * found["rmse_of_measurements"]
    assert found["rmse_in_gaps"] == pytest.approx(found["std_in_gaps"], rel=0.2)
    assert 0.9 < found["coverage_95_in_gaps"] < 0.99
    assert (tmp_path / "demo_output" / "figure.png").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.timeout(1_900)
def test_demo_whole(tmp_path):
    found = json.loads(run(tmp_path, "demo.py", timeout=1_800).splitlines()[-1])
    assert found["cells"] == 259_200
    assert found["rmse_where_measured"] < 0.5 * found["rmse_of_measurements"]
    assert abs(found["coverage_95_in_gaps"] - 0.95) < 0.03


@pytest.mark.slow
def test_fit_predict_scores_and_resumes(tmp_path):
    rng = np.random.default_rng(0)
    for name, rows in (("train", 600), ("test", 200)):
        X = rng.uniform(0, 5, (rows, 2))
        np.savez(tmp_path / f"{name}.npz", X=X, y=np.sin(X[:, 0]) + 0.1 * rng.standard_normal(rows))
        daskgp.convert(str(tmp_path / f"{name}.npz"), str(tmp_path / f"{name}.zarr"), target="y")
    config = (WORKFLOWS / "fit_predict.toml").read_text()
    assert "n_inducing = 512" in config
    (tmp_path / "run.toml").write_text(config.replace("n_inducing = 512", SMALL))
    first = json.loads(run(tmp_path, "fit_predict.py", "--config", "run.toml"))
    assert (first["rows_fitted"], first["rows_predicted"]) == (600, 200)
    assert first["rmse"] < 0.15
    again = json.loads(run(tmp_path, "fit_predict.py", "--config", "run.toml", "--resume"))
    assert (again["rows_predicted"], again["rows_skipped"]) == (0, 200)


@pytest.mark.slow
def test_predict_scheduled_keeps_up_with_its_input(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 5, (300, 2))
    daskgp.SGPR(n_inducing=20, optimizer=None).fit(X, np.sin(X[:, 0])).save(tmp_path / "model.zarr")
    group = zarr.create_group(tmp_path / "input.zarr")
    group.create_array("X", shape=(250, 2), chunks=(100, 2), dtype="f8")[...] = X[:250]
    (tmp_path / "run.toml").write_text((WORKFLOWS / "predict_scheduled.toml").read_text())
    first = json.loads(run(tmp_path, "predict_scheduled.py", "--config", "run.toml"))
    assert (first["rows"], first["skipped"]) == (250, 0)
    group["X"].resize((300, 2))
    group["X"][250:] = X[250:]
    again = json.loads(run(tmp_path, "predict_scheduled.py", "--config", "run.toml"))
    assert (again["rows"], again["skipped"]) == (100, 200)


def test_predict_scheduled_starts_no_cluster_for_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).uniform(0, 5, (60, 2))
    model = daskgp.SGPR(n_inducing=5, optimizer=None, progress=False).fit(X, np.sin(X[:, 0]))
    model.save("model.zarr")
    zarr.create_group("input.zarr").create_array("X", data=X, chunks=(30, 2))
    model.predict_store("input.zarr", "output.zarr")
    stores = ("model", "input", "output")
    tables = ["[schedule]", *(f'{name} = "{name}.zarr"' for name in stores)]
    Path("run.toml").write_text("\n".join([*tables, "[cluster]", 'scheduler = "tcp://none:1"']))
    main = runpy.run_path(str(WORKFLOWS / "predict_scheduled.py"))["main"]
    done = CliRunner().invoke(main, ["--config", "run.toml"])
    assert done.exit_code == 0, done.output
    assert (json.loads(done.stdout)["rows"], json.loads(done.stdout)["skipped"]) == (0, 60)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('[schedule]\nmodel = "m"\nwiat = 3\n', "wrong keys ['schedule.wiat']"),
        ('[schedule]\nmodel = "m"\n', "missing in [schedule] ['input', 'output']"),
        ('[schedule]\nmodel = "m"\nwait = "long"\n', "wrong keys ['schedule.wait']"),
        ("schedule = 3\n", "schedule is no table"),
        ("schedule =\n", "is not TOML"),
        ('[schedule]\nmodel = "m"\ninput = "i"\noutput = "o"\n', "no model store at m"),
    ],
)
def test_predict_scheduled_names_what_is_wrong(content, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(content)
    main = runpy.run_path(str(WORKFLOWS / "predict_scheduled.py"))["main"]
    done = CliRunner().invoke(main, ["--config", "run.toml"])
    assert done.exit_code == 2
    assert says in done.stderr


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A folder with a training and a test store."""
    folder, rng = tmp_path_factory.mktemp("workflows"), np.random.default_rng(0)
    for name, rows in (("train", 400), ("test", 150)):
        X = rng.uniform(0, 5, (rows, 2))
        y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(rows)
        np.savez(folder / f"{name}.npz", X=X, y=y)
        source, store = str(folder / f"{name}.npz"), str(folder / f"{name}.zarr")
        daskgp.convert(source, store, target="y", block_rows=100)
    return folder


@pytest.fixture
def here(stores, monkeypatch):
    """Run a workflow in this process, in the folder of the stores; what click made of it."""
    monkeypatch.syspath_prepend(WORKFLOWS)
    monkeypatch.chdir(stores)

    def run_here(script, config):
        (stores / "config.toml").write_text(config)
        command = runpy.run_path(str(WORKFLOWS / script))["main"]
        return CliRunner().invoke(command, ["--config", "config.toml"])

    return run_here


def configured(folder, name, **changes):
    """The TOML file of a workflow, made small, with the stores where workers find them."""
    text = (WORKFLOWS / f"{name}.toml").read_text()
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    text = text.replace("n_inducing = 512 }", SMALL.replace("\n", ", ") + " }")
    text = text.replace("n_inducing = 512", SMALL)
    for store in ("train.zarr", "test.zarr", "model.zarr"):
        text = text.replace(f'"{store}"', f'"{folder / store}"')
    return text


def rows_of(done):
    """The rows that a workflow printed; it must have succeeded."""
    assert done.exit_code == 0, (done.exception, done.stderr)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_fit_then_evaluate(stores, here, scheduler):
    (stores / "fit.toml").write_text(configured(stores, "fit"))
    fitted = json.loads(run(stores, "fit.py", "--config", "fit.toml"))
    assert (fitted["rows"], fitted["model"]) == (400, str(stores / "model.zarr"))
    assert fitted["iterations"] > 0
    model = daskgp.load(fitted["model"])
    assert repr(model.kernel_) == fitted["kernel"]
    changes = {
        '["test.zarr"]': '["test.zarr", "train.zarr"]',
        "workers = 2": f'scheduler = "{scheduler}"',
    }
    rows = rows_of(here("evaluate.py", configured(stores, "evaluate", **changes)))
    assert [(Path(row["test"]).name, row["n"]) for row in rows] == [
        ("test.zarr", 150),
        ("train.zarr", 400),
    ]
    assert all(0.05 < row["rmse"] < 0.15 and row["coverage_95"] > 0.85 for row in rows)
    assert json.loads((stores / "scores.json").read_text()) == rows
    X, y = daskgp.open_dataset(str(stores / "test.zarr"))
    assert rows[0]["rmse"] == pytest.approx(float(daskgp.metrics.rmse(y, model.predict(X))))


@pytest.mark.slow
def test_cross_validate_tests_every_row_once(stores, here, scheduler):
    changes = {
        "folds = 5": "folds = 3",
        "workers = 2": f'scheduler = "{scheduler}"',
    }
    rows = rows_of(here("cross_validate.py", configured(stores, "cross_validate", **changes)))
    assert [row["fold"] for row in rows] == ["0", "1", "2", "mean", "error"]
    assert sum(row["rows"] for row in rows[:3]) == 400
    assert all(0.05 < row["rmse"] < 0.2 for row in rows[:4])
    assert json.loads((stores / "folds.json").read_text()) == rows


def test_cross_validate_takes_columns_of_a_table_as_the_command_does(stores, here, scheduler):
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.uniform(0, 3, (40, 2)), np.arange(40) % 4, rng.normal(size=40)])
    head = {"delimiter": ",", "header": "a,b,group,y", "comments": ""}
    np.savetxt(stores / "rows.csv", table, **head)
    said = 'data = "rows.csv"\ntarget = "y"\nmodel = "exact"\nfolds = 2\ngroups = "group"\n'
    said += f'settings = {{max_iter = 2}}\ncluster = {{scheduler = "{scheduler}"}}\n'
    rows = rows_of(here("cross_validate.py", said))
    how = ("--target", "y", "--model", "exact", "--set", "max_iter=2", "--folds", 2, "--json")
    own = ("--groups", "group", "--scheduler", scheduler)
    wanted = succeed("cross-validate", stores / "rows.csv", *how, *own)["folds"]
    assert [row["rmse"] for row in rows] == pytest.approx([row["rmse"] for row in wanted])


@pytest.mark.slow
def test_compare_models_has_a_line_for_each(stores, here, scheduler):
    changes = {
        "n_support = 128": "n_support = 20",
        "n_spectral = 256": "n_spectral = 20",
        "workers = 2": f'scheduler = "{scheduler}"',
    }
    rows = rows_of(here("compare_models.py", configured(stores, "compare_models", **changes)))
    assert [row["name"] for row in rows] == ["sparse", "local", "spectral"]
    assert all(row["rmse"] < 0.2 and row["fit_s"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("script", "config", "says"),
    [
        ("fit.py", 'data = "a"\noutput = "b"\nmodel = "krig"', "unknown model 'krig'"),
        ("fit.py", 'data = "a"\noutput = "b"', "missing ['model']"),
        (
            "fit.py",
            'data = "a"\noutput = "b"\nmodel = "sgpr"\nsettings = { n_induced = 3 }',
            "settings of sgpr: unknown setting 'n_induced' of SGPR: did you mean 'n_inducing'?",
        ),
        ("cross_validate.py", 'data = "gone.zarr"\nmodel = "sgpr"', "gone.zarr"),
        (
            "cross_validate.py",
            'data = "train.zarr"\nmodel = "sgpr"\nfeatures = ["x0"]',
            "without target: unknown keys ['features']",
        ),
        ("fit.py", "data = ", "is no TOML file"),
        ("fit.py", 'data = "a"\noutput = "train.zarr"\nmodel = "sgpr"', "train.zarr exists"),
        ("evaluate.py", 'models = []\ntests = ["a"]', "models is empty"),
        ("evaluate.py", 'models = ["a"]\ntests = ["a"]\ncluster = { cpus = 2 }', "['cpus']"),
        ("cross_validate.py", 'data = "a"\nmodel = "sgpr"\nsplit = "k"', "unknown keys ['split']"),
        (
            "compare_models.py",
            'train = "a"\ntest = "b"\n[models.one]\nkind = "sgpr"',
            "[models.one]: unknown keys ['kind'], missing ['model']",
        ),
    ],
)
def test_workflows_refuse_before_any_work(script, config, says, stores, here):
    (stores / "config.toml").touch()
    before = sorted(path.name for path in stores.iterdir())
    done = here(script, config)
    assert done.exit_code == 2
    assert says in done.stderr.splitlines()[-1]
    assert sorted(path.name for path in stores.iterdir()) == before


@pytest.mark.slow
def test_fit_predict_names_a_wrong_key(tmp_path):
    (tmp_path / "run.toml").write_text('train = "a"\nmodle = "sgpr"\n')
    command = [sys.executable, str(WORKFLOWS / "fit_predict.py"), "--config", "run.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "unknown keys ['modle']" in done.stderr


# -- as the command runs them ----------------------------------------------------------------


def test_workflows_are_listed_and_come_with_settings():
    listed = invoke("workflow").stdout.splitlines()
    names = [line.split()[0] for line in listed]
    assert names == sorted(p.stem for p in WORKFLOWS.glob("*.toml"))
    assert [*succeed("workflow", "--json")["workflows"]] == names
    assert "leave it out to run one" in refused("workflow", "cross_validate", "--json")
    for name in names:
        assert tomllib.loads(invoke("workflow", name, "--template").stdout)
    assert "did you mean 'cross_validate'" in refused("workflow", "cross_validat")


def test_the_command_runs_a_workflow_in_a_process_of_its_own(tmp_path):
    bad = tmp_path / "bad.toml"
    bad.write_text("data = 3\nfold = 2\n")
    command = [sys.executable, "-m", "daskgp", "workflow", "cross_validate", "--config", str(bad)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "fold" in done.stderr
