"""The command that rewrites a dataset in blocks of nearby rows."""

import os
import re

import numpy as np
import pytest
from commands import dataset, invoke, refused, rows, succeed

import daskgp
from daskgp.data.blocks.layout import read_layout


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    X, y = rows(300)
    X[5, 0] = np.nan
    return dataset(tmp_path_factory.mktemp("data") / "train.zarr", X, y, names=["lon", "lat"])


def test_a_dataset_is_rewritten_in_blocks_and_info_shows_them(data, tmp_path, scheduler):
    out = tmp_path / "blocks.zarr"
    options = ("--order", "lat, lon", "--block-rows", "40", "--scheduler", scheduler)
    result = invoke("prepare", data, out, *options)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == "Warning: 1 row with missing values is left out\n"
    again = tmp_path / "again.zarr"
    found = succeed("prepare", out, again, *options)
    assert list(found) == [
        *("dataset", "rows", "dropped", "blocks", "block_rows", "order", "seconds")
    ]
    assert found["dataset"] == str(again)
    assert (found["rows"], found["dropped"], found["order"]) == (299, 0, "hilbert")
    assert (found["blocks"], found["block_rows"]) == (8, 38)
    X, y = daskgp.open_dataset(str(out))
    assert read_layout(X).n_blocks == 8
    np.testing.assert_array_equal(X.compute(), daskgp.open_dataset(str(again))[0].compute())
    assert len(y) == 299
    shown = re.sub(r"[\s│]+", " ", invoke("info", out).stdout)
    assert "blocks 8 of 38 rows order hilbert: lat, lon" in shown
    assert "blocks" not in invoke("info", data).stdout


def test_a_dataset_is_shuffled_and_info_says_the_seed(data, tmp_path, scheduler):
    out = tmp_path / "shuffled.zarr"
    found = succeed("prepare", data, out, "--order", "random", "--scheduler", scheduler)
    assert (found["rows"], found["dropped"], found["order"]) == (299, 1, "random")
    wanted, found = (daskgp.open_dataset(str(url))[0].compute() for url in (data, out))
    wanted = np.delete(wanted, 5, axis=0)
    assert (found == wanted).mean() < 0.05
    np.testing.assert_array_equal(*(X[np.lexsort(X.T)] for X in (found, wanted)))
    shown = re.sub(r"[\s│]+", " ", invoke("info", out).stdout)
    assert "order random: seed 0" in shown


def test_help_and_arguments_that_cannot_be_used(data, tmp_path, scheduler):
    assert "--order" in invoke("prepare", "--help").stdout
    out = ("--scheduler", scheduler)
    line = refused("prepare", data, tmp_path / "a.zarr", "--order", "lot", *out)
    assert "order 'lot' is neither one of auto, hilbert, pca, kmeans, random nor a column" in line
    assert "did you mean" in line
    assert "X has lon, lat" in line
    assert "no dataset at" in refused("prepare", tmp_path / "none", tmp_path / "a.zarr", *out)
    assert "exists already" in refused("prepare", data, data, *out)
    assert "--block-rows" in refused("prepare", data, tmp_path / "a.zarr", "--block-rows", "0")
    assert os.listdir(tmp_path) == []
