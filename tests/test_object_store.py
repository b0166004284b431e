"""Datasets, models and predictions on S3: the same bits as on a disk, and few requests.

The server is moto's, on loopback, and takes its time over each answer.
"""

import json
import os
import signal
import socket
import sys
import time

import boto3
import fsspec
import numpy as np
import pytest
import xarray as xr
import zarr
from commands import dataset, invoke, one_line, refused, rows, start, stop_when, succeed
from distributed import LocalCluster
from s3server import Server

import daskgp
from daskgp.data import exists
from daskgp.data.stores import groups, models
from daskgp.errors import StoreError

SMALL = ("kernel=matern32(1.0)", "n_inducing=10", "max_iter=1")
FIT = ("--model", "sgpr", *(f"--set={setting}" for setting in SMALL))
X, Y = rows(400)
CLOSED = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:*",
            "Resource": ["arn:aws:s3:::closed", "arn:aws:s3:::closed/*"],
        }
    ],
}


def environment(server):
    """Variables of who uses the server."""
    return {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


@pytest.fixture(scope="module")
def server():
    """The server, with the environment of who uses it."""
    with Server().running() as found, pytest.MonkeyPatch.context() as patch:
        for name, value in environment(found).items():
            patch.setenv(name, value)
        client = boto3.client("s3")
        client.create_bucket(Bucket="bucket")
        client.create_bucket(Bucket="closed")
        client.put_bucket_policy(Bucket="closed", Policy=json.dumps(CLOSED))
        yield found
        client.close()


@pytest.fixture(scope="module")
def cluster(server):
    """Address of a cluster whose workers know the server."""
    own = environment(server)
    with LocalCluster(2, threads_per_worker=1, dashboard_address=":0", env=own) as found:
        yield found.scheduler_address


@pytest.fixture(scope="module")
def data(server):
    return dataset("s3://bucket/train.zarr", X, Y)


@pytest.fixture(scope="module")
def model(data, cluster):
    succeed("fit", data, "s3://bucket/model.zarr", *FIT, "--scheduler", cluster)
    return "s3://bucket/model.zarr"


def keys(server, prefix=""):
    """Objects in the bucket."""
    client = boto3.client("s3")
    found = client.list_objects_v2(Bucket="bucket", Prefix=prefix).get("Contents", [])
    client.close()
    return {entry["Key"] for entry in found}


def values(url):
    """The arrays of a prediction store."""
    group = groups.open_group(url, "prediction store")
    return {name: group[name][...] for name in ("mean", "variance", "done")}


@pytest.mark.parametrize("method", ["sgpr", pytest.param("lma", marks=pytest.mark.slow)])
def test_a_run_on_s3_gives_the_bits_of_one_on_disk(method, server, cluster, tmp_path):
    source, on = tmp_path / "t.csv", ("--scheduler", cluster)
    both = np.column_stack([X, Y])[:200]
    np.savetxt(source, both, delimiter=",", header="a,b,y", comments="")
    places = {"disk": str(tmp_path), "s3": f"s3://bucket/run-{method}"}
    found = {}
    for name, base in places.items():
        data, blocks, model = (f"{base}/{what}.zarr" for what in ("data", "blocks", "model"))
        succeed("convert", source, data, "--target", "y", "--block-rows", 100)
        if method == "lma":
            succeed("prepare", data, blocks, "--block-rows", 50, *on)
            fit = ("--model", "lma", "--set", "n_support=10", "--set", "max_iter=2")
        else:
            blocks, fit = data, FIT
        succeed("fit", blocks, model, *fit, *on)
        succeed("predict", model, data, f"{base}/p.zarr", *on)
        scores = succeed("score", model, data, *on)
        scores.pop("seconds")
        assert invoke("info", model).exit_code == 0
        assert invoke("plan", blocks, "--model", "sgpr", "--set", "n_inducing=9").exit_code == 0
        stored = models.read(model)
        found[name] = (stored.arrays, values(f"{base}/p.zarr"), scores)
    disk, s3 = found["disk"], found["s3"]
    for mine, theirs in zip(disk[:2], s3[:2], strict=True):
        for array in mine:
            np.testing.assert_array_equal(theirs[array], mine[array], err_msg=array)
    assert s3[2] == disk[2]


@pytest.mark.slow
def test_the_python_interface_saves_to_s3_and_loads_from_it(server, data):
    url = "s3://bucket/saved.zarr"
    fitted = daskgp.SGPR(n_inducing=5, optimizer=None).fit(*daskgp.open_dataset(data))
    fitted.save(url)
    np.testing.assert_array_equal(daskgp.load(url).predict(X[:9]), fitted.predict(X[:9]))
    with pytest.raises(StoreError, match="exists already"):
        fitted.save(url)


@pytest.mark.slow
def test_a_fit_that_was_killed_goes_on_from_its_checkpoint_on_s3(server, data, cluster):
    url, longer = "s3://bucket/killed.zarr", (*FIT[:-1], "--set=max_iter=6")
    whole = "s3://bucket/whole.zarr"
    succeed("fit", data, whole, *longer, "--scheduler", cluster)
    row = "killed.zarr/checkpoint/evaluations/c/2/0"
    process = start("fit", data, url, *longer, "--scheduler", cluster)
    code, _ = stop_when(process, lambda: row in keys(server, "killed.zarr/checkpoint"))
    assert code == -signal.SIGKILL
    assert "run the same fit with --resume" in refused(
        "predict", url, data, "s3://bucket/none.zarr"
    )
    succeed("fit", data, url, *longer, "--resume", "--scheduler", cluster)
    assert models.read(url).checksum == models.read(whole).checksum
    assert not keys(server, "killed.zarr/checkpoint")


@pytest.mark.slow
def test_a_prediction_that_was_killed_goes_on_with_the_chunks_it_lacks(
    server, data, model, cluster
):
    url = "s3://bucket/part.zarr"
    process = start("predict", model, data, url, "--scheduler", cluster)
    stop_when(process, lambda: any("part.zarr/done/c" in key for key in keys(server, "part.zarr")))
    done = succeed("predict", model, data, url, "--resume", "--scheduler", cluster)
    assert done["rows"] + done["skipped"] == len(X)
    succeed("predict", model, data, "s3://bucket/all.zarr", "--scheduler", cluster)
    for name, array in values("s3://bucket/all.zarr").items():
        np.testing.assert_array_equal(values(url)[name], array)


def test_a_run_that_fails_leaves_nothing_behind(server, data, cluster, tmp_path):
    before = keys(server)
    few = ("--model", "sgpr", "--set", "n_inducing=1000")
    refused("fit", data, "s3://bucket/failed.zarr", *few, "--scheduler", cluster)
    (tmp_path / "bad.csv").write_text("a,y\n1,2\n3,oops\n")
    refused("convert", tmp_path / "bad.csv", "s3://bucket/failed.zarr", "--target", "y")
    assert keys(server) == before


@pytest.fixture
def nowhere(server, monkeypatch):
    """An environment that knows neither the server nor credentials."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.slow
def test_many_files_of_an_open_bucket_need_no_credentials(server, nowhere, tmp_path):
    own = {"endpoint_url": server.url, "key": "a", "secret": "b"}
    public = {**own, "s3_additional_kwargs": {"ACL": "public-read"}}
    parts = [np.column_stack([X, Y])[i::3] for i in range(3)]
    for i, part in enumerate(parts):
        np.savetxt(tmp_path / "t.csv", part, delimiter=",", header="a,b,y", comments="")
        with fsspec.open(f"s3://bucket/open/part-{i}.csv", "wb", **public) as file:
            file.write((tmp_path / "t.csv").read_bytes())
    options = ("--storage-options", "anon=true")
    options += ("--storage-options", f"endpoint_url={server.url}")
    for name, value in own.items():
        options += ("--destination-options", f"{name}={value}")
    source, store = "s3://bucket/open/part-[01].csv", "s3://bucket/appended.zarr"
    rows = len(X) - len(parts[2])
    done = succeed("convert", source, store, "--target", "y", "--block-rows", 100, *options)
    assert done["rows"] == rows
    done = succeed("convert", "s3://bucket/open/part-2.csv", store, "--append", *options)
    assert done["rows"] == len(parts[2])
    here = tmp_path / "here.zarr"
    succeed("convert", "s3://bucket/open", here, "--target", "y", *options[:4])
    for path, settings in ((str(here), None), (store, own)):
        group = zarr.open_group(path, mode="r", storage_options=settings)
        found = np.column_stack([group["X"][...], group["y"][...]])
        np.testing.assert_array_equal(found, np.concatenate(parts))
        assert group.attrs["complete"]
    told = refused("convert", source, tmp_path / "no.zarr", *options[2:4])
    assert "no credentials: set AWS_ACCESS_KEY_ID" in told
    assert "for a public bucket add --storage-options anon=true" in told
    told = refused("convert", "s3://bucket/open/*.nc", tmp_path / "no.zarr", *options[:4])
    assert "no file matches s3://bucket/open/*.nc: check the pattern" in told


@pytest.mark.slow
def test_grids_in_a_bucket_are_combined(server, tmp_path):
    times = np.array(["2020-01-01", "2020-01-02"], "M8[ns]")
    for i, form in enumerate(("nc", "nc", "zarr", "zarr")):
        coords = {"time": times[i % 2 : i % 2 + 1], "x": np.arange(3.0)}
        grid = xr.Dataset({"temp": (("time", "x"), [np.arange(3.0) + i % 2])}, coords)
        url = f"s3://bucket/grids/{i}.{form}"
        if form == "nc":
            grid.to_netcdf(tmp_path / "g.nc")
            with fsspec.open(url, "wb") as file:
                file.write((tmp_path / "g.nc").read_bytes())
        else:
            grid.to_zarr(url, consolidated=False)
    for form in ("nc", "zarr"):
        out = tmp_path / f"{form}.zarr"
        assert daskgp.convert(f"s3://bucket/grids/*.{form}", out, "temp").rows == 6
        _, y = daskgp.open_dataset(out)
        np.testing.assert_array_equal(y, [0, 1, 2, 1, 2, 3])


def test_stores_that_others_made_or_removed_are_seen_at_once(server):
    url, client = "s3://bucket/seen.zarr", boto3.client("s3")
    assert not exists(url)
    client.put_object(Bucket="bucket", Key="seen.zarr/zarr.json", Body=b"{}")
    assert exists(url)
    client.put_object(Bucket="bucket", Key="seen.zarr/X/zarr.json", Body=b"{}")
    assert groups.names_in(url) == {"X"}
    client.delete_object(Bucket="bucket", Key="seen.zarr/X/zarr.json")
    client.delete_object(Bucket="bucket", Key="seen.zarr/zarr.json")
    assert not exists(url)
    client.close()


def test_no_operation_makes_needless_requests(server, data, model, cluster):
    daskgp.open_dataset(data)  # the first contact of this process
    chunks = len(X) // 100
    with server.counted() as asked:
        A, y = daskgp.open_dataset(data)
    assert sum(asked.values()) <= 10  # the group, its names, X, y and what is around them
    with server.counted() as asked:
        np.asarray(A), np.asarray(y)
    assert sum(asked.values()) == 2 * chunks
    with server.counted() as asked:
        found = daskgp.load(model)
    arrays = len(models.read(model).arrays)
    assert sum(asked.values()) <= 2 * arrays + 4  # description and chunk of each
    with server.counted() as asked:
        found.predict(X[:5])
    assert not asked
    with server.counted() as asked:
        daskgp.SGPR("rbf(1.0)", n_inducing=10, max_iter=1).fit(A, y)
    read = sum(count for (_, path), count in asked.items() if "/c/" in path)
    # seven ask what rows have beside y, two list the chunks
    assert sum(asked.values()) - read <= 21
    assert not any(method == "HEAD" and "/c/" in path for method, path in asked)


UNUSABLE = {
    "no bucket": ("s3://wrong/d.zarr", {}, "no store at s3://wrong/d.zarr"),
    "no permission": ("s3://closed/d.zarr", {}, "permission denied: use credentials"),
    "no credentials": (
        "s3://bucket/d.zarr",
        {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None, "HOME": "/nowhere"},
        "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    ),
    "nobody there": (
        "s3://bucket/d.zarr",
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
        "Could not connect to the endpoint URL",
    ),
    "no answer": ("s3://bucket/d.zarr", {"AWS_ENDPOINT_URL": "silent"}, "no answer within 20 s"),
    "no address": (
        "s3://bucket/d.zarr",
        {"AWS_ENDPOINT_URL": "nonsense"},
        "Invalid endpoint: nonsense",
    ),
    "no s3fs": ("s3://bucket/d.zarr", {"PYTHONPATH": "without"}, "pip install 'daskgp[s3]'"),
}


SLOW = ("no answer", "no bucket", "no address", "nobody there")


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[pytest.mark.slow] * (c in SLOW)) for c in UNUSABLE]
)
def test_a_place_that_cannot_be_used_is_said_in_one_line_and_soon(
    case, server, tmp_path, monkeypatch
):
    url, environment, says = UNUSABLE[case]
    (tmp_path / "s3fs.py").write_text("raise ImportError('no module named s3fs')\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for name, value in environment.items():
            if value == "silent":
                value = f"http://127.0.0.1:{silent.getsockname()[1]}"
            if value == "without":
                value = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
            monkeypatch.delenv(name, raising=False)
            if value is not None:
                monkeypatch.setenv(name, value)
        began = time.monotonic()
        process = start("info", url)
        stdout, stderr = process.communicate(timeout=90)
    assert process.returncode == 2, stderr
    assert stdout == ""
    assert says in one_line(stderr)
    assert time.monotonic() - began < 60


@pytest.mark.slow
def test_a_bucket_that_cannot_be_written_is_found_out_before_the_work(server, data):
    for bucket, says in {"wrong": "bucket does not exist", "closed": "permission denied"}.items():
        began = time.monotonic()
        line = refused("fit", data, f"s3://{bucket}/m.zarr", *FIT)
        assert says in line
        assert time.monotonic() - began < 30


@pytest.mark.slow
def test_a_command_on_s3_says_nothing_but_its_result(server, data, model):
    process = start("score", model, data, "--workers", 1)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert len(stdout.splitlines()) == 1
    assert stderr == ""


@pytest.mark.slow
def test_the_folder_of_temporary_rows_may_be_on_s3(server, cluster, tmp_path):
    with daskgp.connect(cluster):
        settings = {"n_support": 8, "max_iter": 1, "block_rows": 50}
        there = daskgp.LMA(**settings, store="s3://bucket/rows").fit(X, Y)
        here = daskgp.LMA(**settings, store=str(tmp_path)).fit(X, Y)
    np.testing.assert_array_equal(there.predict(X[:9]), here.predict(X[:9]))


@pytest.mark.slow
def test_an_icechunk_repository_on_s3_gets_one_commit_a_run(server, model, cluster):
    ic = pytest.importorskip("icechunk")
    places = xr.Dataset(coords={"x0": np.linspace(0, 3, 8), "x1": np.linspace(0, 3, 6)})
    places["z"] = (("x0", "x1"), np.zeros((8, 6)))
    places.to_zarr(
        "s3://bucket/places.zarr", encoding={"z": {"chunks": (4, 3)}}, consolidated=False
    )
    url = "s3://bucket/maps.icechunk"
    done = succeed("predict", model, "s3://bucket/places.zarr", f"{url}/a", "--scheduler", cluster)
    assert done["rows"] == 48
    succeed("predict", model, "s3://bucket/places.zarr", "s3://bucket/plain.zarr")
    storage = ic.s3_storage(
        bucket="bucket",
        prefix="maps.icechunk",
        endpoint_url=server.url,
        allow_http=True,
        force_path_style=True,
        from_env=True,
    )
    repository = ic.Repository.open(storage)
    assert len([*repository.ancestry(branch="main")]) == 2
    session = repository.readonly_session("main")
    made = xr.open_zarr(session.store, group="a", consolidated=False)
    xr.testing.assert_equal(made.load(), xr.open_zarr("s3://bucket/plain.zarr").load())
    odd = ("--destination-options", "default_cache_type=none")
    line = refused("predict", model, "s3://bucket/places.zarr", f"{url}/b", *odd)
    assert (
        "option default_cache_type of s3://bucket/maps.icechunk is not one that Icechunk "
        "takes" in line
    )


def test_a_map_of_rows_goes_to_a_bucket(server, tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"{x:.3f},{y:.3f},{x + y:.3f}" for x, y in rng.uniform(0, 4, (40, 2))]
    (tmp_path / "rows.csv").write_text("\n".join(["lon,lat,temp", *lines]))
    how = ("--resolution", "lon=1,lat=1", "--extent", "lon=0:4,lat=0:4")
    for name in ("map.zarr", "map.nc"):
        found = succeed("interpolate", tmp_path / "rows.csv", f"s3://bucket/{name}", *how)
        assert found["known"] == 25
        assert "exists already" in refused(
            "interpolate", tmp_path / "rows.csv", f"s3://bucket/{name}", *how
        )
    with xr.open_zarr("s3://bucket/map.zarr") as maps:
        assert np.isfinite(maps.temp_std).all()
    closed = refused("interpolate", tmp_path / "rows.csv", "s3://closed/map.zarr", *how)
    assert "permission denied" in closed
