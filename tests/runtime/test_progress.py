"""The line that a user at a terminal sees of long work."""

import io
import json
import os
import pty
import re
import subprocess
import sys
import time

import numpy as np
import pytest
from commands import ONE_THREAD, invoke
from rich.progress import Progress

import daskgp
from daskgp.runtime import progress
from daskgp.runtime.progress import Amount, progress_line

LINE = re.compile(
    r"([\w-]+)  ([\d,]+)/([\d,]+) (\w+)  (\d+) %  (\S+) (\w+)/s  (\d+:\d\d:\d\d|-:--:--) left"
)


class Terminal(io.StringIO):
    """A stderr that somebody sits at."""

    def isatty(self):
        return True


def at_a_terminal(monkeypatch):
    """Put somebody at a terminal, within the test itself: pytest captures anew between phases."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    return screen


def text(total, done, seconds, amount, note=""):
    """The line of work of which so much is done after some seconds."""
    clock = [0.0]
    bar = Progress(get_time=lambda: clock[0], disable=True)
    task = bar.add_task("predict", total=total, amount=amount, note="")
    clock[0] = seconds
    bar.update(task, advance=done, note=note)
    return progress.text_of(bar.tasks[0])


def test_the_line_has_steps_share_rows_per_second_and_time_left():
    found = text(400, 120, 60.0, Amount(14_000_000, "chunks"))
    assert found == "predict  120/400 chunks  30 %  70,000 rows/s  0:02:20 left"


def test_steps_per_second_where_rows_are_not_known():
    assert text(40, 12, 60.0, Amount()) == "predict  12/40 tasks  30 %  0.2 tasks/s  0:02:20 left"
    found = text(40, 12, 60.0, Amount(unit="iterations"), "objective 1.5")
    assert found.endswith("30 %  0.2 iterations/s  0:02:20 left  objective 1.5")


def test_work_of_unknown_length_and_work_that_has_not_begun():
    rows = Amount(unit="rows")
    assert text(None, 1_200_000, 10.0, rows) == "predict  1,200,000 rows  120,000 rows/s"
    assert text(None, 0, 0.0, rows) == "predict  0 rows  - rows/s"
    found = text(400, 0, 0.0, Amount(1_000, "chunks"))
    assert found == "predict  0/400 chunks  0 %  - rows/s  -:--:-- left"


def test_work_within_work_has_a_line_of_its_own_below(monkeypatch):
    terminal = at_a_terminal(monkeypatch)
    with progress_line("train", 10, Amount(unit="iterations")) as outer:
        outer(note="loss 2")
        with progress_line("gradient", 4, Amount(4_000)) as inner:
            inner()
            time.sleep(0.9)
        inner()  # a task that is told of late
    assert re.search(r"train  1/10 iterations  10 %.*loss 2", terminal.getvalue())
    assert re.search(
        r"gradient  1/4 tasks  25 %  [\d,]+ rows/s  0:00:0\d left", terminal.getvalue()
    )


def test_a_short_round_within_other_work_has_no_line(monkeypatch):
    terminal = at_a_terminal(monkeypatch)
    with progress_line("train", 10), progress_line("gradient", 4) as inner:
        inner(2)
    assert "train" in terminal.getvalue()
    assert "gradient" not in terminal.getvalue()


def test_nothing_is_shown_without_a_terminal_nor_if_it_is_not_wanted(capsys, monkeypatch):
    terminal = at_a_terminal(monkeypatch)
    with progress_line("predict", 4, show=False) as advance:
        assert advance is None
    with progress.silent(), progress_line("predict", 4) as advance:
        assert advance is None
    assert not terminal.getvalue()
    terminal.isatty = lambda: False
    with progress_line("predict", 4) as advance:
        assert advance is None


def test_what_is_piped_elsewhere_stays_out_of_the_display(capsys, monkeypatch):
    terminal = at_a_terminal(monkeypatch)
    with progress_line("predict", 4):
        sys.stdout.write("a result\n")
    assert capsys.readouterr().out == "a result\n"
    assert "a result" not in terminal.getvalue()


def bare(screen):
    """What a terminal was sent, without the codes that move its cursor."""
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", screen)


def on_a_terminal(*arguments):
    """Stdout of the command, and what it sends to a terminal that is its stderr."""
    main, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "daskgp", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=side,
        text=True,
        env={**os.environ, **ONE_THREAD, "TERM": "xterm-256color", "COLUMNS": "200"},
    )
    os.close(side)
    parts = []
    while True:
        try:
            parts.append(os.read(main, 4096))
        except OSError:  # the other side is closed
            break
    os.close(main)
    out, _ = process.communicate(timeout=60)
    screen = bare(b"".join(parts).decode())
    assert process.returncode == 0, screen
    return out, screen


@pytest.fixture
def rows():
    X = np.random.default_rng(0).uniform(size=(400, 2))
    return X, np.sin(6 * X[:, 0])


def test_long_work_shows_its_progress(rows, tmp_path, monkeypatch):
    terminal = at_a_terminal(monkeypatch)
    data, out = (str(tmp_path / name) for name in ("data.zarr", "out.zarr"))
    np.savez(tmp_path / "rows.npz", X=rows[0], y=rows[1])
    daskgp.convert(tmp_path / "rows.npz", data, "y")
    daskgp.prepare(data, str(tmp_path / "blocks.zarr"))
    model = daskgp.SGPR(n_inducing=10, max_iter=3).fit(*daskgp.open_dataset(data))
    model.predict_store(data, out)
    model.update(*rows)
    lines = {(m[1], m[3], m[4]) for m in LINE.finditer(bare(terminal.getvalue()))}
    assert {("convert", "400", "rows"), ("train", "3", "iterations")} <= lines
    assert {("sort", "1", "tasks"), ("write", "1", "tasks"), ("predict", "1", "chunks")} <= lines
    assert ("sgpr-local", "1", "tasks") in lines


def test_the_command_shows_it_on_a_terminal_beside_its_result(rows, tmp_path):
    np.savez(tmp_path / "rows.npz", X=rows[0], y=rows[1])
    asked = ("convert", tmp_path / "rows.npz", tmp_path / "data.zarr", "--target", "y")
    out, screen = on_a_terminal(*asked)
    assert json.loads(out)["rows"] == 400
    assert LINE.search(screen)[1] == "convert"


def test_a_log_holds_no_progress(rows, tmp_path):
    np.savez(tmp_path / "rows.npz", X=rows[0], y=rows[1])
    result = invoke("convert", tmp_path / "rows.npz", tmp_path / "data.zarr", "--target", "y")
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_fit_without_progress_converts_without(rows, tmp_path, monkeypatch):
    terminal = at_a_terminal(monkeypatch)
    X, y = rows
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    daskgp.SGPR(n_inducing=10, max_iter=1, progress=False).fit(tmp_path / "rows.npz", "y")
    assert not terminal.getvalue()
