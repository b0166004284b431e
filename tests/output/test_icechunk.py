"""Maps in Icechunk repositories: one commit a run, none of a run that ends early."""

import json
import os
import pickle
import signal
import threading
import time

import dask
import numpy as np
import pytest
import xarray as xr
import zarr
from commands import refused, rows, start, stop_when, succeed
from distributed import Client, LocalCluster

import daskgp
from daskgp.data.stores import transactions
from daskgp.errors import InputError, SettingError, StoreError
from daskgp.runtime.process import single_blas_thread

ic = pytest.importorskip("icechunk")

FIRST = "Repository initialized"
DISK = "1m"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of two features, saved."""
    X, y = rows(60)
    fitted = daskgp.ExactGP("rbf(1.0)", optimizer=None, progress=False).fit(X, y)
    fitted.store_url = str(tmp_path_factory.mktemp("model") / "m.zarr")
    fitted.save(fitted.store_url)
    return fitted


@pytest.fixture(autouse=True)
def one_thread():
    with single_blas_thread():
        yield


@pytest.fixture
def repository(tmp_path):
    return ic.Repository.create(ic.local_filesystem_storage(str(tmp_path / "repository")))


def grid(n=9, chunks=(3, 5)):
    places = {"x0": np.arange(n) * (0.25 if n < 10 else 3.0 / n), "x1": np.linspace(0, 3, 10)}
    return (
        xr.Dataset(coords=places)
        .assign(elevation=(("x0", "x1"), np.zeros((n, 10)), {"unused": 1}))
        .chunk(dict(zip(("x0", "x1"), chunks, strict=True)))
    )


def stored(path, n=9, chunks=(3, 5)):
    grid(n, chunks).to_zarr(path, consolidated=False)
    return str(path)


def opened(url):
    return ic.Repository.open(ic.local_filesystem_storage(str(url)))


def field(repository, group=None):
    store = repository.readonly_session("main").store
    return xr.open_zarr(store, group=group, consolidated=False).load()


def messages(repository):
    """Messages of all commits, the last one first, but that which every repository begins with."""
    *found, first = [commit.message for commit in repository.ancestry(branch="main")]
    assert first == FIRST
    return found


def expected(model, places):
    mean, std = model.predict(places[["x0", "x1"]].compute(), return_std=True, include_noise=True)
    return xr.Dataset({"mean": mean, "std": std})


def test_a_run_into_a_session_is_one_commit_that_says_what_was_predicted(model, repository):
    session, places = repository.writable_session("main"), grid()
    assert model.predict_store(places, session, group="maps/height", variance=True).rows == 90
    made = field(repository, "maps/height")
    wanted = expected(model, places)
    for name in ("mean", "std"):
        np.testing.assert_allclose(made[name], wanted[name], rtol=1e-12)
    np.testing.assert_allclose(made["variance"], wanted["std"] ** 2, rtol=1e-12)
    assert messages(repository) == [
        "Predict 90 cells of an xarray object in maps/height with Exact: std, variance, mean"
    ]
    (commit, _) = repository.ancestry(branch="main")
    assert commit.metadata["model_checksum"] == model.solved_.token
    assert (commit.metadata["predicted"], commit.metadata["skipped"]) == (90, 0)
    with pytest.raises(InputError, match=r"^the Icechunk session is read-only: give repository\."):
        model.predict_store(places, session, group="again")


def test_workers_write_by_forks_what_one_process_writes(model, repository, default_client):
    places = grid()
    model.predict_store(places, repository.writable_session("main"), group="many")
    with dask.config.set(scheduler="threads"):
        model.predict_store(places, repository.writable_session("main"), group="one")
    assert len(messages(repository)) == 2
    one, many = field(repository, "one"), field(repository, "many")
    assert not one["mean"].isnull().any()
    xr.testing.assert_equal(one, many)


@pytest.mark.slow
def test_a_worker_that_dies_takes_no_value_along(model, repository, tmp_path):
    places = grid(1_000, (25, 10))
    with LocalCluster(2, threads_per_worker=1, dashboard_address=None) as own, Client(own) as ours:
        chunks, pids = tmp_path / "repository" / "chunks", [*ours.run(os.getpid).values()]

        def kill():
            while len([*chunks.glob("*")]) < 10:
                time.sleep(0.005)
            os.kill(pids[0], signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        model.predict_store(places, repository.writable_session("main"))
        killer.join()
        assert pids[0] not in ours.run(os.getpid).values()
    assert len(messages(repository)) == 1
    wanted = expected(model, places)
    np.testing.assert_allclose(field(repository)["mean"], wanted["mean"], rtol=1e-12)


def test_a_grown_grid_adds_one_commit_with_the_new_cells(model, repository, default_client):
    model.predict_store(grid(7), repository.writable_session("main"))
    before = messages(repository)
    again = model.predict_store(grid(7), repository.writable_session("main"), resume=True)
    assert (again.rows, again.skipped) == (0, 70)
    assert messages(repository) == before
    assert model.is_predicted(grid(7), repository.writable_session("main"))
    assert not model.is_predicted(grid(9), repository.writable_session("main"))
    grown = model.predict_store(grid(9), repository.writable_session("main"), resume=True)
    assert (grown.rows, grown.skipped) == (20, 70)
    assert messages(repository)[0].startswith("Predict 20 cells of an xarray object with Exact")
    made, wanted = field(repository), expected(model, grid(9))
    np.testing.assert_allclose(made["mean"], wanted["mean"], rtol=1e-12)
    np.testing.assert_array_equal(made["x0"], wanted["x0"])
    past = zarr.open_group(
        repository.readonly_session(snapshot_id=[*repository.ancestry(branch="main")][1].id).store,
        mode="r",
    )
    assert past["mean"].shape == (7, 10)  # an earlier commit is as it was
    with pytest.raises(StoreError, match="exist already: add --resume"):
        model.predict_store(grid(9), repository.writable_session("main"))


def test_rows_of_a_dataset_store_go_into_a_repository(model, repository, make_store):
    X, y = rows(25)
    url = make_store(X, y, rows=10)
    model.predict_store(url, repository.writable_session("main"), group="rows")
    group = zarr.open_group(repository.readonly_session("main").store, path="rows", mode="r")
    mean, std = model.predict(X, return_std=True, include_noise=True)
    np.testing.assert_allclose(group["mean"][:], mean, rtol=1e-12)
    np.testing.assert_allclose(group["variance"][:], std**2, rtol=1e-12)
    assert messages(repository)[0].startswith(f"Predict 25 rows of {url} in rows with")


def test_a_commit_to_the_same_group_meanwhile_is_refused_in_one_line(model, repository):
    late = repository.writable_session("main")
    model.predict_store(grid(), repository.writable_session("main"), group="a")
    with pytest.raises(StoreError) as error:
        model.predict_store(grid(), late, group="a")
    assert str(error.value) == (
        "predictions icechunk://main/a were not committed: another "
        "commit to branch main changed /, /a meanwhile: run it again, in a new session"
    )
    assert len(messages(repository)) == 1


def test_commits_to_other_groups_meanwhile_do_not_matter(model, repository):
    model.predict_store(grid(), repository.writable_session("main"), group="first")
    late = repository.writable_session("main")
    model.predict_store(grid(), repository.writable_session("main"), group="a")
    model.predict_store(grid(), late, group="b")
    assert len(messages(repository)) == 3
    xr.testing.assert_equal(field(repository, "a"), field(repository, "b"))


def test_sessions_that_cannot_be_used_are_refused_in_one_line(model, repository):
    dirty = repository.writable_session("main")
    zarr.create_group(dirty.store, path="mine")
    with pytest.raises(InputError, match="has uncommitted changes"):
        model.predict_store(grid(), dirty)
    with pytest.raises(SettingError, match=r"^output is a Repository|^output is .*Repository"):
        model.predict_store(grid(), repository)
    with pytest.raises(SettingError, match="wait and clear_lock are for the lock of a store"):
        model.predict_store(grid(), repository.writable_session("main"), wait=1.0)
    with pytest.raises(SettingError, match="group is for a session of Icechunk"):
        model.predict_store(grid(), "map.zarr", group="a")
    other = repository.writable_session("main")
    zarr.create_array(other.store, name="taken", shape=(2,), dtype="f8")
    other.commit("an array")
    with pytest.raises(StoreError, match="exists already and is not a prediction store"):
        model.predict_store(grid(), repository.writable_session("main"), group="taken")
    assert messages(repository) == ["an array"]


def test_a_repository_in_memory_goes_where_forks_share_it_and_is_refused_elsewhere(model):
    repository = ic.Repository.create(ic.in_memory_storage())
    session = repository.writable_session("main")
    if transactions.sees(session.fork().store)[0]:  # from version 2 on
        model.predict_store(grid(), session)
        assert len(messages(repository)) == 1
        return
    with pytest.raises(InputError, match=r"^the Icechunk session cannot be forked .* not in memor"):
        model.predict_store(grid(), session)
    assert messages(repository) == []


def test_a_repository_in_memory_is_refused_on_a_cluster(model, default_client):
    repository = ic.Repository.create(ic.in_memory_storage())
    with pytest.raises(InputError, match=r"Icechunk (session|repository) "):
        model.predict_store(grid(), repository.writable_session("main"))
    assert messages(repository) == []


def test_a_worker_that_does_not_see_the_repository_is_told_from_one_that_does(repository, tmp_path):
    fork = repository.writable_session("main").fork()
    assert transactions.sees(fork.store) == (True, "")
    (tmp_path / "repository").rename(tmp_path / "elsewhere")  # as on a host without this disk
    copied = pickle.loads(pickle.dumps(fork))
    seen, why = transactions.sees(copied.store)
    assert not seen
    assert "not found" in why


# -- by address ------------------------------------------------------------------------------


def test_the_command_makes_a_repository_with_a_map_in_a_group(model, tmp_path):
    places, url = stored(tmp_path / "grid.zarr"), tmp_path / "maps.icechunk"
    done = succeed("predict", model.store_url, places, f"{url}/height", "--variance")
    assert (done["rows"], done["skipped"]) == (90, 0)
    again = succeed("predict", model.store_url, places, f"{url}/height", "--variance", "--resume")
    assert (again["rows"], again["skipped"]) == (0, 90)
    succeed("predict", model.store_url, places, f"{url}/other")
    repository = opened(url)
    assert messages(repository) == [
        f"Predict 90 cells of {places} in {group} with {model.store_url}: {names}"
        for group, names in (("other", "std, mean"), ("height", "std, variance, mean"))
    ]
    wanted = expected(model, grid())
    np.testing.assert_allclose(field(repository, "height")["mean"], wanted["mean"], rtol=1e-12)
    record = json.loads((tmp_path / "maps.icechunk.run.json").read_text())
    assert (record["output"], record["exit"]) == (f"{url}/other", 0)
    assert not (tmp_path / "maps.icechunk.lock").exists()
    line = refused("predict", model.store_url, places, f"{url}/height")
    assert f"{url}/height exist already: add --resume" in line


@pytest.mark.whole
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_killed_leaves_no_commit_and_can_be_repeated(how, model, tmp_path):
    places, url = stored(tmp_path / "grid.zarr", 2_000, (25, 10)), tmp_path / "maps.icechunk"
    few = stored(tmp_path / "few.zarr")
    succeed("predict", model.store_url, few, f"{url}/few")
    before = messages(opened(url))
    process = start("predict", model.store_url, places, f"{url}/all")

    def is_at_work():
        return len([*url.glob("chunks/*")]) > 5

    code, stderr = stop_when(process, is_at_work, how)
    assert code == (-signal.SIGKILL if how == signal.SIGKILL else 143), stderr
    repository = opened(url)
    assert messages(repository) == before
    assert "all" not in zarr.open_group(repository.readonly_session("main").store, mode="r")
    done = succeed("predict", model.store_url, places, f"{url}/all", "--resume")
    assert (done["rows"], done["skipped"]) == (20_000, 0)
    assert len(messages(opened(url))) == 2
    assert not field(opened(url), "all")["mean"].isnull().any()


def test_damaged_grids_and_repositories_are_refused_in_one_line(model, tmp_path):
    places = tmp_path / "grid.nc"
    grid().to_netcdf(places)
    content = places.read_bytes()
    (tmp_path / "torn.nc").write_bytes(content[: len(content) // 2])
    new = tmp_path / "new.icechunk"
    line = refused("predict", model.store_url, tmp_path / "torn.nc", f"{new}/a")
    assert f"cannot read {tmp_path / 'torn.nc'}" in line
    assert not new.exists()
    url = tmp_path / "maps.icechunk"
    succeed("predict", model.store_url, places, f"{url}/a")
    for snapshot in (url / "snapshots").iterdir():
        snapshot.write_bytes(b"damaged")
    line = refused("predict", model.store_url, places, f"{url}/b")
    assert f"{url}" in line
    other = tmp_path / "folder.icechunk"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    line = refused("predict", model.store_url, places, other)
    assert f"cannot use {other}: it is not an Icechunk repository" in line
    assert os.listdir(other) == ["mine.txt"]
    assert not (tmp_path / "folder.icechunk.lock").exists()


def test_a_full_disk_ends_in_one_line_without_a_commit(model, small_disk, tmp_path):
    url = small_disk / "maps.icechunk"
    model.predict_store(grid(), url / "few")
    places = stored(tmp_path / "grid.zarr", 10_000, (500, 10))
    line = refused("predict", model.store_url, places, url / "all")
    full = "the disk is full: free some space or choose another path; nothing was committed"
    assert line == f"Error: cannot write predictions {url}/all: {full}"
    assert len(messages(opened(url))) == 1


def test_a_run_that_fails_leaves_no_repository(model, tmp_path, monkeypatch):
    from daskgp.output import store

    def fail(*arguments):
        raise StoreError("a mistake")

    monkeypatch.setattr(store, "_predict_part", fail)
    with pytest.raises(StoreError, match="a mistake"):
        model.predict_store(grid(), tmp_path / "maps.icechunk")
    assert [*tmp_path.iterdir()] == []


def test_addresses_of_other_services_are_refused_in_one_line(model, tmp_path):
    places = stored(tmp_path / "grid.zarr")
    line = refused("predict", model.store_url, places, "memory://bucket/maps.icechunk")
    assert (
        "give a path or an s3:// address, or open a session of it in Python and give that" in line
    )


def test_a_map_in_a_repository_is_a_grid_to_fit_to_predict_and_to_map_on(model, tmp_path, cluster):
    url = tmp_path / "maps.icechunk"
    model.predict_store(grid(), url / "first")
    again = tmp_path / "again.zarr"
    how = ("--scheduler", cluster.scheduler_address)
    succeed("predict", model.store_url, url / "first", again, *how)
    made = xr.open_zarr(again).load()
    np.testing.assert_array_equal(made["mean"], field(opened(url), "first")["mean"])
    same = succeed("predict", model.store_url, url / "first", again, "--resume")
    assert (same["rows"], same["skipped"]) == (0, 90)
    done = succeed("convert", url / "first", tmp_path / "rows.zarr", "--target", "mean")
    assert done["rows"] == 90
    X, _ = daskgp.open_dataset(tmp_path / "rows.zarr")
    assert {"x0", "x1"} <= set(daskgp.data.column_names(X))
    refit = daskgp.ExactGP("rbf(1.0)", optimizer=None, progress=False)
    refit.fit(str(url / "first"), "mean", features=["x0", "x1"])
    maps = daskgp.interpolate(
        field(opened(url), "first").reset_coords(drop=True),
        str(url / "first"),
        target="mean",
        features=["x0", "x1"],
        method=daskgp.ExactGP("rbf(1.0)", optimizer=None, progress=False),
    )
    assert maps["mean"].shape == (9, 10)


def test_info_shows_the_map_of_a_group(model, tmp_path):
    url = tmp_path / "maps.icechunk"
    model.predict_store(grid(), url / "first")
    found = succeed("info", url / "first", "--json")
    assert (found["kind"], found["grid"]) == ("predictions", {"x0": 9, "x1": 10})
    assert found["complete"]
    assert found["arrays"] == ["mean", "std"]
    assert f"holds groups, first: give one, {url}/first" in refused("info", url)


def test_repositories_that_cannot_be_read_are_refused_in_one_line(model, tmp_path):
    line = refused("predict", model.store_url, tmp_path / "no.icechunk", tmp_path / "map.zarr")
    assert f"there is no Icechunk repository {tmp_path / 'no.icechunk'}" in line
    url = tmp_path / "maps.icechunk"
    model.predict_store(grid(), url / "a")
    line = refused("predict", model.store_url, url / "b", tmp_path / "map.zarr")
    assert f"{url} has no group 'b': check the path" in line
    line = refused("convert", url, tmp_path / "rows.zarr", "--target", "mean")
    assert f"{url} holds groups, a: give one, {url}/a" in line
    for snapshot in (url / "snapshots").iterdir():
        snapshot.write_bytes(b"damaged")
    for words in (
        ("predict", model.store_url, url / "a", tmp_path / "map.zarr"),
        ("convert", url / "a", tmp_path / "rows.zarr", "--target", "mean"),
    ):
        assert str(url) in refused(*words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["maps.icechunk"]


def test_datasets_and_models_are_not_written_under_the_name_of_a_repository(model, tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n2,3\n")
    line = refused("convert", tmp_path / "a.csv", tmp_path / "a.icechunk", "--target", "y")
    assert "an Icechunk repository only takes predictions" in line
    with pytest.raises(StoreError, match=r"m\.icechunk would be a plain Zarr store"):
        model.save(tmp_path / "m.icechunk")
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
