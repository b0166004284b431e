"""The scripts of examples/schedule: a folder is watched; runs overlap, break, and fill the disk."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
import yaml
from commands import ONE_THREAD, dataset, one_line, rows, stop_when

import daskgp

SCRIPTS = Path(__file__).parents[2] / "examples" / "schedule"
MAP = ("--resolution", "x0=1,x1=1")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="GNU find, date, mv and flock")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A folder with 60 rows and their model."""
    folder = tmp_path_factory.mktemp("job")
    X, y = rows(60)
    dataset(folder / "rows.zarr", X, y)
    settings = {"n_inducing": 20, "optimizer": None, "kernel": "matern32(1.0)", "progress": False}
    model = daskgp.SGPR(**settings).fit(*daskgp.open_dataset(str(folder / "rows.zarr")))
    model.save(str(folder / "model.zarr"))
    (folder / "inbox").mkdir()
    return folder


@pytest.fixture
def job(fitted, tmp_path):
    return shutil.copytree(fitted, tmp_path / "job")


def table(path, seed, n=40):
    """A csv file of measurements."""
    X, y = rows(n, seed=seed)
    lines = [",".join(map(repr, map(float, row))) for row in np.column_stack([X, y])]
    path.write_text("\n".join(["x0,x1,y", *lines, ""]))
    return path


def run(*words, **environment):
    """Run a script with the command of this environment, and files that need not settle."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, **ONE_THREAD, "PATH": path, "SETTLE": "0", **environment}
    root = str(SCRIPTS.parents[1])
    environment["PYTHONPATH"] = os.pathsep.join([root, os.getenv("PYTHONPATH", "")])
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, env=environment, timeout=120
    )


def watch(folder, *options, code=0, **environment):
    """Run watch.sh, which must end with a code; the lines on stderr and the heartbeat."""
    done = run("bash", SCRIPTS / "watch.sh", folder, *options, **environment)
    assert done.returncode == code, done.stderr
    beat = folder / "heartbeat.json"
    return done.stderr, json.loads(beat.read_text()) if beat.exists() else None


def n_rows(folder, store="rows.zarr"):
    X, _ = daskgp.open_dataset(str(folder / store))
    return len(X)


# -- quick: what needs no model ----------------------------------------------------------------


@pytest.mark.parametrize("script", ["watch.sh", "tiles.slurm"])
def test_scripts_parse(script):
    done = run("bash", "-n", SCRIPTS / script)
    assert (done.returncode, done.stderr) == (0, "")


@LINUX
def test_a_run_beside_another_ends_with_one_line_and_leaves_the_heartbeat(job):
    (job / "heartbeat.json").write_text('{"exit": 0}')
    before = ["flock", str(job / "job.lock"), "bash", "-c", "echo held; read"]
    with subprocess.Popen(before, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        stderr, beat = watch(job, *MAP, code=1)
        other.communicate(b"\n")
    assert "another run is at work" in one_line(stderr)
    assert beat == {"exit": 0}


STAND_IN = r"""#!/usr/bin/env bash
# Counts rows as daskgp does, in the files ROWS and TOTAL, and fails where FAIL_<command> says so.
[ "$1" = --quiet ] && shift
fail=FAIL_$1
[ -z "${!fail:-}" ] || exit "${!fail}"
case $1 in
    info) printf '{"store": "%s", "rows": %d, "complete": true}\n' "$2" "$(cat ROWS)" ;;
    convert) echo $(($(cat ROWS) + $(wc -l < "$2") - 1)) > ROWS ;;
    update) printf '{"total": %d}\n' "$(cat TOTAL 2> /dev/null || cat ROWS)" ;;
    predict) mkdir -p "$3" && echo "$*" >> calls ;;
