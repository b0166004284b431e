"""The soak benchmark runs, small."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[2] / "workflows" / "benchmarks" / "soak.py"


def printed(folder, *options):
    """The lines of JSON that the benchmark prints."""
    command = [sys.executable, str(SOAK), *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cluster", "processes"),
    [("local", {"client", "worker 0"}), ("apart", {"client", "scheduler", "worker 0"})],
)
def test_memory_of_each_process_is_printed_as_json(cluster, processes, tmp_path):
    sizes = ("--cycles", "2", "--workers", "1", "--rows", "400")
    first, last = printed(tmp_path, *sizes, "--only", cluster)
    assert (first["cycle"], last["cycle"]) == (1, 2)
    assert set(last["growth_percent"]) == processes
    assert all(mib > 20 for mib in last["mib"].values())


@pytest.mark.slow
def test_speed_by_workers_is_printed_as_json(tmp_path):
    sizes = ("--scaling-rows", "2000", "--repeats", "1")
    found = printed(tmp_path, *sizes, "--only", "scaling")
    assert [line["workers"] for line in found] == [1, 2, 4]
    assert all(line["seconds"] > 0 for line in found)
    assert found[0]["speedup"] == 1
