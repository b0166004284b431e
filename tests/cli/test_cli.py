"""The command: what it prints and writes, its settings, and that it survives being killed."""

import json
import re
import runpy
import signal
import subprocess
import sys
import warnings

import dask.array as da
import numpy as np
import pytest
import zarr
from click.shell_completion import ShellComplete
from commands import (
    dataset,
    files,
    invoke,
    one_line,
    refused,
    rows,
    start,
    stop_when,
    succeed,
)

import daskgp
from daskgp.cli import main
from daskgp.cli.run import Terminated
from daskgp.cli.settings import build_estimator
from daskgp.errors import InputError, RunError, SettingError
from daskgp.fit.arrange import rewriting
from daskgp.kernels import RBF, Matern12
from daskgp.models.additive import Additive

SCORES = [
    "rmse",
    "mae",
    "nlpd",
    "crps",
    "coverage_95",
    "interval_score_95",
    "n",
    "skipped",
    "seconds",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data") / "train.zarr", *rows(), names=["lon", "lat"])


@pytest.fixture(scope="module")
def fitted(data, tmp_path_factory, scheduler):
    url = str(tmp_path_factory.mktemp("model") / "model.zarr")
    settings = ("--set", "n_inducing=20", "--set", "kernel=matern32(ard=true) + 0.1*linear()")
    succeed("fit", data, url, "--model", "sgpr", *settings, "--scheduler", scheduler)
    return url


# -- the whole way ---------------------------------------------------------------------------


def test_a_table_becomes_predictions(tmp_path, scheduler):
    X, y = rows()
    np.savez(tmp_path / "t.npz", lon=X[:, 0], lat=X[:, 1], temp=y)
    data, model, output = (str(tmp_path / name) for name in ("t.zarr", "m.zarr", "p.zarr"))
    source = tmp_path / "t.npz"
    found = succeed("convert", source, data, "--target", "temp", "--block-rows", "100")
    assert (found["rows"], found["features"], found["targets"]) == (300, ["lon", "lat"], ["temp"])
    options = ("--model", "sgpr", "--set", "n_inducing=20", "--set", "kernel=matern32()")
    cluster = ("--workers", "1", "--memory-limit", "2GiB")  # its own
    process = start("fit", data, model, *options, *cluster)
    stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stderr) == (0, "")
    found = json.loads(stdout)
    assert list(found) == ["model", "rows", "objective", "iterations", "seconds"]
    assert (found["model"], found["rows"]) == (model, 300)
    found = succeed("predict", model, data, output, "--scheduler", scheduler)
    assert list(found) == ["rows", "skipped", "seconds", "rows_per_second"]
    assert (found["rows"], found["skipped"]) == (300, 0)
    mean, std = daskgp.load(model).predict(X, return_std=True, include_noise=True)
    store = zarr.open_group(output, mode="r")
    np.testing.assert_allclose(store["mean"][...], mean, rtol=1e-12)
    np.testing.assert_allclose(store["variance"][...], std**2, rtol=1e-12)
    assert store.attrs["complete"] is True
    assert store.attrs["model"] == model
    assert store.attrs["model_checksum"] == daskgp.load(model).solved_.token


