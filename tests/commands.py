"""What the tests of the command share: running it, reading what it says, stores to run it on."""

import json
import os
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from daskgp.cli import main
from daskgp.data import dataset_writer
from daskgp.runtime.process import single_blas_thread

# Bits are compared between processes, and those of a BLAS product depend on its threads.
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}


def invoke(*arguments):
    """Run the command in this process."""
    with single_blas_thread():
        return CliRunner().invoke(main, [str(argument) for argument in arguments])


def succeed(*arguments):
    """The JSON line of a command that must succeed."""
    result = invoke(*arguments)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 1
    return json.loads(lines[0])


def refused(*arguments, code=2):
    """The one line on stderr of a command that must fail."""
    result = invoke(*arguments)
    assert result.exit_code == code, (result.exit_code, result.stderr, result.exception)
    assert result.stdout == ""
    return one_line(result.stderr)


def one_line(stderr):
    lines = stderr.splitlines()
    assert len(lines) == 1, stderr
    assert lines[0].startswith("Error: ")
    return lines[0]


def heeds_interrupts():
    """Ctrl-C counts even where the tests themselves run in the background, which ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def start(*arguments, before=heeds_interrupts):
    """Start the command in a process, and a group of processes, of its own; ``before`` in it."""
    return subprocess.Popen(
        [sys.executable, "-m", "daskgp", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ONE_THREAD},
        start_new_session=True,
        preexec_fn=before,
    )


def stop_when(process, ready, how=signal.SIGKILL, timeout=60.0):
    """Signal the group, as a terminal does, as soon as ``ready()``; the exit code and stderr."""
    deadline = time.monotonic() + timeout
    while not ready():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the command did not get far enough"
        time.sleep(0.005)
    os.killpg(process.pid, how)
    _, stderr = process.communicate(timeout=timeout)
    return process.returncode, stderr


KILLED = """
import os, sys
from daskgp.cli import main

left, store = int(sys.argv.pop(1)), sys.argv.pop(1)
made = 0

def counted(change):
    def call(*arguments, **more):
        global made
        if store in str(arguments) or more.get("dir_fd") is not None:
            if made == left:
                os._exit(9)
            made += 1
        return change(*arguments, **more)
    return call

for name in ("replace", "link", "unlink", "remove", "mkdir", "rmdir", "rename"):
    setattr(os, name, counted(getattr(os, name)))
try:
    main(prog_name="daskgp")
finally:
    print(made, file=sys.stderr)
"""


def killed_before(change, store, *words):
    """Run the command, which is killed just before some change of a store on disk."""
    script = [sys.executable, "-c", KILLED, str(change), store.name, *map(str, words)]
    return subprocess.run(
        script, capture_output=True, text=True, timeout=120, env={**os.environ, **ONE_THREAD}
    )


class Page(HTMLParser):
    """Tags, their balance, and what they refer to."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text = [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def rows(n=300, d=2, seed=0):
    """A smooth function of d inputs with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 3.0, (n, d))
    return X, np.sin(2.0 * X[:, 0]) + X[:, -1] + 0.1 * rng.standard_normal(n)


def dataset(path, X, y, step=100, names=None, targets=("y",)):
    """Write a dataset store; its path as text."""
    names = names or [f"x{j}" for j in range(X.shape[1])]
    with dataset_writer(str(path), names, targets, step) as writer:
        writer.append(X, y)
    return str(path)


def files(path):
    """Contents of all files below a path."""
    return {str(p.relative_to(path)): p.read_bytes() for p in Path(path).rglob("*") if p.is_file()}


def predictions(path):
    """Contents of a prediction store but its memory of runs, which have times."""
    found = files(path)
    attributes = json.loads(found.pop("zarr.json"))
    attributes["attributes"].pop("runs", None)
    return {**found, "zarr.json": attributes}


def foreign(store, **changes):
    """A lock of a run on another host that beats every 0.1 s, or would."""
    said = {"run": "abc", "host": "elsewhere", "space": "", "pid": 4, "started": 1.0}
    content = {**said, "every": 0.1, "beat": 0, **changes}
    part = Path(f"{store}.part")
    part.write_text(json.dumps(content))
    part.replace(f"{store}.lock")
