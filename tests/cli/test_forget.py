"""``daskgp forget``: a model store that loses rows in place."""

import numpy as np
import pandas as pd
import pytest
from commands import dataset, killed_before, refused, succeed
from fits import equal

import daskgp
from daskgp.data import dataset_writer
from daskgp.data.stores import locks, models
from tests.contract import cases

X, Y = cases.rows(300)
T = cases.rows(9, seed=3)[0]
LINE = np.argsort(X[:, 0])


def made(name):
    """A case with the same hyper-parameters, units and inputs for any rows, blocks in order."""
    settings = {"standardize": False, "mean": "zero"}
    places = cases.rows(8, seed=5)[0]
    if name == "sgpr":
        return cases.fixed(name, **settings, inducing=places, n_inducing=512)
    blocks = {"block_rows": 20, "neighbours": "order", "order": "x0"}
    return cases.fixed(name, **settings, support=places, n_support=256, **blocks)


@pytest.fixture
def fitted(tmp_path):
    """A dataset of 200 rows, a model of it, and a store of 60 rows more that it has, too."""
    return stores(tmp_path, "sgpr")


def stores(folder, name):
    data, more, model = (folder / f"{name}.zarr" for name in ("d", "n", "m"))
    dataset(data, X[LINE][:200], Y[LINE][:200], step=40)
    dataset(more, X[LINE][200:260], Y[LINE][200:260], step=20)
    made(name).fit(*daskgp.open_dataset(str(data))).save(str(model))
    succeed("update", model, more)
    return data, more, model


def fit_to(name, rows):
    return made(name).fit(X[LINE][rows], Y[LINE][rows])


@pytest.mark.whole
@pytest.mark.parametrize("name", ["sgpr", "lma"])
@pytest.mark.parametrize("which", ["d", "n"])
def test_a_model_is_that_of_the_rows_that_stay(name, which, tmp_path):
    data, more, model = stores(tmp_path, name)
    gone, rest = (data, slice(200, 260)) if which == "d" else (more, slice(200))
    said = succeed("forget", model, gone)
    left = rest.stop - (rest.start or 0)
    assert (said["rows"], said["skipped"], said["total"]) == (260 - left, 0, left)
    found = daskgp.load(model)
    wanted = fit_to(name, rest)
    equal(cases.moments(found, T), cases.moments(wanted, T), rtol=1e-7)
    assert said["objective"] == pytest.approx(wanted.objective_, rel=1e-7)
    again = succeed("forget", model, gone)
    assert (again["rows"], again["skipped"], again["total"]) == (0, 260 - left, left)
    assert daskgp.load(model).solved_.token == found.solved_.token
    if name == "sgpr" or gone == more:  # others follow all rows in their order
        assert succeed("update", model, gone)["total"] == 260


def test_of_a_store_that_has_grown_the_rows_go_that_the_model_has(fitted):
    _, more, model = fitted
    daskgp.convert(dict_of(X[LINE][260:], Y[LINE][260:]), more, target="y", append=True)
    said = succeed("forget", model, more)
    assert (said["rows"], said["skipped"], said["total"]) == (60, 40, 200)
    wanted = fit_to("sgpr", slice(200))
    equal(cases.moments(daskgp.load(model), T), cases.moments(wanted, T), rtol=1e-7)
    assert succeed("update", model, more)["rows"] == 100


def dict_of(X, y):
    return pd.DataFrame({"x0": X[:, 0], "x1": X[:, 1], "y": y})


def test_another_store_of_rows_of_the_model_is_taken_out_once(fitted, tmp_path):
    _, _, model = fitted
    part = dataset(tmp_path / "part.zarr", X[LINE][:40], Y[LINE][:40], step=40)
    assert succeed("forget", model, part)["total"] == 220
    assert succeed("forget", model, part)["rows"] == 0
    wanted = fit_to("sgpr", slice(40, 260))
    equal(cases.moments(daskgp.load(model), T), cases.moments(wanted, T), rtol=1e-7)
    told = daskgp.load(model)
    X_part, y_part = daskgp.open_dataset(part)
    with pytest.raises(daskgp.errors.InputError, match=r"has no rows of .*part\.zarr"):
        told.forget(X_part, y_part)


