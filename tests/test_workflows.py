"""The workflows and benchmarks run, small, as their users run them; the demo whole where slow."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import daskgp

WORKFLOWS = Path(__file__).parents[1] / "workflows"


def run(folder, script, *arguments, timeout=300):
    """What a script printed; it must succeed."""
    command = [sys.executable, str(WORKFLOWS / script), *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_demo_predicts_calibrated_and_draws(tmp_path):
    sizes = ("--rows", 12_000, "--test-rows", 2_000, "--inducing", 60)
    score = json.loads(run(tmp_path, "demo.py", *sizes).splitlines()[-1])
    assert score["n"] == 2_000
    assert 0.9 < score["coverage_95"] < 0.99
    assert score["rmse_of_truth"] < score["rmse"]
    assert (tmp_path / "demo_output" / "figure.png").stat().st_size > 10_000


@pytest.mark.slow
def test_demo_on_a_million_rows(tmp_path):
    score = json.loads(run(tmp_path, "demo.py", timeout=600).splitlines()[-1])
    assert score["n"] == 100_000
    assert score["rmse_of_truth"] < 0.15  # the noise is 0.3
    assert abs(score["coverage_95"] - 0.95) < 0.01


def test_fit_predict_scores_and_resumes(tmp_path):
    rng = np.random.default_rng(0)
    for name, rows in (("train", 600), ("test", 200)):
        X = rng.uniform(0, 5, (rows, 2))
        np.savez(tmp_path / f"{name}.npz", X=X, y=np.sin(X[:, 0]) + 0.1 * rng.standard_normal(rows))
        daskgp.convert(str(tmp_path / f"{name}.npz"), str(tmp_path / f"{name}.zarr"), target="y")
    config = (WORKFLOWS / "fit_predict.toml").read_text()
    assert "n_inducing = 512" in config
    (tmp_path / "run.toml").write_text(config.replace("n_inducing = 512", "n_inducing = 40"))
    first = json.loads(run(tmp_path, "fit_predict.py", "--config", "run.toml"))
    assert (first["rows_fitted"], first["rows_predicted"]) == (600, 200)
    assert first["rmse"] < 0.15
    again = json.loads(run(tmp_path, "fit_predict.py", "--config", "run.toml", "--resume"))
    assert (again["rows_predicted"], again["rows_skipped"]) == (0, 200)


def test_fit_predict_names_a_wrong_key(tmp_path):
    (tmp_path / "run.toml").write_text('train = "a"\nmodle = "sgpr"\n')
    command = [sys.executable, str(WORKFLOWS / "fit_predict.py"), "--config", "run.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "unknown keys ['modle']" in done.stderr


def test_sgpr_benchmark_measures(tmp_path):
    sizes = ("--rows", 3_000, "--inducing", 50, "--repeats", 1, "--only", "daskgp")
    printed = run(tmp_path, "benchmarks/sgpr.py", *sizes)
    assert "floor" in printed
    assert "daskgp" in printed


@pytest.mark.slow
def test_scale_benchmark_measures(tmp_path):
    sizes = ("--rows", 20_000, "--rows", 60_000, "--overhead-rows", 60_000)
    printed = run(tmp_path, "benchmarks/scale.py", *sizes)
    assert "log-log slope" in printed
    assert "ratio" in printed
