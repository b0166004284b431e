"""Run watch.sh every hour with Prefect.

    python prefect_flow.py FOLDER --resolution x=1,y=1

It keeps running, and runs each flow in a process of its own.  A run that failed is tried again,
one that somebody has to look at is not.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from prefect import flow, task

JOB = Path(__file__).with_name("watch.sh")


def worth_another_try(task: Any, run: Any, state: Any) -> bool:
    """Tell exit code 1 from 2, which stays however often the job is repeated."""
    error = state.result(raise_on_failure=False)
    return not (isinstance(error, subprocess.CalledProcessError) and error.returncode == 2)


@task(retries=2, retry_delay_seconds=300, retry_condition_fn=worth_another_try)
def watch(folder: str, options: list[str]) -> None:
    """Take new files, update the model, and publish a map."""
    subprocess.run(["bash", str(JOB), folder, *options], check=True)


@flow
def hourly(folder: str, options: list[str]) -> None:
    """One run."""
    watch(folder, options)


if __name__ == "__main__":
    hourly.serve(
        name="watch",
        cron="0 * * * *",
        parameters={"folder": sys.argv[1], "options": sys.argv[2:]},
        limit=1,  # runs do not overlap
        pause_on_shutdown=False,
    )
