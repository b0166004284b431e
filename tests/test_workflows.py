"""The workflows and benchmarks run, small, as their users run them; the demo whole where slow."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

import daskgp

WORKFLOWS = Path(__file__).parents[1] / "workflows"
SMALL = "n_inducing = 40\nmax_iter = 3"


def run(folder, script, *arguments, timeout=300):
    """What a script printed; it must succeed."""
    command = [sys.executable, str(WORKFLOWS / script), *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_demo_predicts_calibrated_and_draws(tmp_path):
    sizes = ("--rows", 12_000, "--test-rows", 2_000, "--inducing", 60)
    score = json.loads(run(tmp_path, "demo.py", *sizes).splitlines()[-1])
    assert score["n"] == 2_000
    assert 0.9 < score["coverage_95"] < 0.99
    assert score["rmse_of_truth"] < score["rmse"]
    assert (tmp_path / "demo_output" / "figure.png").stat().st_size > 10_000


@pytest.mark.slow
def test_demo_on_a_million_rows(tmp_path):
    score = json.loads(run(tmp_path, "demo.py", timeout=600).splitlines()[-1])
    assert score["n"] == 100_000
    assert score["rmse_of_truth"] < 0.15  # the noise is 0.3
    assert abs(score["coverage_95"] - 0.95) < 0.01


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


@pytest.mark.parametrize("split", ["blocks", pytest.param("random", marks=pytest.mark.slow)])
def test_cross_validate_tests_every_row_once(split, stores, here, scheduler):
    changes = {
        "folds = 5": "folds = 3",
        'split = "blocks"': f'split = "{split}"',
        "workers = 2": f'scheduler = "{scheduler}"',
    }
    rows = rows_of(here("cross_validate.py", configured(stores, "cross_validate", **changes)))
    assert [row["fold"] for row in rows] == ["0", "1", "2", "mean"]
    assert sum(row["n"] for row in rows[:3]) == 400
    assert all(0.05 < row["rmse"] < 0.2 for row in rows)
    assert json.loads((stores / "folds.json").read_text()) == rows


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
            "unexpected keyword argument 'n_induced'",
        ),
        ("cross_validate.py", 'data = "gone.zarr"\nmodel = "sgpr"', "gone.zarr"),
        ("fit.py", "data = ", "is no TOML file"),
        ("fit.py", 'data = "a"\noutput = "train.zarr"\nmodel = "sgpr"', "train.zarr exists"),
        ("evaluate.py", 'models = []\ntests = ["a"]', "models is empty"),
        ("evaluate.py", 'models = ["a"]\ntests = ["a"]\ncluster = { cpus = 2 }', "['cpus']"),
        ("cross_validate.py", 'data = "train.zarr"\nmodel = "sgpr"\nfolds = 1', "folds=1"),
        ("cross_validate.py", 'data = "train.zarr"\nmodel = "sgpr"\nsplit = "k"', "split='k'"),
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


def test_fit_predict_names_a_wrong_key(tmp_path):
    (tmp_path / "run.toml").write_text('train = "a"\nmodle = "sgpr"\n')
    command = [sys.executable, str(WORKFLOWS / "fit_predict.py"), "--config", "run.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "unknown keys ['modle']" in done.stderr


@pytest.mark.slow
def test_sgpr_benchmark_measures(tmp_path):
    sizes = ("--rows", 3_000, "--inducing", 50, "--repeats", 1, "--only", "daskgp")
    printed = run(tmp_path, "benchmarks/sgpr.py", *sizes)
    assert "floor" in printed
    assert "daskgp" in printed


@pytest.mark.slow
def test_scale_benchmark_measures(tmp_path):
    sizes = ("--rows", 20_000, "--rows", 60_000, "--overhead-rows", 60_000)
    printed = run(tmp_path, "benchmarks/scale.py", *sizes)
    assert "log-log slope" in printed
    assert "ratio" in printed


@pytest.mark.slow
def test_spatial_benchmark_measures(tmp_path, monkeypatch):
    monkeypatch.delenv("DASKGP_DATA", raising=False)
    printed = run(tmp_path, "benchmarks/spatial.py", "--rows", 600, "--methods", "local")
    row = json.loads(printed.splitlines()[0])
    assert row["mae"] < row["rmse"]
    assert row["peak_mib"] > 50


@pytest.mark.slow
def test_million_benchmark_measures(tmp_path, monkeypatch):
    monkeypatch.delenv("DASKGP_DATA", raising=False)
    sizes = ("--stations", 30, "--days", 25, "--block-rows", 50, "--workers", 1)
    printed = run(tmp_path, "benchmarks/million.py", *sizes, "--methods", "climatology,lma")
    trend, lma = (json.loads(line) for line in printed.splitlines()[:2])
    assert lma["rmse"] < 0.9 * trend["rmse"]
    assert lma["seconds"] >= 0.99 * (lma["fit_s"] + lma["predict_s"])


def test_lma_benchmark_measures_blocks(tmp_path):
    sizes = ("--blocks", 48, "--support", 16, "--repeats", 1)
    printed = run(tmp_path, "benchmarks/lma.py", "--only", "blocks", *sizes)
    row = json.loads(printed.splitlines()[0])
    assert row["window_rows"] == 3 * 48
    assert row["gradient"]["operations"] > row["local"]["operations"] > 144**3 / 3


@pytest.mark.slow
def test_opticom_benchmark_measures(tmp_path):
    printed = run(tmp_path, "benchmarks/opticom.py", "--quick", "--figure", "figure.png")
    lines = [line for line in printed.splitlines() if line.startswith("{")]
    row, wide = json.loads(lines[3]), json.loads(lines[4])
    assert row["points"] == 49
    assert row["projection"] < row["combination"]
    assert row["right_sides"] < 1e-6
    assert wide["projection"] < wide["combination"]
    assert (tmp_path / "figure.png").stat().st_size > 10_000


@pytest.mark.slow
def test_lma_benchmark_measures_whole_runs(tmp_path):
    sizes = ("--rows", 20_000, "--rows", 60_000, "--support", 64)
    printed = run(tmp_path, "benchmarks/lma.py", "--only", "scale", *sizes, timeout=600)
    assert "log-log slopes" in printed


@pytest.mark.slow
def test_experts_benchmark_measures(tmp_path, monkeypatch):
    monkeypatch.delenv("DASKGP_DATA", raising=False)
    sizes = ("--quick", "--rounds", 3, "--lengthscales", "0.4,1.2", "--expert", "sparse,exact")
    only = ("--only", "ackley,recovery,speed", "--figures", "drawn")
    printed = run(tmp_path, "benchmarks/experts.py", *only, *sizes)
    row = json.loads(printed.splitlines()[0])
    assert row["one GP"]["rmse"] < row["PoE"]["rmse"] < 2
    assert "FedProx" in printed
    assert "floor" in printed
    assert len(list((tmp_path / "drawn").glob("*.png"))) == 3


@pytest.mark.slow
def test_experts_benchmark_shares_one_training(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 9))
    (tmp_path / "uci").mkdir()
    np.savez(tmp_path / "uci" / "protein.npz", X=X, y=np.sin(3 * X[:, 0]))
    monkeypatch.setenv("DASKGP_DATA", str(tmp_path))
    only = ("--only", "uci", "--data", "protein", "--rounds", 3)
    row = json.loads(run(tmp_path, "benchmarks/experts.py", *only, "--quick").splitlines()[0])
    assert row["optimal"]["rmse"] < row["trivial"]["rmse"]
    assert row["paper"]["rmse"] == row["paper linear"]["rmse"]


DECOUPLED = ("--stations", 15, "--years", 1, "--limit", 500, "--batch-rows", 100, "--chunk", 200)


@pytest.mark.slow
def test_decoupled_benchmark_scores(tmp_path, monkeypatch):
    monkeypatch.delenv("DASKGP_DATA", raising=False)
    only = ("--only", "data,likelihoods", "--sets", "ghcn", "--contenders", "decoupled,gpr")
    targets = ("--targets", "poisson", "--methods", "decoupled,glm")
    steps = ("--steps", 40, "--curve", "--curve-every", 20)
    printed = run(tmp_path, "benchmarks/decoupled.py", *only, *targets, *steps, *DECOUPLED)
    ours, exact, counts, glm = map(
        json.loads, (s for s in printed.splitlines() if s.startswith("{"))
    )
    assert max(ours["nmse"], exact["nmse"]) < 0.5
    assert [point[0] for point in ours["curve"]] == [20, 40]
    assert ours["curve"][-1][2] == ours["nmse"]
    assert glm["density"] < counts["density"] < counts["truth"]


@pytest.mark.slow
def test_decoupled_benchmark_measures_steps(tmp_path):
    only = ("--only", "speed,growth,reading", "--stepped", "daskgp", "--dtypes", "float32")
    speed = ("--rows", 2_000, "--inducing", 60, "--gemm", 256, "--repeats", 1, "--measured", 3)
    growth = ("--sizes", "200,400", "--growth-rows", 2_000, "--n-covariance", 40)
    reading = ("--store-rows", 400, "--reading-steps", 5, "--features", 3)
    printed = run(tmp_path, "benchmarks/decoupled.py", *only, *speed, *growth, *reading, *DECOUPLED)
    rows = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert [row["n_mean"] for row in rows if "n_mean" in row] == [200, 400]
    read = [row["objective"] for row in rows if "where" in row]
    assert read[0] == read[1]  # from memory and from the store
    assert read[2] == read[3]
    assert "floor" in printed
    assert "slope" in printed


def test_fields_have_the_covariance_of_their_process(monkeypatch):
    monkeypatch.syspath_prepend(WORKFLOWS / "benchmarks")
    import fields

    truth = fields.Truth("matern32", 2.0, 3.0, 0.0)
    rng = np.random.default_rng(0)
    drawn = np.array([fields.torus(rng, (8, 12), truth) for _ in range(4_000)])
    places = np.stack(np.meshgrid(range(8), range(12), indexing="ij"), -1).reshape(-1, 2)
    expected = truth.kernel(places.astype(float), np.array([[2.0, 3.0]]))
    seen = np.einsum("sij,s->ij", drawn, drawn[:, 2, 3]).ravel() / len(drawn)
    np.testing.assert_allclose(seen, expected.ravel(), atol=0.25)  # 3.5 standard errors


@pytest.mark.parametrize("case", ["exponential", "survey", "lines", "cluster", "bursts"])
def test_fields_are_drawn_alike_for_a_seed(case, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(WORKFLOWS / "benchmarks")
    import fields

    drawn, again = (fields.stored(tmp_path / name, case, 0, True) for name in "ab")
    for part, other in zip(drawn, again, strict=True):
        np.testing.assert_array_equal(part, other)
    noise = drawn.y_test - drawn.f_test
    assert noise.var() == pytest.approx(fields.CASES[case].truth.noise, rel=0.3)
    rows = {tuple(row) for row in drawn.X}
    assert not rows & {tuple(place) for place in drawn.X_test}


@pytest.mark.slow
def test_shapes_benchmark_goes_on_where_it_was(tmp_path):
    sizes = ("--out", "found.jsonl", "--tiny", "--cases", "log-normal", "--threads", 1)
    run(tmp_path, "benchmarks/shapes.py", *sizes, "--methods", "true")
    printed = run(tmp_path, "benchmarks/shapes.py", *sizes, "--methods", "true,exact-true")
    lines = (tmp_path / "found.jsonl").read_text().splitlines()
    true, exact = (json.loads(line) for line in lines)
    assert json.loads(printed.splitlines()[0]) == exact  # alone
    assert exact["rmse"] <= 1.02 * true["rmse"]
    assert true["coverage"] == pytest.approx(0.95, abs=0.05)
    table = run(tmp_path, "benchmarks/shapes.py", "--out", "found.jsonl", "--table")
    assert f"| {true['rmse']:.4f} |" in table


@pytest.mark.slow
def test_defaults_benchmark_measures_and_stops_at_its_limit(tmp_path, monkeypatch):
    monkeypatch.delenv("DASKGP_DATA", raising=False)
    sizes = ("--out", "found.jsonl", "--rows", 400, "--sets", "friedman", "--threads", 1)
    run(tmp_path, "benchmarks/defaults.py", *sizes, "--methods", "trees")
    printed = run(tmp_path, "benchmarks/defaults.py", *sizes, "--methods", "lma", "--limit", 0.005)
    trees, ended = map(json.loads, (tmp_path / "found.jsonl").read_text().splitlines())
    assert 0.2 < trees["rmse"] < 0.8
    assert ended["ended_after_s"] == pytest.approx(0.3)
    assert "| lma | > 0 min |" in printed


@pytest.mark.slow
def test_training_benchmark_compares_with_all_rows(tmp_path, monkeypatch):
    monkeypatch.delenv("DASKGP_DATA", raising=False)
    sizes = ("--out", "found.jsonl", "--tiny", "--cases", "bursts", "--threads", 1)
    printed = run(tmp_path, "benchmarks/training.py", *sizes)
    runs = [json.loads(s) for s in (tmp_path / "found.jsonl").read_text().splitlines()]
    default, *others = (found["evidence"] for found in runs)
    assert max(others) - min(others) < 0.1  # one optimum from three starts
    assert default < max(others) + 1e-6
    assert "lacks nats" in printed


@pytest.mark.slow
def test_survey_benchmark_measures(tmp_path, monkeypatch):
    monkeypatch.delenv("DASKGP_DATA", raising=False)
    sizes = ("--out", "found.jsonl", "--rows", 600, "--repeats", 1, "--methods", "lma-defaults")
    run(tmp_path, "benchmarks/survey.py", *sizes, "--threads", 1)
    found = json.loads((tmp_path / "found.jsonl").read_text())
    assert 50 < found["largest_mib"] < found["peak_mib"]
    assert found["mae"] < found["rmse"]
