"""A reader of common work goes through few files, and no more than before."""

import json
import subprocess
import sys
from pathlib import Path

AT_MOST = {"fit of SGPR": 79, "fit of LMA": 91, "csv to csv": 70}
"""Numbers of files, which may only fall: towards 35, 42 and 45."""


def test_common_work_goes_through_no_more_files_than_before():
    script = str(Path(__file__).with_name("files_entered.py"))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.keys() == AT_MOST.keys()
    for name, most in AT_MOST.items():
        assert 0 < found[name] <= most, (
            f"{name}: {found[name]} files, python {script} -v lists them"
        )
