"""Files of the package that common work goes through, as a reader of it would.

``python tests/files_entered.py`` prints their numbers, with ``-v`` their names.  A file counts if a
function of it runs, or if a function that runs imports it.
"""

import dis
import inspect
import json
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import CodeType

import click
import dask
import numpy as np

import daskgp
import daskgp.estimators  # what a work imports is imported before it is followed
from daskgp.cli import main

PACKAGE = Path(daskgp.__file__).parent


def imported(code: CodeType) -> Iterator[str]:
    """Yield the modules of the package that the import statements of a function name."""
    name = ""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            name = step.argval
            if name.startswith("daskgp"):
                yield name
        elif step.opname == "IMPORT_FROM" and name.startswith("daskgp"):
            yield f"{name}.{step.argval}"


def file_of(module: str) -> Path | None:
    """Return the file of a module, None for a name in one; packages of names alone do not count."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return None if spec is None or spec.submodule_search_locations else Path(str(spec.origin))


def entered(work: Callable[[], object]) -> list[str]:
    """Return the files of the package that some work goes through."""
    codes: set[CodeType] = set()

    def follow(frame, event: str, argument: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    threading.setprofile(follow)
    sys.setprofile(follow)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    own = [code for code in codes if Path(code.co_filename).is_relative_to(PACKAGE)]
    functions = [code for code in own if code.co_flags & inspect.CO_OPTIMIZED]
    files = {Path(code.co_filename) for code in functions}
    files |= {file_of(module) for code in functions for module in imported(code)} - {None}
    return sorted(str(path.relative_to(PACKAGE)) for path in files)


def rows(number: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs of two features, and targets."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 3.0, (number, 2))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(number)


@contextmanager
def command_works() -> Iterator[dict[str, Callable[[], object]]]:
    """Yield the works of the command, which have files to work on."""
    X, y = rows()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        daskgp.SGPR(n_inducing=20).fit(X, y).save("model.zarr")
        np.savetxt("places.csv", X, delimiter=",", header="x0,x1", comments="")
        words = ["predict", "model.zarr", "places.csv", "predicted.csv"]
        yield {"csv to csv": lambda: main(words, standalone_mode=False)}
        os.chdir(os.path.sep)


def works() -> dict[str, list[str]]:
    """Return the files of every work by its name."""
    X, y = rows()
    fits = {
        "fit of SGPR": lambda: daskgp.SGPR(n_inducing=20).fit(X, y),
        "fit of LMA": lambda: daskgp.LMA(block_rows=50, n_support=20).fit(X, y),
    }
    with dask.config.set(scheduler="synchronous"), command_works() as commands:
        return {name: entered(work) for name, work in {**fits, **commands}.items()}


if __name__ == "__main__":
    logging.disable()
    found = works()
    click.echo(json.dumps(found if "-v" in sys.argv else {k: len(v) for k, v in found.items()}))
