"""Types: a user's script passes strict checks, and what it gets back is known."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from daskgp import errors, priors

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tests" / "typed" / "user.py"
MODULES = ("daskgp", *(f"daskgp.{name}" for name in ("kernels", "likelihoods", "metrics", "plot")))


def names_of(module):
    own = vars(module)
    return [
        name for name, value in own.items() if getattr(value, "__module__", "") == module.__name__
    ]


def test_the_script_uses_every_public_name():
    text = SCRIPT.read_text()
    names = [
        name for m in (*MODULES, "daskgp.testing") for name in importlib.import_module(m).__all__
    ]
    names += names_of(errors)
    names += [
        name for name in names_of(priors) if name not in ("REGISTRY", "of") and name[0] != "_"
    ]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.slow
def test_a_users_script_passes_strict_checks(tmp_path):
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    command += ["--config-file=", f"--cache-dir={tmp_path}", str(SCRIPT)]
    found = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"MYPYPATH": str(ROOT)},
    )
    assert found.returncode == 0, found.stdout + found.stderr