def test_a_store_that_was_moved_is_the_same(fitted, tmp_path):
    _, more, model = fitted
    more.rename(tmp_path / "moved.zarr")
    assert succeed("forget", model, tmp_path / "moved.zarr")["rows"] == 60
    assert succeed("update", model, tmp_path / "moved.zarr")["rows"] == 60


def test_errors_of_rows_go_with_them(tmp_path):
    data, model = tmp_path / "d.zarr", tmp_path / "m.zarr"
    more = tmp_path / "n.zarr"
    rng = np.random.default_rng(0)
    errors = rng.uniform(0.1, 0.4, 260)
    for path, part in ((data, slice(200)), (more, slice(200, 260))):
        with dataset_writer(str(path), ["x0", "x1"], ("y",), 40, beside=["y_variance"]) as writer:
            writer.append(X[part], Y[part], errors[part])
    made("sgpr").fit(*daskgp.open_dataset(str(data))).save(str(model))
    succeed("update", model, more)
    assert succeed("forget", model, data)["total"] == 60
    wanted = made("sgpr").fit(X[200:260], Y[200:260], y_variance=errors[200:260])
    equal(cases.moments(daskgp.load(model), T), cases.moments(wanted, T), rtol=1e-6)


def test_what_cannot_be_taken_out_is_told_in_one_line(fitted, tmp_path):
    data, more, model = fitted
    before = daskgp.load(model).solved_.token
    far = dataset(tmp_path / "far.zarr", X[LINE][:5] + 5.0, Y[LINE][:5], step=5)
    assert "are not rows of the model" in refused("forget", model, far)
    assert "no dataset at" in refused("forget", model, tmp_path / "no.zarr")
    other = dataset(tmp_path / "other.zarr", X[LINE][:5, :1], Y[LINE][:5], step=5)
    assert "feature" in refused("forget", model, other)
    with locks.hold(str(model)):
        assert "holds the lock" in refused("forget", model, data, code=1)
    assert daskgp.load(model).solved_.token == before
    exact = tmp_path / "exact.zarr"
    cases.fixed("exact").fit(*daskgp.open_dataset(str(data))).save(str(exact))
    assert "ExactGP has no forget here" in refused("forget", exact, data)
    succeed("forget", model, more)
    assert "a model needs at least one" in refused("forget", model, data)


def test_a_full_disk_leaves_the_old_model(fitted, monkeypatch):
    _, more, model = fitted
    before = daskgp.load(model).solved_.token

    def fails(*given, **more):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(models.groups, "write_array", fails)
        assert "disk is full" in refused("forget", model, more)
    assert daskgp.load(model).solved_.token == before
    assert succeed("forget", model, more)["total"] == 200


@pytest.mark.parametrize("name", ["sgpr", "lma"])
def test_a_model_that_is_killed_at_any_moment_is_the_old_or_the_new_one(name, tmp_path):
    _, more, model = stores(tmp_path, name)
    before = daskgp.load(model)
    changes = 20
    killed = killed_before(changes, model, "forget", model, more)
    assert killed.returncode == 9, killed.stderr
    left = daskgp.load(model)
    if left.solved_.token == before.solved_.token:
        equal(cases.moments(left, T), cases.moments(before, T), rtol=0)
    else:
        assert left._fitted.seen[-1]["what"] == "forget"
    assert succeed("forget", model, more)["total"] == 200
    wanted = fit_to(name, slice(200))
    equal(cases.moments(daskgp.load(model), T), cases.moments(wanted, T), rtol=1e-7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.zarr", "m.zarr", "n.zarr"]