def test_help_is_instant_because_nothing_heavy_is_imported():
    code = (
        "import sys; from daskgp.cli import main; main(['--help'], standalone_mode=False); "
        "sys.exit(', '.join({'dask', 'numpy', 'scipy', 'zarr', 'rich'} & set(sys.modules)) or None)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


TASKS = """\
    try      daskgp examples stations
    map      daskgp interpolate data.csv map.nc --resolution lon=0.5,lat=0.5
    test     daskgp cross-validate data.csv --target y --blocks auto
    fit      daskgp fit data.csv model.zarr --target y --report report.html
    predict  daskgp predict model.zarr --resolution lon=0.5,lat=0.5 map.zarr
    check    daskgp check model.zarr test.csv --target y
    update   daskgp update model.zarr train.zarr
    scale    daskgp convert 'parts/*.parquet' train.zarr --target y
"""


def test_every_command_has_help_and_the_version_is_the_package_s():
    assert invoke("--version").stdout == f"daskgp, version {daskgp.__version__}\n"
    assert "Commands:" in invoke().stdout
    assert f"\n  Common tasks:\n{TASKS}\n" in invoke().stdout
    example = "\n  daskgp workflow cross_validate --config folds.toml\n"
    assert example in invoke("workflow", "--help").stdout
    for command in ("convert", "fit", "predict", "score", "check", "info", "plan", "workflow"):
        result = invoke(command, "--help")
        assert result.exit_code == 0
        assert "--verbose" in result.stdout


# -- score, info, plan -----------------------------------------------------------------------


@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_line_without_its_place_in_the_code(fitted, data, monkeypatch):
    def loaded(*_):
        warnings.warn("rows lie\nfar away", stacklevel=1)
        raise InputError("enough")

    monkeypatch.setattr("daskgp.estimators.load", loaded)
    result = invoke("score", fitted, data)
    assert result.stderr.startswith("Warning: rows lie far away\n")


def test_a_quiet_command_shows_its_result_alone(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("a,b,y\n" + "".join(f"{i},{i % 2},{i % 2}\n" for i in range(40)))
    fit = ("fit", table, "--target", "y", "--model", "exact", "--set", "optimizer=none")
    assert "was converted to" in invoke(*fit[:2], tmp_path / "loud.zarr", *fit[2:]).stderr
    quiet = invoke(*fit[:2], tmp_path / "m.zarr", *fit[2:], "--quiet")
    assert (quiet.exit_code, quiet.stderr, quiet.stdout.count("\n")) == (0, "", 1)
    code = "from daskgp.runtime.progress import silent, wants_progress\n" + (
        "import sys\nsys.stderr.isatty = lambda: True\nassert wants_progress('auto')\n"
        "with silent():\n    assert not wants_progress('auto') and wants_progress(True)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_check_says_what_a_statistician_looks_at(fitted, tmp_path, scheduler):
    X, y = rows(seed=1)
    test = dataset(tmp_path / "t.zarr", X, y)
    at = "--scheduler", scheduler
    folder = tmp_path / "figures"
    found = succeed("check", fitted, test, "--json", "--figures", folder, "--regions", 4, *at)
    scores = succeed("score", fitted, test, *at)
    assert list(scores) == SCORES
    assert {name: found[name] for name in SCORES[:5]} == pytest.approx(
        {name: scores[name] for name in SCORES[:5]}, rel=1e-9
    )
    assert [row["n"] for row in found["regions"]] == [75] * 4
    assert sorted(map(str, folder.iterdir())) == sorted(found["figures"])
    text = invoke("check", fitted, test, *at)
    assert text.exit_code == 0
    for part in ("coverage_80", "PIT in 20 classes", "by region", "by distance to the nearest"):
        assert part in text.stdout
    assert "regions=3: a power of 2" in refused("check", fitted, test, "--regions", 3, *at)


def test_score_leaves_out_what_is_missing_and_says_so(fitted, tmp_path, scheduler):
    X, y = rows(150, seed=1)
    holed, known = X.copy(), y.copy()
    holed[3, 1], known[7] = np.nan, np.nan
    test = dataset(tmp_path / "t.zarr", holed, known)
    result = invoke("score", fitted, test, "--scheduler", scheduler)
    assert result.stderr.splitlines() == [
        "Warning: 1 value is left out, because a feature is missing or infinite",
        "Warning: 1 value is left out, because the target is missing",
    ]
    keep = np.setdiff1d(np.arange(150), [3, 7])
    clean = dataset(tmp_path / "clean.zarr", X[keep], y[keep])
    expected = succeed("score", fitted, clean, "--scheduler", scheduler)
    found = json.loads(result.stdout)
    assert (found["n"], found["skipped"], expected["skipped"]) == (148, 2, 0)
    assert found["nlpd"] == pytest.approx(expected["nlpd"], rel=1e-10)
    checked = invoke("check", fitted, test, "--json", "--scheduler", scheduler)
    assert checked.stderr == result.stderr
    assert json.loads(checked.stdout)["skipped"] == 2
    dataset(tmp_path / "none.zarr", X, np.full(150, np.nan))
    line = refused("score", fitted, tmp_path / "none.zarr", "--scheduler", scheduler)
    assert "nothing to score" in line


def test_infinite_targets_are_refused_by_scores_as_by_a_fit(fitted, tmp_path, scheduler):
    X, y = rows(150, seed=1)
    y[[3, 70, 149]] = np.inf, -np.inf, np.inf
    test = dataset(tmp_path / "t.zarr", X, y, names=["lon", "lat"])
    line = refused("fit", test, tmp_path / "m.zarr", "--model", "exact")
    assert "target 'y' has 3 infinite values: remove the rows or set them to NaN" in line
    for command in ("score", "check", "report"):
        assert refused(command, fitted, test, "--scheduler", scheduler) == line
    model = daskgp.load(fitted)
    for given in (X, y), (da.from_array(X), da.from_array(y)):
        with pytest.raises(InputError) as caught:
            model.score(*given)
        assert f"Error: {caught.value}" == line


def shown(*arguments):
    result = invoke(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return re.sub(r"[\s│]+", " ", result.stdout)


def test_info_shows_a_dataset_and_inputs_alone(data, tmp_path):
    text = shown("info", data)
    for part in ("rows 300", "features 2: lon, lat", "targets 1: y", "3 of 100 rows"):
        assert part in text
    group = zarr.create_group(tmp_path / "inputs.zarr")
    group.create_array("X", shape=(5, 2), chunks=(5, 2), dtype="f8")
    assert "targets none" in shown("info", tmp_path / "inputs.zarr")


def test_info_shows_a_model_with_lengthscales_in_the_units_of_x(fitted):
    text = shown("info", fitted)
    for part in ("model sgpr", "rows 300", "lon, lat", "inducing inputs 20", "matern32 constant"):
        assert part in text
    model = daskgp.load(fitted)
    own = model.kernel_.parts[0].lengthscale[0]
    assert re.search(rf"0.lengthscale\[0\] {own:.4g} \S+ lon ", text)
    gain = model.history_[-1]["predicted_gain"]
    assert f"gain of one more step of training {gain:.2g} nats of the objective" in text
    assert "parts of the kernel: 0 is matern32 (ard)" in text


def test_info_shows_the_actions_of_a_model(tmp_path):
    X, y = rows(90)
    y[7] = np.nan
    kept = {"actions 8 sparse": {}, "support of an action 11 or 12 rows": {}, "loss elbo": {}}
    kept |= {"points 24 of 89 rows": {"support": 3}, "support of an action 3 rows": {"support": 3}}
    kept |= {"actions 5 cg": {"actions": "cg", "n_actions": 5}}
    for i, (part, settings) in enumerate(kept.items()):
        settings = {"n_actions": 8, "optimizer": None} | settings
        daskgp.CaGP(**settings).fit(X, y).save(str(tmp_path / f"{i}.zarr"))
        assert part in shown("info", tmp_path / f"{i}.zarr")
    daskgp.CGGP("matern32(1.0)").fit(X, y).save(str(tmp_path / "cggp.zarr"))
    text = shown("info", tmp_path / "cggp.zarr")
    assert "points 89" in text
    assert "nan" not in text


def test_info_of_anything_else_is_refused(tmp_path):
    zarr.create_group(tmp_path / "other.zarr").create_group("things")
    assert "not a dataset, model or prediction store" in refused("info", tmp_path / "other.zarr")
    assert "does not exist" in refused("info", tmp_path / "none.zarr")


def test_plan_says_what_a_fit_needs_and_whether_it_fits(data):
    text = shown("plan", data, "--model", "sgpr", "--set", "n_inducing=20")
    assert "method sgpr rows 300" in text
    assert "fits yes" in text
    found = succeed("plan", data, "--model", "exact", "--json", "--memory-limit", "150MB")
    assert found["tasks"] == 1
    assert found["bytes_limit"] == 150_000_000
    assert found["fits"] is False
    assert "more memory" in found["remedy"]
    idle = succeed("plan", data, "--model", "sgpr", "--json", "--workers", 4)
    assert idle["busy"] == 0.25
    assert "1; 4 workers are busy for 25% of a round" in shown(
        "plan", data, "--model", "sgpr", "--workers", 4
    )


def test_a_device_that_cannot_be_had_is_refused_wherever_it_is_asked_for(data, fitted, tmp_path):
    lacks = "device='gpu' is not available: cupy is not installed"
    assert lacks in refused("plan", data, "--model", "sgpr", "--set", "device=gpu")
    output = tmp_path / "predictions.zarr"
    for command in (("predict", fitted, data, output), ("score", fitted, data)):
        assert lacks in refused(*command, "--device", "gpu")
    assert not output.exists()


def test_plan_of_the_package_is_that_of_the_estimator(data):
    X, y = daskgp.open_dataset(data)
    model = daskgp.SGPR(n_inducing=20)
    assert daskgp.plan(model, X, y) == model.plan(X, y)


# -- settings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n_inducing=64", 64),
        ("n_inducing=64.0", 64),
        ("noise_variance=1", 1.0),
        ("noise_variance=1e-3", 1e-3),
        ("noise_variance=.1", 0.1),
        ("standardize=false", False),
        ("standardize=True", True),
        ("progress=auto", "auto"),
        ("progress=false", False),
        ("optimizer=adam", "adam"),
        ('optimizer="adam"', "adam"),
        ("optimizer=none", None),
        ("block_rows=None", None),
        ("mean=linear", "linear"),
        ("mean=lat,lon", ["lat", "lon"]),
        ("mean=lat", ["lat"]),
        ('mean=["a", "b"]', ["a", "b"]),
        ("dtype=float32", "float32"),
        ("store=12", "12"),
        ("kernel=rbf", RBF()),
        ("kernel=matern12(lengthscale=2) ", Matern12(2.0)),
        ("inducing=kmeans", "kmeans"),
        ("inducing=[[0, 1], [2, 3.5]]", [[0.0, 1.0], [2.0, 3.5]]),
        ("fixed=noise_variance", "noise_variance"),
        ("fixed=noise_variance,variance", ["noise_variance", "variance"]),
        ("fixed={noise_variance=0.1}", {"noise_variance": 0.1}),
        ("limits={lengthscale=[1, 2]}", {"lengthscale": [1, 2]}),
        ('prior={variance="lognormal(2)"}', {"variance": "lognormal(2)"}),
    ],
)
def test_settings_get_the_types_of_the_constructor(text, value):
    found = getattr(build_estimator("sgpr", [text]), text.partition("=")[0])
    if isinstance(found, np.ndarray):
        found = found.tolist()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("n_inducng=64", "unknown setting 'n_inducng' of model 'sgpr': did you mean 'n_inducing'?"),
        ("zzz=1", "Known are kernel, noise_variance"),
        ("n_inducing=many", "n_inducing='many': a whole number is needed"),
        ("n_inducing=1.5", "a whole number is needed"),
        ("limits={variance=[2, 1]}", "must be less than the second"),
        ("prior={variance=3}", "give one of daskgp.priors or its text"),
        ("limits=3", "limits='3': a table"),
        ("n_inducing=true", "a whole number is needed"),
        ("noise_variance=low", "a number is needed"),
        ("learning_rate=.1.2", "a number is needed"),
        ("noise_variance=-1", "noise_variance=-1.0: it must be greater than 0"),
        ("noise_variance=nan", "must be greater than 0"),
        ("standardize=1", "true or false is needed"),
        ("inducing=true", "one of 'greedy', 'kmeans', 'random' or a list of rows is needed"),
        ("inducing=[[1, 2], [3]]", "a list of lists of numbers is needed"),
        ("kernel=rbg()", "unknown kernel 'rbg'"),
        ("kernel=rbf(", "cannot be read"),
        ("kernel=__import__('os')", "unknown kernel '__import__'"),
        ("kernel=rbf(lengthscale=-1)", "lengthscale"),
        ("kernel=rbf(lengthscale=-'1')", "a setting is a number"),
        ("n_inducing", "write key=value"),
        ("=3", "write key=value"),
        ("tol=1\nseed = 2", "a number is needed"),
    ],
)
def test_a_setting_that_is_wrong_is_named(text, says):
    with pytest.raises(SettingError) as error:
        build_estimator("sgpr", [text])
    assert says in str(error.value)


