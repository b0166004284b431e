"""Sample paths of every method that has them: the posterior's moments, the same bits anywhere."""

import copy
import re
from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from distributed import Client

import daskgp
from daskgp.arrays import backend
from daskgp.errors import SettingError
from daskgp.posterior.neighbour_rows import Nearby
from tests.contract import cases
from tests.fit import gpu

HAVING = cases.those(lambda name: cases.method(name).why_no_paths() is None)
NONE = sorted(set(cases.SETTINGS) - set(HAVING))
having = pytest.mark.parametrize("name", HAVING)
T = np.random.default_rng(5).uniform(-0.5, 3.5, (12, 2))
DRAWS, FREQUENCIES = 2_000, 1_024


@pytest.fixture(scope="module")
def fitted():
    """Fitted methods by name, each made once."""
    made = {}

    def of(name):
        if name not in made:
            made[name] = cases.fixed(name).fit(*cases.rows())
        return made[name]

    return of


@having
def test_paths_have_the_mean_and_covariance_of_the_posterior(name, fitted):
    model = fitted(name)
    own = {} if name == "ssgp" else {"n_frequencies": FREQUENCIES}
    values = model.sample_paths(DRAWS, random_state=1, **own)(T)
    kept, prior = model.solved_.rows, max(model.kernel_.diag(T))
    # places of several groups are conditioned on more rows together than paths are at each
    groups = kept.groups(T) if isinstance(kept, Nearby) else [(None, np.arange(len(T)))]
    for _, own in groups:
        mean, cov = model.predict(T[own], return_cov=True)
        std = np.sqrt(np.diag(cov))
        assert abs((values[own].mean(axis=1) - mean) * np.sqrt(DRAWS) / std).max() < 5.0
        # the error of 2,000 draws, and that of the prior's covariance
        error = np.outer(std, std) * np.sqrt(2 / DRAWS) + prior / np.sqrt(2 * FREQUENCIES) / 4
        assert (abs(np.cov(values[own]) - cov) / error).max() < 5.0


@having
def test_paths_have_the_same_bits_in_any_chunks_kinds_and_company(name, fitted):
    paths = fitted(name).sample_paths(3, random_state=2)
    wanted = paths(T)
    assert wanted.shape == (12, 3)
    for chunks in ((12, 2), (5, 1), (1, 2)):
        places = da.from_array(T, chunks=chunks)
        lazy = paths(places)
        assert lazy.chunks == (places.chunks[0], (3,))
        np.testing.assert_array_equal(lazy.compute(), wanted)
    company = np.random.default_rng(1).uniform(-0.5, 3.5, (700, 2))
    company[300:312] = T
    np.testing.assert_array_equal(paths(company)[300:312], wanted)
    np.testing.assert_array_equal(fitted(name).sample_paths(3, random_state=2)(T), wanted)
    np.testing.assert_allclose(fitted(name).sample_paths(2, random_state=2)(T), wanted[:, :2])
    assert not np.isclose(fitted(name).sample_paths(3, random_state=3)(T), wanted).any()
    missing = T.copy()
    missing[4, 1] = np.nan
    values = paths(missing)
    assert np.isnan(values[4]).all()
    np.testing.assert_array_equal(np.delete(values, 4, axis=0), np.delete(wanted, 4, axis=0))


@pytest.mark.sampled
@having
def test_workers_give_the_bits_of_threads(name, scheduler, fitted, tmp_path):
    from commands import dataset

    X, y = daskgp.open_dataset(dataset(tmp_path / "train.zarr", *cases.rows(), step=40))
    model = cases.fixed(name, store=str(tmp_path)).fit(X, y)
    places = da.from_array(T, chunks=(5, 2))
    wanted = model.sample_paths(3)(T)
    np.testing.assert_array_equal(fitted(name).sample_paths(3)(T), wanted)
    with Client(scheduler):
        paths = model.sample_paths(3)
        np.testing.assert_array_equal(paths(places).compute(), wanted)


@pytest.mark.sampled
@having
def test_averages_are_those_of_the_values_whatever_the_chunks(name, fitted, monkeypatch):
    monkeypatch.setattr("daskgp.predict.paths.BLOCK_BYTES", 8 * 3 * 5)  # five places per task
    paths, w = fitted(name).sample_paths(3, random_state=2), np.arange(12.0)
    values = paths(T)
    for X in (T, da.from_array(T, chunks=(7, 1))):
        found = paths.average(X, w), paths.exceedance(X, 0.2, w), paths.average(X)
        assert all(isinstance(one, type(X)) for one in found)
        weighted = (np.average(one, axis=0, weights=w) for one in (values, values > 0.2))
        for one, wanted in zip(found, (*weighted, values.mean(axis=0)), strict=True):
            np.testing.assert_allclose(one, wanted, rtol=1e-12)


@pytest.mark.sampled
@having
def test_paths_of_a_grid_are_along_sample(name, fitted):
    paths = fitted(name).sample_paths(2)
    axes = {"x0": np.linspace(0, 3, 4), "x1": np.linspace(0, 3, 3)}
    places = np.stack(np.meshgrid(*axes.values(), indexing="ij"), axis=-1).reshape(-1, 2)
    field = xr.DataArray(da.zeros((4, 3), chunks=(3, 2)), axes)
    found = paths(field)
    assert found.dims == ("x0", "x1", "sample")
    assert found.name == "y_samples"
    assert found.attrs["long_name"] == "posterior samples of y"
    assert found.chunks == ((3, 1), (2, 1), (2,))
    np.testing.assert_array_equal(found.values.reshape(12, 2), paths(places))
    np.testing.assert_array_equal(paths(field.compute()).values, found.values)


@having
def test_a_gpu_gives_the_paths_of_the_cpu(name, fitted, monkeypatch):
    model = copy.deepcopy(fitted(name))
    wanted = model.sample_paths(3)(T)
    gpu.install(monkeypatch)
    monkeypatch.setattr(backend, "_is_installed", lambda: True)
    model.solved_ = replace(model.solved_, device="gpu")
    np.testing.assert_allclose(model.sample_paths(3)(T), wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", NONE)
def test_a_method_without_paths_says_what_has_them(name):
    model = cases.make(name).fit(*cases.rows())
    with pytest.raises(SettingError, match="no sample paths") as refusal:
        model.sample_paths(3)
    assert re.search("choose|fit with expert=", str(refusal.value))
    assert "\n" not in str(refusal.value)
