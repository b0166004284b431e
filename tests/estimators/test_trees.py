"""DataTrees: predicted node by node; fitted, converted and stored from the node that is meant."""

import dask
import numpy as np
import pytest
import xarray as xr

import daskgp
from daskgp.errors import InputError
from daskgp.runtime.process import single_blas_thread

SETTINGS = {"kernel": "rbf(1.0)", "optimizer": None, "progress": False}


@pytest.fixture(autouse=True)
def one_thread():
    with single_blas_thread():
        yield


def grid(n=6, first=0.0):
    """A field over x and y."""
    x, y = first + np.arange(n) * 0.5, np.arange(5) * 0.5
    values = np.sin(x)[:, None] + y
    return xr.Dataset({"z": (("x", "y"), values, {"units": "m"})}, {"x": x, "y": y})


@pytest.fixture(scope="module")
def model():
    return daskgp.ExactGP(**SETTINGS).fit(grid(), "z")


@pytest.fixture
def tree():
    nodes = {"/": xr.Dataset(attrs={"title": "two"}), "/fine/a": grid(8), "/b": grid(4, 1.0)}
    return xr.DataTree.from_dict(nodes, name="both")


def test_a_tree_is_predicted_node_by_node(model, tree):
    mean, std = model.predict(tree, return_std=True, include_noise=True)
    for trees, which in ((mean, 0), (std, 1)):
        assert isinstance(trees, xr.DataTree)
        assert trees.name == "both"
        assert [node.path for node in trees.subtree] == [node.path for node in tree.subtree]
        for path in ("/fine/a", "/b"):
            own = model.predict(tree[path].to_dataset(), return_std=True, include_noise=True)
            xr.testing.assert_identical(trees[path].to_dataset(), own[which].to_dataset())
        assert not trees["/fine"].variables
    chance = model.predict_exceedance(tree, 1.0)
    one = model.predict_exceedance(grid(4, 1.0), 1.0)
    np.testing.assert_array_equal(next(iter(chance["/b"].data_vars.values())), one)


def test_a_lazy_tree_is_predicted_lazily(model, tree):
    lazy = model.predict(tree.chunk(x=3))
    (field,) = lazy["/b"].data_vars.values()
    assert dask.is_dask_collection(field)
    expected = model.predict(tree["/b"].to_dataset())
    np.testing.assert_allclose(field.compute(), expected, rtol=1e-12)


def test_nodes_have_the_coordinates_that_they_inherit(model):
    fields = {"/": grid()[["x", "y"]], "/day": xr.Dataset({"u": (("x", "y"), np.zeros((6, 5)))})}
    mean = model.predict(xr.DataTree.from_dict(fields))
    expected = model.predict(grid())
    np.testing.assert_array_equal(next(iter(mean["/day"].data_vars.values())), expected)


def test_classifiers_and_hurdles_take_trees(tree):
    classes = xr.where(grid().z > 1, "wet", "dry").rename("kind")
    classifier = daskgp.GPClassifier(daskgp.ExactGP(**SETTINGS)).fit(grid()[["x", "y"]], classes)
    found = classifier.predict_proba(tree)["/b"].to_dataset()
    expected = classifier.predict_proba(grid(4, 1.0))
    np.testing.assert_allclose(next(iter(found.data_vars.values())), expected)
    assert dict(found.sizes) == {"x": 4, "y": 5, "class": 2}


def test_leaves_without_a_feature_are_refused_by_their_path(model, tree):
    tree["/b"] = grid(4, 1.0).rename(y="why")
    line = r"^node /b of the DataTree has no 'y', it has x, why, z: rename it or leave the node out"
    with pytest.raises(InputError, match=line.replace("x, why, z", ".*")):
        model.predict(tree)
    with pytest.raises(InputError, match=r"^no node of the DataTree has x, y: check the names"):
        model.predict(xr.DataTree())
    with pytest.raises(InputError, match=r"^node /a of the DataTree: a joint covariance"):
        model.predict(xr.DataTree.from_dict({"/a": grid(2)}), return_cov=True)


def test_a_damaged_node_is_named(model, tree):
    tree["/b"] = grid(4, 1.0).assign_coords(x=["1", "2", "3", "x"])
    with pytest.raises(InputError, match=r"^node /b of the DataTree: .*'x'"):
        model.predict(tree)


def test_the_one_node_with_the_target_is_fitted_converted_and_scored(tmp_path, model):
    tree = xr.DataTree.from_dict({"/obs": grid(), "/other": grid(3).rename(z="w")})
    fitted = daskgp.ExactGP(**SETTINGS).fit(tree, "z")
    np.testing.assert_array_equal(fitted.predict(grid()), model.predict(grid()))
    assert daskgp.convert(tree, tmp_path / "rows.zarr", "z").rows == 30
    assert fitted.score(tree, "z") == model.score(grid(), "z")
    with pytest.raises(
        InputError, match=r"^no node of the DataTree has q \(its nodes are /, /obs, "
    ):
        daskgp.convert(tree, tmp_path / "more.zarr", "q")


def test_of_several_nodes_one_is_to_be_given(tree, tmp_path, model):
    line = r"^2 nodes of the DataTree have z, such as /b and /fine/a: give one, tree\['/b'\]\.to_d"
    line = line.replace("/b and /fine/a", ".*").replace(r"\['/b'\]", ".*")
    for call in (
        lambda: daskgp.ExactGP(**SETTINGS).fit(tree, "z"),
        lambda: daskgp.convert(tree, tmp_path / "rows.zarr", "z"),
    ):
        with pytest.raises(InputError, match=line):
            call()
    line = r"^2 nodes of the DataTree have x, y, such as .*: give one, tree"
    with pytest.raises(InputError, match=line):
        model.predict_store(tree, tmp_path / "map.zarr")
    assert [*tmp_path.iterdir()] == []
    daskgp.ExactGP(**SETTINGS).fit(tree["/b"], "z")


def test_a_map_is_made_of_the_one_node_with_the_features(tmp_path, model):
    tree = xr.DataTree.from_dict({"/obs": grid(), "/info": xr.Dataset({"k": 1})})
    model.predict_store(tree, tmp_path / "map.zarr")
    made = xr.open_zarr(tmp_path / "map.zarr")["mean"]
    np.testing.assert_allclose(made, model.predict(grid()), rtol=1e-12)
    assert model.is_predicted(tree, tmp_path / "map.zarr")


def test_a_tree_in_a_file_is_predicted_and_written_again(tmp_path, model, tree):
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "tree.nc", engine="h5netcdf") as opened:
        mean = model.predict(opened)
    mean.to_netcdf(tmp_path / "mean.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "mean.nc", engine="h5netcdf") as again:
        expected = model.predict(grid(4, 1.0))
        np.testing.assert_array_equal(next(iter(again["/b"].data_vars.values())), expected)
