"""Error columns of each of several targets, from tables to joint fits."""

import numpy as np
import pandas as pd
import pytest
import zarr
from commands import refused, succeed

import daskgp
from daskgp.errors import InputError, SettingError


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    n = 40
    frame = pd.DataFrame(rng.uniform(size=(n, 2)), columns=["a", "b"])
    frame["zinc"], frame["lead"] = np.sin(5 * frame.a), 30 * np.cos(4 * frame.b)
    frame["zs"], frame["ls"] = rng.uniform(0.1, 0.3, n), rng.uniform(1.0, 3.0, n)
    frame.loc[frame.index % 3 == 0, ["lead", "ls"]] = np.nan
    frame["weight"] = rng.uniform(0.5, 2.0, n)
    path = str(tmp_path / "t.csv")
    frame.to_csv(path, index=False)
    return frame, path


BOTH = {"target": ["zinc", "lead"], "features": ["a", "b"], "y_std": ["zs", "ls"]}
JOINT = {"targets": "joint", "optimizer": None, "progress": False}


def test_a_store_has_the_variance_of_each_target(table, tmp_path):
    frame, path = table
    url = str(tmp_path / "s.zarr")
    found = daskgp.convert(path, url, **BOTH, weight="weight", block_rows=16)
    group = zarr.open_group(url)
    assert (found.rows, group["y_variance"].shape) == (40, (40, 2))
    np.testing.assert_allclose(group["y_variance"][:], frame[["zs", "ls"]].to_numpy() ** 2)
    np.testing.assert_allclose(group["weight"][:], frame.weight)
    model = daskgp.ExactGP("matern52()", **JOINT).fit(*daskgp.open_dataset(url))
    noise = {"y_variance": frame[["zs", "ls"]].to_numpy() ** 2, "sample_weight": frame.weight}
    given = frame[["a", "b"]].to_numpy(), frame[["zinc", "lead"]].to_numpy()
    other = daskgp.ExactGP("matern52()", **JOINT).fit(*given, **noise)
    np.testing.assert_allclose(model.predict(given[0]), other.predict(given[0]), rtol=1e-9)
    separate = daskgp.ExactGP("matern52()", optimizer=None, progress=False)
    separate.fit(*daskgp.open_dataset(url))
    mean = separate.predict(given[0])
    for j, errors in enumerate(noise["y_variance"].T):
        own = noise | {"y_variance": errors}
        alone = daskgp.ExactGP("matern52()", optimizer=None).fit(given[0], given[1][:, j], **own)
        np.testing.assert_allclose(mean[:, j], alone.predict(given[0]), rtol=1e-9)


def test_more_rows_bring_their_errors(table, tmp_path):
    frame = table[0]
    url = str(tmp_path / "s.zarr")
    daskgp.convert(frame[:25], url, **BOTH)
    daskgp.convert(frame[25:], url, append=True)
    variance = zarr.open_group(url)["y_variance"][:]
    np.testing.assert_allclose(variance, frame[["zs", "ls"]].to_numpy() ** 2)
    assert zarr.open_group(url).attrs["converted_from"] == {"y_std": ["zs", "ls"]}


def test_commands_and_fits_name_them(table, tmp_path):
    frame, path = table
    target = ["--target", "zinc,lead", "--features", "a,b", "--y-std", "zs,ls"]
    model = str(tmp_path / "m.zarr")
    settings = ["--set", "targets=joint", "--set", "kernel=matern52()", "--set", "max_iter=1"]
    said = succeed("fit", path, model, "--model", "exact", *settings, *target)
    assert said["values"] == frame[["zinc", "lead"]].notna().sum().sum()
    scores = succeed("score", model, path, "--target", "zinc,lead", "--y-std", "zs,ls")
    assert list(scores["targets"]) == ["zinc", "lead"]
    fit = daskgp.ExactGP("matern52()", **JOINT).fit
    frame["zv"], frame["lv"] = frame.zs**2, frame.ls**2
    by_name = fit(frame, ["zinc", "lead"], features=["a", "b"], y_variance=["zv", "lv"])
    arrays = frame[["a", "b"]].to_numpy(), frame[["zinc", "lead"]].to_numpy()
    own = daskgp.ExactGP("matern52()", **JOINT).fit(
        *arrays, y_variance=frame[["zv", "lv"]].to_numpy()
    )
    np.testing.assert_allclose(by_name.predict(frame[["a", "b"]]), own.predict(arrays[0]))


def test_columns_that_do_not_fit_targets_are_refused(table, tmp_path):
    frame, path = table
    url = str(tmp_path / "s.zarr")
    bad = frame.assign(zs=-frame.zs)
    for source, more, words in (
        (path, {"y_std": "zs"}, "y_std has 1 column for 2 targets"),
        (path, {"y_std": ["zs", "zs"]}, "different names"),
        (path, {"y_variance": ["zs", "ls"]}, "the same error"),
        (path, {"weight": ["weight", "zs"]}, "weight is weight, zs: give one column"),
        (bad, {}, "y_std='zs' is zero or negative in 40 rows"),
        (frame.assign(ls=np.nan), {}, "y_std='ls' is missing in 26 rows"),
    ):
        with pytest.raises(InputError, match=words):
            daskgp.convert(source, url, **BOTH | more)
    line = refused("convert", path, url, "--target", "zinc", "--y-std", "zs,ls")
    assert "y_std has 2 columns for 1 target" in line
    with pytest.raises(SettingError, match="give its column in X"):
        daskgp.ExactGP(**JOINT).fit(frame, ["zinc", "lead"], y_variance=np.ones((40, 2)))
