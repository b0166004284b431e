"""What the command does with every estimator that can be predicted into a store."""

import os

import numpy as np
import pytest
import zarr
from commands import dataset, invoke, succeed

import daskgp
from tests.contract import cases

WORDS = {
    "sgpr": "inducing inputs",
    "lma": "support inputs",
    "pic": "support inputs",
    "vecchia": "blocks",
    "experts": "of sparse experts",
    "exact-experts": "of exact experts",
    "opticom": "grid points",
    "cagp": "sparse",
    "cagp-cg": "cg",
    "decoupled": "functions",
    "svgp": "functions",
    "ssgp": "spectral points",
    "exact": "rows",
}
"""What the description of some stored models names beside the method."""


@pytest.mark.sampled
@pytest.mark.parametrize("name", [n for n in cases.SETTINGS if n not in cases.NO_SPREAD])
def test_the_command_plans_fits_predicts_scores_and_describes(name, tmp_path, scheduler):
    X, y = cases.rows()
    data = dataset(tmp_path / "t.zarr", X, y, step=40)
    out, url, at = tmp_path / "p.zarr", tmp_path / "m.zarr", ("--scheduler", scheduler)
    text = {"kernel": "rbf(0.8)" if name == "ssgp" else "matern32(0.8)"}
    made = cases.make(name, **text)
    settings = {"max_iter": made.max_iter, **cases.SETTINGS[name], **text}
    options = [part for pair in settings.items() for part in ("--set", "{}={}".format(*pair))]
    chosen = ("--model", cases.kind(name).model_name, *options)
    assert succeed("plan", data, *chosen, "--json")["fits"] is True
    said = succeed("fit", data, url, *chosen, *at)
    assert (said["rows"], said["objective"]) == (
        cases.N,
        pytest.approx(made.fit(*daskgp.open_dataset(data)).objective_, rel=1e-9),
    )
    assert sorted(os.listdir(tmp_path)) == ["m.zarr", "t.zarr"]
    assert not {"checkpoint", "rows-ordered"} & set(os.listdir(url))
    assert succeed("predict", url, data, out, *at)["rows"] == cases.N
    mean, std = daskgp.load(url).predict(X, return_std=True, include_noise=True)
    store = zarr.open_group(out, mode="r")
    np.testing.assert_allclose(store["mean"][...], mean, rtol=1e-8)
    np.testing.assert_allclose(store["variance"][...], std**2, rtol=1e-8)
    scores = succeed("score", url, data, *at)
    for metric, value in daskgp.metrics.summary(y, mean, std**2).items():
        assert scores[metric] == pytest.approx(value, rel=1e-8)
    described = invoke("info", url)
    assert described.exit_code == 0
    for words in (cases.kind(name).model_name, WORDS.get(name, "")):
        assert words in described.stdout
