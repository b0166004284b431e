"""A model, its inputs and its output in buckets of different services, each with its own key."""

from contextlib import ExitStack

import boto3
import numpy as np
import pytest
import xarray as xr
import zarr
from commands import dataset, invoke, refused, rows, succeed
from distributed import LocalCluster
from s3server import Server

import daskgp
from daskgp.data.stores import remote
from daskgp.errors import SettingError

NAMES = ("inputs", "models", "outputs")
NOBODY = {
    "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_DEFAULT_REGION": "us-east-1",
}
"""Variables of who has no credentials."""
X, Y = rows(300)
LMA = ("--model", "lma", "--set", "n_support=8", "--set", "optimizer=none", "--set", "kernel=rbf()")
SGPR = ("--model", "sgpr", "--set", "n_inducing=8", "--set", "max_iter=1")


@pytest.fixture(scope="module")
def servers():
    """A server per bucket; the environment knows none of them."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.delenv(name, raising=False)
        for name, value in NOBODY.items():
            patch.setenv(name, value)
        found = {name: stack.enter_context(Server(0.0).running()) for name in NAMES}
        for name, server in found.items():
            own = {"aws_access_key_id": name, "aws_secret_access_key": "s"}
            client = boto3.client("s3", endpoint_url=server.url, **own)
            client.create_bucket(Bucket=name)
            client.close()
            server.seen.clear()
        yield found


@pytest.fixture(scope="module")
def cluster(servers):
    with LocalCluster(1, threads_per_worker=1, dashboard_address=":0", env=NOBODY) as found:
        yield found.scheduler_address


def own(servers, name):
    return {"endpoint_url": servers[name].url, "key": name, "secret": "s"}


def options(servers, **roles):
    """Options of the command: what each role uses."""
    return [
        text
        for role, name in roles.items()
        for key, value in own(servers, name).items()
        for text in (f"--{role}-options", f"{key}={value}")
    ]


def check(servers):
    """Every server was asked for its own bucket with its own key, and for nothing else."""
    for name, server in servers.items():
        assert set(server.seen) == {(name, name)}, (name, server.seen)
        assert server.seen[name, name]


@pytest.fixture(scope="module")
def stored(servers):
    """A dataset and a grid in the bucket of the inputs."""
    places = {f"s3://{name}/": own(servers, name) for name in NAMES}
    with daskgp.storage_options(places):
        dataset("s3://inputs/d.zarr", X, Y)
        axis = np.linspace(0, 3, 6)
        values = np.sin(axis)[:, None] + axis
        grid = xr.Dataset({"y": (("x0", "x1"), values)}, {"x0": axis, "x1": axis})
        grid.to_zarr(
            "s3://inputs/g.zarr", consolidated=False, storage_options=own(servers, "inputs")
        )
    return places


@pytest.mark.slow
@pytest.mark.parametrize("fit", [LMA, SGPR])
def test_commands_use_the_options_of_each_store(fit, servers, stored, cluster):
    name, on = fit[1], ("--scheduler", cluster)
    data, model = "s3://inputs/d.zarr", f"s3://models/{name}.zarr"
    both = options(servers, storage="inputs", model="models")
    every = [*both, *options(servers, destination="outputs")]
    succeed("fit", data, model, *fit, *both, *on)
    succeed("predict", model, data, f"s3://outputs/{name}.zarr", *every, *on)
    succeed("predict", model, "s3://inputs/g.zarr", f"s3://outputs/{name}-map.zarr", *every, *on)
    figures = succeed("score", model, data, *both, *on)
    assert figures["rmse"] < 1.0
    assert invoke("info", model, *options(servers, storage="models")).exit_code == 0
    plan = ("plan", data, "--model", "sgpr", *options(servers, storage="inputs"))
    assert invoke(*plan).exit_code == 0
    prepared = (f"s3://outputs/{name}-p.zarr", "--block-rows", 64)
    both = options(servers, storage="inputs", destination="outputs")
    succeed("prepare", data, *prepared, *both, *on)
    check(servers)
    group = zarr.open_group(
        f"s3://outputs/{name}.zarr", mode="r", storage_options=own(servers, "outputs")
    )
    with remote.given(stored):
        wanted = daskgp.load(model).predict(X)
    np.testing.assert_allclose(group["mean"][...], wanted, rtol=1e-9)


@pytest.mark.slow
def test_a_grid_in_a_bucket_is_fitted_into_another(servers, stored, cluster):
    both = options(servers, storage="inputs", model="models")
    named = ("--target", "y", "--scheduler", cluster)
    result = invoke("fit", "s3://inputs/g.zarr", "s3://models/g.zarr", *SGPR, *both, *named)
    assert result.exit_code == 0, result.stderr
    check({name: servers[name] for name in NAMES[:2]})


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lma", "sgpr"])
def test_python_uses_the_options_of_each_store(method, servers, stored, cluster):
    settings = {"optimizer": None, "kernel": "rbf(1.0)", "progress": False}
    model = {
        "lma": daskgp.LMA(n_support=8, **settings, store="s3://outputs/rows"),
        "sgpr": daskgp.SGPR(n_inducing=8, **settings),
    }[method]
    url = f"s3://models/python-{method}.zarr"
    with daskgp.connect(cluster):
        with daskgp.storage_options(stored):
            A, y = daskgp.open_dataset("s3://inputs/d.zarr")
            model.fit(A, y, checkpoint="s3://models/checkpoint.zarr").save(url)
            again = daskgp.load(url)
            output = f"s3://outputs/python-{method}.zarr"
            again.predict_store("s3://inputs/d.zarr", output)
            again.predict_store("s3://inputs/g.zarr", f"{output}-map")
        # a lazy result that is computed later, where workers read the model and its rows
        later = again.predict(A).compute()
    check(servers)
    group = zarr.open_group(output, mode="r", storage_options=own(servers, "outputs"))
    np.testing.assert_allclose(later, group["mean"][...], rtol=1e-12)


def test_options_end_with_their_block(servers, stored):
    before = remote.options("s3://nobody/d.zarr")
    with daskgp.storage_options({"s3://nobody/": {"key": "a"}, "s3://nobody/x": {"key": "b"}}):
        assert remote.options("s3://nobody/d.zarr")["key"] == "a"
        assert remote.options("s3://nobody/x.zarr")["key"] == "b"
    assert remote.options("s3://nobody/d.zarr") == before


@pytest.mark.slow
def test_options_that_have_no_effect_are_refused(tmp_path):
    with pytest.raises(SettingError, match="storage_options has no effect: no address is one of"):
        daskgp.storage_options({str(tmp_path): {"anon": True}}).__enter__()
    with pytest.raises(SettingError, match="options by addresses are needed"):
        daskgp.storage_options("anon=true").__enter__()
    with pytest.raises(SettingError, match="a mapping is needed, such as"):
        daskgp.storage_options({"s3://bucket/": "anon"}).__enter__()
    data = dataset(tmp_path / "d.zarr", X, Y)
    told = refused("fit", data, tmp_path / "m.zarr", *SGPR, "--model-options", "anon=true")
    assert "--model-options has no effect: no address is one of a remote file system" in told
    told = refused("info", data, "--storage-options", "anon=true")
    assert "--storage-options has no effect" in told
