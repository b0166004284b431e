"""How a command runs: exit codes, one-line errors, logs on stderr and the cluster it works on."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from daskgp.errors import DaskgpError, InputError, SettingError

if TYPE_CHECKING:
    from daskgp.flow.cluster import Executor

logger = logging.getLogger("daskgp")

F = TypeVar("F", bound=Callable[..., Any])

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130
RESUMABLE = ("fit", "predict")


class Failure(click.ClickException):
    """The one line and the exit code that a command ends with."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Main(click.Group):
    """A group whose commands fail with one plain line on stderr, never with a traceback."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run, and leave the process with the exit code of the outcome."""
        run: Callable[..., Any] = super().main
        if not extra.pop("standalone_mode", True):
            return run(*args, standalone_mode=False, **extra)
        with _logs_on_stderr():
            try:
                code = run(*args, standalone_mode=False, **extra)
            except click.UsageError as error:
                help_line = f" (see `{error.ctx.command_path} --help`)" if error.ctx else ""
                _show(error.format_message() + help_line)
                code = BAD_INPUT
            except click.ClickException as error:
                _show(error.format_message())
                code = error.code if isinstance(error, Failure) else error.exit_code
            except (click.Abort, KeyboardInterrupt):
                _show("interrupted")
                code = INTERRUPTED
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what it raises becomes a `Failure`."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except InputError as error:
            raise _failure(error, str(error), BAD_INPUT) from error
        except DaskgpError as error:
            raise _failure(error, str(error), FAILED) from error
        except KeyboardInterrupt as error:
            remedy = ": the same command with --resume goes on from here"
            line = "interrupted" + (remedy if ctx.invoked_subcommand in RESUMABLE else "")
            raise _failure(error, line, INTERRUPTED) from error
        except Exception as error:
            line = f"the run failed ({type(error).__name__}: {error}); -v logs the traceback"
            raise _failure(error, line, FAILED) from error


def _failure(error: BaseException, line: str, code: int) -> Failure:
    logger.debug("traceback of the error", exc_info=error)
    # such as that a store was kept to go on from
    return Failure("; ".join([line, *getattr(error, "__notes__", ())]), code)


def _show(message: str) -> None:
    click.echo("Error: " + " ".join(message.split()), err=True)


def result(**values: Any) -> None:
    """Print a result as one line of JSON on stdout."""
    click.echo(json.dumps(values, allow_nan=False))


# -- logs ------------------------------------------------------------------------------------


class _Handler(logging.Handler):
    """Writes to what stderr is at the moment, so that a progress bar can stay below."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(self.format(record), err=True)


class _Format(logging.Formatter):
    """Time and level for who asked for logs, a plain line for who did not."""

    def format(self, record: logging.LogRecord) -> str:
        if logger.isEnabledFor(logging.DEBUG):
            return super().format(record)
        return f"{record.levelname.capitalize()}: {record.getMessage()}"


@contextmanager
def _logs_on_stderr() -> Iterator[None]:
    handler, before = _Handler(), (logger.level, logger.propagate)
    handler.setFormatter(_Format("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


def _verbose(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        logger.setLevel(logging.DEBUG)


def verbose_option(command: F) -> F:
    """``-v``, before or after the name of the command."""
    return click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_verbose,
        help="Log what is done to stderr.",
    )(command)


# -- the cluster -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Workers:
    """The options that say where tasks run."""

    scheduler: str | None
    number: int | None
    memory_limit: str | None

    def __post_init__(self) -> None:
        if self.scheduler and (self.number or self.memory_limit):
            raise SettingError(
                "--workers and --memory-limit are for the local cluster: leave them or "
                "--scheduler out"
            )

    @contextmanager
    def executor(self) -> Iterator[Executor]:
        """The cluster at ``--scheduler``, or a local one for as long as the command runs."""
        from daskgp.flow.cluster import Executor, connect

        level = logging.WARNING if logger.isEnabledFor(logging.DEBUG) else logging.CRITICAL
        logging.getLogger("distributed").setLevel(level)
        with connect(
            self.scheduler,
            n_workers=self.number,
            memory_limit=self.memory_limit or "auto",
            log_level=level,
        ):
            yield Executor.current()


def cluster_options(command: F) -> F:
    """``--scheduler``, ``--workers`` and ``--memory-limit``, as arguments of these names."""
    for decorate in (
        click.option(
            "--memory-limit",
            metavar="SIZE",
            help="Memory of each local worker, such as 2GiB.  [default: its share]",
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            metavar="N",
            help="Local worker processes of one thread.  [default: one a core]",
        ),
        click.option(
            "--scheduler",
            metavar="ADDRESS",
            help="Dask scheduler to use, such as tcp://host:8786, instead of a local cluster.",
        ),
    ):
        command = decorate(command)
    return command
