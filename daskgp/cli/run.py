"""Framework of the commands: exit codes, one-line errors, and logs on stderr."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

import click

from daskgp.errors import DaskgpError, InputError

logger: logging.Logger = logging.getLogger("daskgp")

BAD_INPUT, FAILED, INTERRUPTED, TERMINATED = 2, 1, 130, 143
RESUMABLE = "predict"
"""The command that can always resume; ``fit`` itself says when it can."""
PLUGINS = "daskgp.plugins"
"""Key of the modules that a command imports, in the context of click."""
GOES_ON = "the same command with --resume continues from here"


class Failure(click.ClickException):
    """The line and the exit code that a command ends with."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


def _verbose(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        logger.setLevel(logging.DEBUG)


def _quiet(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from daskgp.runtime.progress import silent  # the help is instant without

        logger.setLevel(logging.ERROR)
        ctx.with_resource(silent())


def _plugins(ctx: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> None:
    """Import the modules that register what users write."""
    if not names or ctx.resilient_parsing:
        return
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # the last, so that no file there takes another's place
    ctx.meta.setdefault(PLUGINS, []).extend(names)
    for name in names:
        try:
            import_module(name)
        except Exception as error:  # each module has its own
            what = f"{type(error).__name__}: {error}"
            raise click.BadParameter(
                f"cannot import {name!r} ({what}): give the name of a module that is installed or "
                "in this folder, without .py",
                ctx,
                parameter,
            ) from error


def plugins() -> list[str]:
    """Return the modules that the options of the command name."""
    ctx = click.get_current_context(silent=True)
    return [] if ctx is None else list(ctx.meta.get(PLUGINS, []))


_flag = partial(click.Option, is_flag=True, expose_value=False)
COMMON = (
    click.Option(
        ["--plugin"],
        multiple=True,
        metavar="MODULE",
        envvar="DASKGP_PLUGINS",
        expose_value=False,
        callback=_plugins,
        help="Import methods, kernels or the like from a module that is installed or in this "
        "folder. Repeatable.",
    ),
    _flag(["-v", "--verbose"], callback=_verbose, help="Log each step to stderr."),
    _flag(
        ["-q", "--quiet"],
        callback=_quiet,
        help="Show only errors and the result: no warnings, no progress.",
    ),
)
"""Options that are accepted before or after the name of a command."""


class Command(click.Command):
    """Command that rejects blank text instead of taking it for a path or an omitted option."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params += COMMON

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; a UsageError names the one that is blank."""
        rest = super().parse_args(ctx, args)
        if ctx.resilient_parsing:  # shell completion of a half-written command
            return rest
        for parameter in self.params:
            value = ctx.params.get(parameter.name or "")
            values = value if isinstance(value, tuple) else (value,)
            if any(isinstance(text, str) and not text.strip() for text in values):
                remedy = "" if parameter.required else " or leave the option out"
                raise click.BadParameter(f"it is blank: give a value{remedy}", ctx, parameter)
        return rest


command = partial(click.command, cls=Command)


class Main(click.Group):
    """Group whose commands fail with one plain line on stderr, never with a traceback."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params += COMMON

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run, and exit the process with the code of the outcome."""
        run: Callable[..., Any] = super().main
        if not extra.pop("standalone_mode", True):
            return run(*args, standalone_mode=False, **extra)
        with _logs_on_stderr(), _heeds_sigterm():
            try:
                code = run(*args, standalone_mode=False, **extra)
            except click.UsageError as error:
                help_line = f" (see `{error.ctx.command_path} --help`)" if error.ctx else ""
                _show(error.format_message() + help_line)
                code = BAD_INPUT
            except click.ClickException as error:
                _show(error.format_message())
                code = error.code if isinstance(error, Failure) else error.exit_code
            except (click.Abort, KeyboardInterrupt) as error:
                code, line = outcome(error)
                _show(line)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command and turn what it raises into a `Failure`."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except (Exception, KeyboardInterrupt) as error:
            code, line = outcome(error, ctx.invoked_subcommand == RESUMABLE)
            logger.debug("traceback of the error", exc_info=error)
            raise Failure(line, code) from error


def outcome(error: BaseException, resumable: bool = False) -> tuple[int, str]:
    """Return the exit code and the one line that a command ends with for an error."""
    # for example that a store was kept to resume from
    notes: list[str] = list(getattr(error, "__notes__", ()))
    if isinstance(error, InputError):
        code, line = BAD_INPUT, str(error)
    elif isinstance(error, DaskgpError):
        code, line = FAILED, str(error)
    elif isinstance(error, click.Abort | KeyboardInterrupt):
        ended = isinstance(error, Terminated)
        code, line = (TERMINATED, "terminated") if ended else (INTERRUPTED, "interrupted")
        advice = "; ".join([*[GOES_ON] * resumable, *notes])
        return code, f"{line}: {advice}" if advice else line
    else:
        code = FAILED
        line = f"the run failed ({type(error).__name__}: {error}); -v logs the traceback"
    return code, "; ".join([line, *notes])


@contextmanager
def _heeds_sigterm() -> Iterator[None]:
    """End on SIGTERM, which schedulers send, with one line and without half-done output."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would end the cleaning up
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(message: str) -> None:
    # click leaves colours out of files and pipes
    label = click.style("Error:", fg="red", bold=True)
    click.echo(f"{label} {' '.join(message.split())}", err=True)


def result(**values: Any) -> None:
    """Print a result as one line of JSON on stdout."""
    click.echo(json.dumps(values, allow_nan=False))


def since(began: float) -> float:
    """Return the seconds since a time of ``time.perf_counter``, as results have them."""
    return round(time.perf_counter() - began, 3)


def note(message: str) -> None:
    """Say on stderr what is done, unless the command is quiet."""
    if logger.isEnabledFor(logging.WARNING):
        click.echo(message, err=True)


# -- logs ------------------------------------------------------------------------------------


class _Handler(logging.Handler):
    """Handler that writes to the current stderr, so that a progress bar can stay below."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(self.format(record), err=True)


class _Format(logging.Formatter):
    """Formatter with time and level if logs were asked for, of plain lines if not."""

    def format(self, record: logging.LogRecord) -> str:
        if logger.isEnabledFor(logging.DEBUG):
            return super().format(record)
        colour = "yellow" if record.levelno < logging.ERROR else "red"
        label = click.style(f"{record.levelname.capitalize()}:", fg=colour)
        return f"{label} {record.getMessage()}"


def _warned(show: Callable[..., None], message: Any, category: type, *where: Any) -> None:
    """Show a warning to users as one line, without the place in the code."""
    if issubclass(category, UserWarning):
        logger.warning("%s", " ".join(str(message).split()))
    else:
        show(message, category, *where)


@contextmanager
def _logs_on_stderr() -> Iterator[None]:
    handler, before = _Handler(), (logger.level, logger.propagate)
    handler.setFormatter(_Format("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    try:
        with warnings.catch_warnings():
            warnings.showwarning = partial(_warned, warnings.showwarning)
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


def numeric(text: str) -> float | str:
    """Return the number that a text is, or the text for an error that names it."""
    try:
        return float(text)
    except ValueError:
        return text
