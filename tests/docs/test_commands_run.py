"""The commands of ``--help`` and README.md run, on small data of the kind that they speak of."""

import re
import shlex
import shutil

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from commands import invoke
from docs_text import ROOT, code_blocks

import daskgp
from daskgp.cli import main

FILE = re.compile(r"[\w*/]+\.(?:zarr|csv|parquet|nc|html|toml)")
HELP = [
    line
    for command in (main, *main.commands.values())
    for line in re.findall(r"(?:^ *|  )(daskgp .+)$", command.help, re.MULTILINE)
]
README = [
    lines
    for block in code_blocks((ROOT / "README.md").read_text(), "sh")
    if (lines := re.findall(r"^daskgp .*$", block, re.MULTILINE))
]
SLOW = pytest.param(True, marks=pytest.mark.slow, id="whole")


def table(target, names, seed=0, n=60, **more):
    """Rows of two columns of places, others, and a target."""
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(5, 11, n), rng.uniform(45, 48, n)
    values = np.sin(x) + y + 0.1 * rng.standard_normal(n)
    return pd.DataFrame({names[0]: x, names[1]: y, **more, target: values})


@pytest.fixture
def globe(tmp_path):
    """The files that help names: rows in degrees, their model, and a store that has grown."""
    (tmp_path / "parts").mkdir()
    for seed, name in enumerate(("data", "test")):
        rows = table("y", ("lon", "lat"), seed)
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
        rows.to_parquet(tmp_path / "parts" / f"{name}.parquet")
    store = str(tmp_path / "train.zarr")
    daskgp.convert(tmp_path / "data.csv", store, target="y", geographic=("lon", "lat"))
    model = daskgp.SGPR(n_inducing=10, optimizer=None).fit(*daskgp.open_dataset(store))
    model.save(str(tmp_path / "model.zarr"))
    daskgp.convert(tmp_path / "test.csv", store, append=True)
    return tmp_path


@pytest.fixture
def files(tmp_path):
    """The files that README.md names: tables on a plane, and stations with terrain and days."""
    for seed, name in enumerate(("measurements", "parts/1", "parts/2", "new/1", "places", "test")):
        path = tmp_path / f"{name}.csv"
        path.parent.mkdir(exist_ok=True)
        table("height", ("easting", "northing"), seed).to_csv(path, index=False)
        if name in ("measurements", "test"):
            made = {"measurements": "train.zarr", "test": "test.zarr"}[name]
            daskgp.convert(path, str(tmp_path / made), target="height")
    i = np.arange(60)
    station, elevation = [f"station {k}" for k in i], 100.0 * (i % 7)
    rows = table("temperature", ("lon", "lat"), elevation=elevation, station=station)
    rows.to_csv(tmp_path / "stations.csv", index=False)
    day = pd.Timestamp("2026-03-01") + pd.to_timedelta(i % 3, "D")
    rows = table("temperature", ("lon", "lat"), day=day)
    rows.to_csv(tmp_path / "daily.csv", index=False)
    coords = {"lat": np.linspace(45, 48, 4), "lon": np.linspace(5, 11, 5)}
    ground = xr.DataArray(np.full((4, 5), 300.0), coords, ("lat", "lon"))
    ground.to_dataset(name="elevation").to_netcdf(tmp_path / "terrain.nc", engine="h5netcdf")
    return tmp_path


def run(line, folder, scheduler, whole=False):
    """Run a line of a shell in a folder, with small settings unless it is to run as a ``whole``."""
    line, _, redirected = line.partition(" > ")
    command, *words = shlex.split(line, comments=True)[1:]
    named = [folder / word for word in words if FILE.fullmatch(word)]
    words = [str(folder / word) if FILE.fullmatch(word) else word for word in words]
    if command in ("fit", "convert") and "--append" not in words:
        shutil.rmtree(named[1], ignore_errors=True)  # which another line needs
    if command in ("fit", "plan", "cross-validate") and not whole:
        words += () if "--model" in words else ("--model", "sgpr")
        words += ("--set", "max_iter=2", *(("--set", "n_inducing=10") if "sgpr" in words else ()))
    elif command == "fit" and "--model" not in words:
        words += "--time-budget", "5s"
    if "scheduler" in {parameter.name for parameter in main.commands[command].params}:
        words += "--scheduler", scheduler
    done = invoke(command, *words)
    assert done.exit_code == 0, f"{line}: {done.stderr}"
    if redirected:
        (folder / redirected).write_text(done.stdout)
    for path in named:
        assert "*" in path.name or path.exists(), f"{line}: there is no {path.name}"


def test_examples_are_found():
    assert len(HELP) == 10
    text = (ROOT / "README.md").read_text()
    assert sum(map(len, README)) == text.count("\ndaskgp ") > 10


@pytest.mark.whole
@pytest.mark.parametrize("whole", [False, SLOW])
@pytest.mark.parametrize("line", [line for line in HELP if "workflow" not in line])
def test_a_command_of_help_runs(line, whole, globe, scheduler, monkeypatch):
    monkeypatch.chdir(globe)
    run(line, globe, scheduler, whole)
    if " predict " in line:
        made = xr.open_zarr(globe / "map.zarr", consolidated=False)
        assert made.sizes == {"lat": 7, "lon": 13}  # the box of the rows
        assert np.isfinite(made["mean"]).all()


@pytest.mark.slow
def test_the_commands_of_workflows_run(globe, scheduler, monkeypatch):
    monkeypatch.chdir(globe)
    for line in HELP:
        if "workflow" in line:
            run(line, globe, scheduler)
    assert (globe / "folds.json").exists()


@pytest.mark.whole
@pytest.mark.parametrize("whole", [False, SLOW])
@pytest.mark.parametrize("lines", README, ids=[lines[0].split(" --")[0] for lines in README])
def test_the_commands_of_the_readme_run(lines, whole, files, scheduler):
    for line in lines:
        run(line, files, scheduler, whole)
    for name in ("map.zarr", "days.zarr"):
        if any(name in line for line in lines):
            made = xr.open_zarr(files / name, consolidated=False)
            assert np.isfinite(made["mean"]).all()