def test_a_file_gives_model_and_settings_and_the_command_line_wins(tmp_path):
    path = tmp_path / "fit.toml"
    path.write_text('model = "sgpr"\n[settings]\nn_inducing = 64\nmean = "zero"\nkernel = "rbf"\n')
    found = build_estimator(None, ["mean=linear"], str(path))
    assert (found.model_name, found.n_inducing, found.mean) == ("sgpr", 64, "linear")
    assert found.kernel == RBF()
    path.write_text('model = "sgpr"\n')
    assert build_estimator("exact", (), str(path)).model_name == "exact"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("n_inducing = 3\n", "unknown key 'n_inducing'"),
        ("model = \n", "is not TOML"),
        ("model = 3\n", "a name is needed"),
        ("settings = 3\n", "write a [settings] table"),
        ('model = "sgpr"\n[settings]\nn_inducing = "many"\n', "a whole number is needed"),
        ('model = "sgpr"\n[settings]\nkernel = 3\n', "a kernel such as"),
        ('model = "sgpr"\n[settings]\nkernle = "rbf"\n', "did you mean 'kernel'?"),
    ],
)
def test_a_file_that_is_wrong_is_refused(content, says, tmp_path):
    path = tmp_path / "fit.toml"
    path.write_text(content)
    with pytest.raises(SettingError) as error:
        build_estimator(None, (), str(path))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


