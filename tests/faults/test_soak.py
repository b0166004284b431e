"""The soak benchmark runs, small."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[2] / "workflows" / "benchmarks" / "soak.py"


@pytest.mark.slow
def test_memory_and_speed_are_printed_as_json(tmp_path):
    sizes = ("--cycles", "2", "--workers", "1", "--rows", "400", "--only", "memory")
    command = [sys.executable, str(SOAK), *sizes]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    first, last = map(json.loads, done.stdout.splitlines())
    assert (first["cycle"], last["cycle"]) == (1, 2)
    assert set(last["growth_percent"]) == {"client", "scheduler", "workers"}
    assert all(last[kind] > 20 for kind in last["growth_percent"])
