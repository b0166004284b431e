"""What README.md says can be done: its Python runs, its commands and targets exist."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from docs_text import ROOT, check_commands, code_blocks

import daskgp

README = (ROOT / "README.md").read_text()


def run(code: str, folder: Path) -> None:
    (folder / "snippet.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "snippet.py"], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_python_in_memory_runs():
    code = code_blocks(README, "python")[0]
    for written, small in {"2_000": "400", ".fit(": ".set_params(max_iter=2).fit("}.items():
        assert code.count(written) == 2
        code = code.replace(written, small)
    names = {}
    exec(code, names)
    assert names["mean"].shape == names["std"].shape == (5,)


def test_python_on_stores_runs(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (600, 2))
    np.savez(tmp_path / "rows.npz", X=X, y=np.sin(X[:, 0]))
    for name in ("train", "test"):
        store = str(tmp_path / f"{name}.zarr")
        daskgp.convert(str(tmp_path / "rows.npz"), store, target="y", block_rows=200)
    code = code_blocks(README, "python")[1]
    assert "n_inducing=512" in code
    run(code.replace("n_inducing=512", "n_inducing=10, max_iter=1"), tmp_path)
    assert (tmp_path / "predictions.zarr" / "mean").is_dir()


def test_there_are_no_other_python_blocks():
    assert len(code_blocks(README, "python")) == 2


def test_commands_exist():
    assert check_commands(README) == {
        "convert",
        "cross-validate",
        "examples",
        "interpolate",
        "plan",
        "fit",
        "predict",
        "score",
        "info",
        "update",
    }


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE))
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert {"demo", "test", "docs"} <= named
    assert named <= targets


def test_extras_exist():
    extras = re.findall(r"\[([a-z0-9]+)\]'", README)
    pyproject = (ROOT / "pyproject.toml").read_text()
    for extra in extras:
        assert re.search(rf"^{extra} = \[", pyproject, re.MULTILINE), extra


def test_local_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        if "://" not in target:
            assert (ROOT / target.partition("#")[0]).exists(), target
