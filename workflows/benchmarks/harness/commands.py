"""The command line of a script: runs, a file of their results, and their table."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from harness.options import Options, option_of
from harness.processes import run


def measured(script: str, key: Mapping, options: Options) -> dict[str, Any]:
    """Measure one run in a process of its own, by ``script --here``."""
    values = {name: str(v) if isinstance(v, Path) else v for name, v in vars(options).items()}
    words = [sys.executable, script, f"--here={json.dumps([key, values])}"]
    threads = (f"{library}_NUM_THREADS" for library in ("OMP", "OPENBLAS", "MKL"))
    limits = {name: str(options.threads) for name in (*threads, "DASK_NUM_WORKERS")}
    seconds = options.limit and 60 * options.limit
    try:
        ran = run(words, environment=os.environ | limits, limit=seconds)
    except RuntimeError as error:
        return {"failed": str(error)}
    except subprocess.TimeoutExpired:
        return {"ended_after_s": seconds}
    spent = {"seconds": ran.seconds, "processor_s": ran.processor_s}
    return {**ran.result, **spent, "peak_mib": ran.peak_mib, "largest_mib": ran.largest_mib}


def measured_here(measure: Callable[[dict, Options], dict], text: str) -> dict[str, Any]:
    """Measure one run in this process."""
    key, values = json.loads(text)
    options = Options(**values | {"folder": Path(values["folder"])})
    try:
        return measure(key, options)
    except ModuleNotFoundError as error:
        return {"absent": f"{error.name} is not installed: pip install 'daskgp[bench]'"}


class Ledger:
    """Results of runs in a file, a line of JSON each; a run that ended well is not repeated."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def records(self) -> list[dict[str, Any]]:
        """Return all results, a later one of the same key in place of an earlier one."""
        if not self.path.exists():
            return []
        lines = (json.loads(line) for line in self.path.read_text().splitlines() if line)
        return list(
            {json.dumps(record["key"], sort_keys=True): record for record in lines}.values()
        )

    def done(self, key: Mapping) -> bool:
        """Tell if a run of that key ended well, or at its limit of time."""
        ended = (r for r in self.records() if "failed" not in r and "absent" not in r)
        return any(record["key"] == key for record in ended)

    def measure(self, script: str, keys: Iterable[Mapping], options: Options) -> list[str]:
        """Measure each run that is not done, one after the other; return what failed."""
        failed = []
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for key in keys:
            if self.done(key):
                continue
            record = {"key": key, "threads": options.threads, **measured(script, key, options)}
            with self.path.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(json.dumps(record), flush=True)
            if "failed" in record:
                failed.append(f"{key}: {record['failed']}")
        return failed


def command(module: dict[str, Any], limit: float | None = 60.0, **own: Any) -> None:
    """Run the command line of a script, whose functions are ``module``, if the script is run.

    Options that all have come first, then its own: names, False for a flag, and a number or text
    with that of tiny runs, or a list of numbers with that of tiny runs.
    """
    figure = module.get("figure")

    def main(here: str | None, only_table: bool, drawn: Path | None, **values: Any) -> None:
        if here:
            print(json.dumps(measured_here(module["measure"], here), default=float))
            return
        out = values["out"]
        if only_table and out is None:
            raise click.UsageError("give --out=FILE, where results are kept")
        with tempfile.TemporaryDirectory() as temporary:
            kept = Path(temporary, "results.jsonl") if out is None else out
            options = Options(**values, folder=kept.parent / "fields")
            ledger, failed = Ledger(kept), []
            if not only_table:
                options.folder.mkdir(parents=True, exist_ok=True)
                failed = ledger.measure(module["__file__"], module["keys"](options), options)
            print(module["table"](ledger.records(), options))
            if figure and drawn:
                figure(ledger.records(), drawn)
        if failed:
            raise click.ClickException(f"failed: {'; '.join(failed)}")

    options = [
        click.option("--out", type=Path, help="File of results, which is appended to."),
        click.option("--table", "only_table", is_flag=True, help="Print what the file holds."),
        click.option("--figure", "drawn", type=Path, hidden=not figure, help="Draw a PNG."),
        click.option(
            "--threads", default=2, show_default=True, help="Threads, or workers, of a run."
        ),
        click.option(
            "--limit", type=float, default=limit, show_default=True, help="Most minutes of a run."
        ),
        click.option("--tiny", is_flag=True, is_eager=True, help="Little work, for tests."),
        click.option("--here", hidden=True),
        *(option_of(f"--{name.replace('_', '-')}", value) for name, value in own.items()),
    ]
    for option in reversed(options):
        main = option(main)
    if module["__name__"] == "__main__":
        click.command(help="\b\n" + module["__doc__"].replace("\n\n", "\n\n\b\n"))(main)()