esac
"""


@pytest.fixture
def counted(tmp_path):
    """A folder of 60 rows, and a PATH with a daskgp that only counts."""
    job, command = tmp_path / "job", tmp_path / "bin" / "daskgp"
    for folder in (job / "inbox", job / "taking", command.parent):
        folder.mkdir(parents=True)
    command.write_text(STAND_IN)
    command.chmod(0o755)
    (job / "ROWS").write_text("60\n")
    return job, {"PATH": os.pathsep.join([str(command.parent), os.environ["PATH"]])}


@LINUX
@pytest.mark.parametrize("keep", ["0", "2"])
def test_the_newest_map_is_kept_even_if_it_has_fewer_rows(keep, counted):
    job, path = counted
    for total in (100, 140, 90):
        (job / "TOTAL").write_text(f"{total}\n")
        watch(job, *MAP, KEEP=keep, **path)
    assert os.readlink(job / "latest.zarr") == "maps/90.zarr"
    found = {one.name for one in (job / "maps").iterdir()}
    assert found == ({"90.zarr", "140.zarr"} if keep == "2" else {"90.zarr"})


@LINUX
def test_files_are_not_refused_where_the_store_is_wrong(counted):
    job, path = counted
    table(job / "inbox" / "1.csv", 1)
    watch(job, code=2, FAIL_info="2", **path)
    assert [one.name for one in (job / "taking").iterdir()] == ["1.csv"]
    watch(job, **path)
    assert (job / "ROWS").read_text() == "100\n"
    assert (job / "done" / "1.csv").exists()


@LINUX
def test_a_mended_file_of_a_refused_name_is_taken(counted):
    job, path = counted
    (job / "taking" / "1.csv.rows").write_text("20\n")  # killed as it was refused
    table(job / "inbox" / "1.csv", 1)
    watch(job, **path)
    assert (job / "ROWS").read_text() == "100\n"


@LINUX
def test_a_folder_that_cannot_be_searched_is_no_success(counted):
    job, path = counted
    stderr, beat = watch(job, code=1, SETTLE="soon", **path)
    assert "find" in stderr
    assert beat["exit"] == 1


def tile(job, task, last, *axis, code=0, **path):
    """Run a task of an array, which must end with a code."""
    array = {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_MAX": str(last)}
    done = run("bash", SCRIPTS / "tiles.slurm", job, *axis, **array, **path)
    assert done.returncode == code, done.stderr
    return done.stderr


@LINUX
def test_tiles_are_published_once_all_of_the_array_are_there(counted):
    job, path = counted
    axis = ("x0", 0, 0.5, 2)
    tile(job, 2, 2, *axis, **path)  # of 0 to 2 or alone, as by --array=2
    for task in (0, 3):
        tile(job, task, 3, *axis, **path)
        assert not (job / "latest").exists()
    tile(job, 1, 1, *axis, **path)  # once more, alone
    assert os.readlink(job / "latest") == "tiles/60"


@LINUX
def test_tiles_begin_and_end_at_their_cells(counted):
    job, path = counted
    tile(job, 7, 7, "day", 18687, 1 / 24, 24, **path)
    low, high = re.search(r"day=([\d.]+):([\d.]+)", (job / "calls").read_text()).groups()
    assert [float(low), float(high)] == pytest.approx([18694, 18694 + 23 / 24], abs=1e-10)
    stderr = tile(job, 0, 7, "day", "2021-03-01", 1, 24, code=2, **path)
    assert "FIRST, STEP or CELLS is 2021-03-01" in one_line(stderr)


def test_units_are_valid(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd is not installed")
    for name in ("daskgp-watch.service", "daskgp-watch.timer"):
        text = (SCRIPTS / name).read_text().replace("/srv/gp/watch.sh", str(SCRIPTS / "watch.sh"))
        (tmp_path / name).write_text(text)
    done = run("systemd-analyze", "verify", *tmp_path.iterdir())
    assert (done.returncode, done.stderr) == (0, "")


def unit_command(job):
    text = (SCRIPTS / "daskgp-watch.service").read_text()
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    line = line.replace("/srv/gp/watch.sh", str(SCRIPTS / "watch.sh"))
    return shlex.split(line.replace("/srv/gp/data", str(job)).replace("x=1,y=1", MAP[1]))


def pod_command(job):
    pod = yaml.safe_load((SCRIPTS / "cronjob.yaml").read_text())["spec"]["jobTemplate"]["spec"]
    (container,) = pod["template"]["spec"]["containers"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounted) == {volume["name"] for volume in pod["template"]["spec"]["volumes"]}
    policy = pod["podFailurePolicy"]["rules"][0]["onExitCodes"]
    assert (policy["containerName"], policy["values"]) == (container["name"], [2])
    found = {f"{mounted['job']}/watch.sh": str(SCRIPTS / "watch.sh"), mounted["data"]: str(job)}
    found["x=1,y=1"] = MAP[1]
    return [found.get(word, word) for word in container["command"]]


def flow_module(monkeypatch):
    """The flow, with decorators that do nothing where Prefect is not installed."""
    if importlib.util.find_spec("prefect") is None:

        def decorator(function=None, **_):
            return function or (lambda function: function)

        monkeypatch.setitem(sys.modules, "prefect", SimpleNamespace(flow=decorator, task=decorator))
    spec = importlib.util.spec_from_file_location("prefect_flow", SCRIPTS / "prefect_flow.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("code", "again"), [(1, True), (2, False), (143, True)])
def test_the_flow_tries_again_unless_somebody_has_to_look(code, again, monkeypatch):
    error = subprocess.CalledProcessError(code, "watch.sh")
    state = SimpleNamespace(result=lambda raise_on_failure: error)
    assert flow_module(monkeypatch).worth_another_try(None, None, state) is again


# -- slow: whole runs --------------------------------------------------------------------------


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("command", [unit_command, pod_command], ids=["systemd", "kubernetes"])
def test_the_command_of_a_scheduler_runs(command, job):
    table(job / "inbox" / "1.csv", 1)
    done = run(*command(job))
    assert done.returncode == 0, done.stderr
    assert np.isfinite(xr.open_zarr(job / "latest.zarr")["mean"]).all()


@LINUX
@pytest.mark.slow
def test_the_flow_runs_the_job(job, monkeypatch):
    module = flow_module(monkeypatch)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("SETTLE", "0")
    table(job / "inbox" / "1.csv", 1)
    watched = getattr(module.watch, "fn", module.watch)
    watched(str(job), list(MAP))
    assert (job / "latest.zarr" / "mean").exists()
    (job / "inbox" / "2.csv").write_text("x0,x1,y\n1,2")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        watched(str(job), [])
    assert caught.value.returncode == 2


@LINUX
@pytest.mark.slow
def test_a_folder_is_watched(job):
    table(job / "inbox" / "a day.csv", 1)
    stderr, beat = watch(job, *MAP)
    assert stderr == ""
    assert (beat["exit"], beat["rows"]) == (0, 100)
    assert os.readlink(job / "latest.zarr") == "maps/100.zarr"
    assert [path.name for path in (job / "done").iterdir()] == ["a day.csv"]
    before = xr.open_zarr(job / "latest.zarr")["mean"].values
    watch(job, *MAP)  # nothing to do
    assert np.array_equal(xr.open_zarr(job / "latest.zarr")["mean"].values, before)
    for seed in (2, 3):
        table(job / "inbox" / f"{seed}.csv", seed)
        watch(job, *MAP, KEEP="2")
    assert n_rows(job) == 180
    assert sorted(path.name for path in (job / "maps").glob("*.zarr")) == ["140.zarr", "180.zarr"]
    assert os.readlink(job / "latest.zarr") == "maps/180.zarr"


@LINUX
@pytest.mark.slow
def test_files_that_are_half_written_or_bad_stop_no_others(job):
    text = table(job / "inbox" / "half.csv", 1).read_text()
    (job / "inbox" / "half.csv").write_text(text[: len(text) // 2])
    stderr, _ = watch(job, code=2)
    assert "half.csv ends within a line" in one_line(stderr)
    assert n_rows(job) == 60
    (job / "inbox" / "half.csv").write_text(text)  # now it is whole
    (job / "inbox" / "bad.csv").write_text("x0,x1,y\n1,2,none\n")
    stderr, beat = watch(job, code=2)
    assert "bad.csv is not numeric" in one_line(stderr)
    assert beat["exit"] == 2
    assert n_rows(job) == 100
    assert [path.name for path in (job / "refused").iterdir()] == ["bad.csv"]
    table(job / "inbox" / "half.csv", 1)  # once more
    stderr, _ = watch(job, code=2)
    assert "half.csv was taken before" in one_line(stderr)
    assert n_rows(job) == 100


@LINUX
@pytest.mark.slow
def test_a_file_that_is_still_written_is_left(job):
    table(job / "inbox" / "new.csv", 1)
    assert watch(job, SETTLE="3600")[0] == ""
    assert (job / "inbox" / "new.csv").exists()
    assert n_rows(job) == 60


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("appended", [False, True])
def test_a_file_counts_once_when_a_run_was_killed_around_its_append(appended, job):
    (job / "taking").mkdir()
    table(job / "taking" / "1.csv", 1)
    (job / "taking" / "1.csv.rows").write_text("60\n")
    if appended:
        done = run("daskgp", "convert", job / "taking" / "1.csv", job / "rows.zarr", "--append")
        assert done.returncode == 0
    watch(job)
    assert n_rows(job) == 100
    assert [path.name for path in (job / "done").iterdir()] == ["1.csv"]
    assert not [*(job / "taking").iterdir()]


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("reached", ["taking/1.csv.rows", "done/1.csv", "maps/140.zarr"])
def test_rows_count_once_after_a_kill_anywhere(reached, job):
    for name in ("1", "2"):
        table(job / "inbox" / f"{name}.csv", int(name))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, **ONE_THREAD, "PATH": path, "SETTLE": "0"}
    process = subprocess.Popen(
        ["bash", str(SCRIPTS / "watch.sh"), str(job), *MAP],
        start_new_session=True,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    stop_when(process, (job / reached).exists)
    assert run("flock", job / "job.lock", "true").returncode == 0  # its children have ended
    _, beat = watch(job, *MAP)
    assert (beat["exit"], beat["rows"], n_rows(job)) == (0, 140, 140)
    assert sorted(path.name for path in (job / "done").iterdir()) == ["1.csv", "2.csv"]
    assert np.isfinite(xr.open_zarr(job / "latest.zarr")["mean"]).all()


@LINUX
@pytest.mark.slow
def test_a_full_disk_is_told_in_one_line_and_the_next_run_goes_on(fitted, small_disk):
    job = shutil.copytree(fitted, small_disk / "job")
    table(job / "inbox" / "1.csv", 1)
    watch(job, code=0)
    table(job / "inbox" / "2.csv", 2)
    size = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(bytes(size.f_bavail * size.f_frsize))
    stderr, beat = watch(job, *MAP, code=1)
    assert len(stderr.splitlines()) == 1
    assert re.search("disk is full|No space left", stderr), stderr
    assert beat["rows"] == 100  # of the last run that could write it
    (small_disk / "ballast").unlink()
    _, beat = watch(job, *MAP)
    assert (beat["exit"], beat["rows"]) == (0, 140)
    assert n_rows(job) == 140
    assert np.isfinite(xr.open_zarr(job / "latest.zarr")["mean"]).all()


@LINUX
@pytest.mark.slow
def test_tasks_of_an_array_make_the_map_of_one_run(job):
    options = ("--resolution", "x1=1", "--extent", "x1=0:3")
    for task in range(3):
        assert not (job / "latest").exists()
        done = run(
            *("bash", SCRIPTS / "tiles.slurm", job, "x0", 0, 0.5, 2, *options),
            SLURM_ARRAY_TASK_ID=str(task),
            SLURM_ARRAY_TASK_MAX="2",
        )
        assert done.returncode == 0, done.stderr
    joined = xr.open_mfdataset(
        str(job / "latest" / "*.zarr"), engine="zarr", consolidated=False
    ).transpose("x0", "x1")
    np.testing.assert_allclose(joined["x0"], [0, 0.5, 1, 1.5, 2, 2.5])
    places = np.stack(np.meshgrid(joined["x0"], joined["x1"], indexing="ij"), -1).reshape(-1, 2)
    mean = daskgp.load(str(job / "model.zarr")).predict(places)
    np.testing.assert_allclose(joined["mean"].values.ravel(), mean, rtol=1e-5)