# -- errors and logs -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fly"], "No such command 'fly'"),
        (["fit", "a.zarr"], "Missing argument 'MODEL'"),
        (["fit", "a", "b", "--mdoel", "sgpr"], "No such option"),
        (["fit", "a", "b", "--model", "sgpr", "--workers", "0"], "--workers"),
        (["fit", "a", "b", "--model", "sgpr", "--scheduler", "x", "--workers", "2"], "leave them"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments, says):
    assert says in refused(*arguments)


def test_verbose_logs_the_traceback(tmp_path):
    for arguments in (["-v", "info"], ["info", "-v"]):
        result = invoke(*arguments, tmp_path / "none.zarr")
        assert result.exit_code == 2
        assert "Traceback" in result.stderr
        assert result.stderr.splitlines()[-1].startswith("Error: no store at")


def test_info_of_a_table_says_what_makes_a_store_of_it(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    line = refused("info", tmp_path / "a.csv")
    assert "not a Zarr group but a file: `daskgp convert` makes a dataset store of a table" in line


def test_a_failure_nobody_foresaw_is_one_line_too(data, tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("the moon\nis down")

    monkeypatch.setattr("daskgp.data.open_dataset", fail)
    line = refused("fit", data, tmp_path / "m.zarr", "--model", "sgpr", code=1)
    assert "RuntimeError: the moon is down" in line


# -- killed and continued --------------------------------------------------------------------

SMALL = ("kernel=matern32(1.0)", "n_inducing=20", "tol=1e-14", "max_iter=12")
FIT = ("--model", "sgpr", *(f"--set={setting}" for setting in SMALL))


def evaluations(model):
    return lambda: (model / "checkpoint" / "evaluations" / "c" / "4" / "0").exists()


def test_a_killed_fit_goes_on_and_ends_with_the_same_bits(data, tmp_path, scheduler):
    killed, whole = tmp_path / "killed.zarr", tmp_path / "whole.zarr"
    process = start("fit", data, killed, *FIT, "--scheduler", scheduler)
    code, _ = stop_when(process, evaluations(killed))
    assert code == -signal.SIGKILL
    assert "fit --resume" in shown("info", killed)
    assert "incomplete" in refused("predict", killed, data, tmp_path / "p.zarr")
    line = refused("fit", data, killed, *FIT, "--scheduler", scheduler, code=1)
    assert f"{killed}.lock was left by process {process.pid}" in line
    assert "add --resume to continue from it, or --clear-lock" in line
    again = ("--clear-lock", "--scheduler", scheduler)
    assert "--resume" in refused("fit", data, killed, *FIT, *again)
    other = ("--model", "sgpr", "--set", "n_inducing=10", "--resume", "--scheduler", scheduler)
    assert "other data or settings" in refused("fit", data, killed, *other)
    kept = [p.stat().st_mtime_ns for p in sorted(killed.rglob("evaluations/c/*/0"))]
    assert len(kept) > 4
    resumed = succeed("fit", data, killed, *FIT, "--resume", "--scheduler", scheduler)
    undisturbed = succeed("fit", data, whole, *FIT, "--scheduler", scheduler)
    assert resumed["objective"] == undisturbed["objective"]
    assert resumed["iterations"] == undisturbed["iterations"]
    mine, theirs = (files(path) for path in (killed, whole))
    assert set(mine) == set(theirs)
    assert [k for k in mine if k != "zarr.json" and mine[k] != theirs[k]] == []
    checksums = {zarr.open_group(p, mode="r").attrs["checksum"] for p in (killed, whole)}
    assert len(checksums) == 1
    before = files(killed)
    again = invoke("fit", data, killed, *FIT, "--resume")
    assert (again.exit_code, again.stderr.count("\n")) == (0, 1)
    assert "is already complete" in again.stderr
    found = json.loads(again.stdout)
    assert (found["objective"], found["resumed"]) == (resumed["objective"], False)
    assert files(killed) == before


def test_a_killed_conversion_is_no_dataset(tmp_path):
    table, out = tmp_path / "t.csv", tmp_path / "out.zarr"
    X, y = rows(100_000)
    np.savetxt(table, np.column_stack([X, y]), delimiter=",", header="a,b,y", comments="")
    process = start("convert", table, out, "--target", "y", "--block-rows", "50")
    code, _ = stop_when(process, (out / "y" / "c" / "20").exists)
    assert code == -signal.SIGKILL
    for command in (("fit", out, tmp_path / "m.zarr", "--model", "sgpr"), ("info", out)):
        assert "out.zarr is incomplete: wait until it is written" in refused(*command)
    assert "exists already" in refused("convert", table, out, "--target", "y")


@pytest.mark.slow
def test_a_failed_fit_keeps_what_a_resumed_one_can_use(data, tmp_path, scheduler, monkeypatch):
    killed, options = tmp_path / "failed.zarr", (*FIT, "--scheduler", scheduler)
    evaluated, left = Additive.evaluate, []

    def fail(error, after):
        left[:] = range(after)

        def evaluate(self, theta, rows):
            if not left:
                raise error
            left.pop()
            return evaluated(self, theta, rows)

        monkeypatch.setattr(Additive, "evaluate", evaluate)

    fail(InputError("a mistake"), 3)
    assert refused("fit", data, killed, *options) == "Error: a mistake"
    assert not killed.exists()
    fail(RunError("workers died"), 3)
    line = refused("fit", data, killed, *options, code=1)
    assert line == "Error: workers died; the same command with --resume continues from here"
    assert len(list(killed.rglob("evaluations/c/*/0"))) == 3
    fail(OSError("connection lost"), 2)
    line = refused("fit", data, killed, *options, "--resume", code=1)
    assert "connection lost" in line
    assert "--resume continues" in line
    assert len(list(killed.rglob("evaluations/c/*/0"))) == 5


@pytest.mark.slow
def test_an_interrupted_fit_and_its_workers_stop_with_one_line(data, tmp_path):
    model = tmp_path / "m.zarr"
    process = start("fit", data, model, *FIT, "--workers", "1")
    code, stderr = stop_when(process, evaluations(model), signal.SIGINT)
    assert code == 130
    assert "--resume continues" in one_line(stderr)
    assert evaluations(model)()


@pytest.mark.parametrize(
    ("ending", "code", "word"),
    [(KeyboardInterrupt, 130, "interrupted"), (Terminated, 143, "terminated")],
)
def test_an_interrupted_fit_says_whether_anything_was_kept(
    ending, code, word, data, tmp_path, scheduler, monkeypatch
):
    store, options = tmp_path / "m.zarr", (*FIT, "--scheduler", scheduler)
    evaluated, left = Additive.evaluate, []

    def evaluate(self, theta, rows):
        if not left:
            raise ending
        left.pop()
        return evaluated(self, theta, rows)

    monkeypatch.setattr(Additive, "evaluate", evaluate)
    nothing = f"Error: {word}: nothing was kept"
    assert refused("fit", data, store, *options, code=code) == nothing
    assert not store.exists()
    again = invoke("fit", data, store, *options, "--resume")
    anew = f"model store {store} has nothing to resume: the fit starts anew"
    assert again.stderr.splitlines() == [anew, nothing]
    left[:] = [1, 2]
    goes_on = f"Error: {word}: the same command with --resume continues from here"
    assert refused("fit", data, store, *options, code=code) == goes_on
    assert len(list(store.rglob("evaluations/c/*/0"))) == 2
    assert refused("fit", data, store, *options, "--resume", code=code) == goes_on
    assert len(list(store.rglob("evaluations/c/*/0"))) == 2


def test_a_fit_that_is_interrupted_before_it_has_its_store_promises_nothing(
    data, tmp_path, monkeypatch
):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("daskgp.data.stores.locks._take", interrupted)
    assert refused("fit", data, tmp_path / "m.zarr", *FIT, code=130) == "Error: interrupted"


def test_rows_that_were_put_in_order_are_kept_too(data, tmp_path, scheduler, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    store = tmp_path / "m.zarr"
    lma = ("--model", "lma", "--set", "n_support=5", "--set", "block_rows=50")
    monkeypatch.setattr("daskgp.fit.hyperparameters.train_theta", interrupted)
    line = refused("fit", data, store, *lma, "--scheduler", scheduler, code=130)
    assert line == "Error: interrupted: the same command with --resume continues from here"
    assert "rows kept" in invoke("info", store).stdout
    written, arrange = [], rewriting.arrange
    with monkeypatch.context() as arranged:
        arranged.setattr(rewriting, "arrange", lambda *a: written.append(a[1]) or arrange(*a))
        refused("fit", data, store, *lma, "--scheduler", scheduler, "--resume", code=130)
    (first,) = written  # the order that gives lengthscales; the last one is not needed again
    assert first.endswith("-first")


def test_a_shell_completes_a_command_with_a_blank_argument():
    complete = ShellComplete(main, {}, "daskgp", "_DASKGP_COMPLETE").get_completions
    assert "--resume" in [found.value for found in complete(["predict", "", "in.zarr"], "--re")]


def test_a_checkpoint_tells_long_arrays_apart(tmp_path):
    X, y = rows(260, d=5)
    Z = X[:250].copy()
    settings = {"kernel": "rbf(1.0)", "inducing": Z, "max_iter": 1}
    daskgp.SGPR(**settings).fit(X, y, checkpoint=str(tmp_path / "c.zarr"))
    Z[125] += 0.5
    with pytest.raises(ValueError, match="other data or settings"):
        daskgp.SGPR(**settings).fit(X, y, checkpoint=str(tmp_path / "c.zarr"))


def test_resume_never_touches_a_store_of_another_kind(data, fitted, tmp_path):
    before = files(data)
    assert "is not a model store" in refused("fit", data, data, *FIT, "--resume")
    assert "is not a prediction store" in refused("predict", fitted, data, data, "--resume")
    assert files(data) == before


def test_places_where_y_is_unknown_are_converted_and_predicted(fitted, tmp_path):
    table, places, out = tmp_path / "p.csv", tmp_path / "p.zarr", tmp_path / "out.zarr"
    table.write_text("name,lon,lat\na,0.5,0.5\nb,1.0,2.0\n")
    line = refused("predict", fitted, table, out)
    options = ("--features", "lon,lat")
    assert f"convert it first: daskgp convert {table} {places} {' '.join(options)}; or" in line
    found = succeed("convert", table, places, *options)
    assert (found["rows"], found["targets"]) == (2, [])
    assert "none: inputs of a prediction" in shown("info", places)
    assert succeed("predict", fitted, places, out, "--workers", "1")["rows"] == 2
    assert "has no y" in refused("fit", places, tmp_path / "m.zarr", "--model", "sgpr")


def test_the_package_runs_as_the_command_does(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["daskgp", "--version"])
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_module("daskgp", run_name="__main__", alter_sys=True)
    assert capsys.readouterr().out == f"daskgp, version {daskgp.__version__}\n"
