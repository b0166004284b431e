"""Framework of the commands: exit codes, one-line errors, logs on stderr, and the cluster."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from daskgp.errors import DaskgpError, InputError, SettingError
from daskgp.runtime import ahead

if TYPE_CHECKING:
    from daskgp.posterior.posterior import Posterior
    from daskgp.runtime.executor import Executor
    from daskgp.typing import Device

logger = logging.getLogger("daskgp")

F = TypeVar("F", bound=Callable[..., Any])

BAD_INPUT, FAILED, INTERRUPTED, TERMINATED = 2, 1, 130, 143
RESUMABLE = "predict"
"""The command that can always resume; ``fit`` itself says when it can."""
GOES_ON = "the same command with --resume continues from here"


class Failure(click.ClickException):
    """The line and the exit code that a command ends with."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


class Command(click.Command):
    """Command that rejects blank text instead of taking it for a path or an omitted option."""

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


class Main(click.Group):
    """Group whose commands fail with one plain line on stderr, never with a traceback."""

    command_class = Command

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
        said = "; ".join([*[GOES_ON] * resumable, *notes])
        return code, f"{line}: {said}" if said else line
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
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(message: str) -> None:
    label = click.style(
        "Error:", fg="red", bold=True
    )  # click leaves colours out of files and pipes
    click.echo(f"{label} {' '.join(message.split())}", err=True)


def result(**values: Any) -> None:
    """Print a result as one line of JSON on stdout."""
    click.echo(json.dumps(values, allow_nan=False))


def training_rows(
    source: str,
    target: list[str] | None,
    columns: dict[str, Any],
    ignore_errors: bool = False,
    until: str = "after the fit",
    model: Posterior | None = None,
) -> Callable[[str], AbstractContextManager[tuple[Any, Any, dict[str, int]]]]:
    """Return a context of X, y and what to say of them: of a dataset store, or converted to one.

    ``columns`` are named for sources with a ``target`` alone, which are converted at a URL for a
    time that ``until`` tells, as the training rows of a ``model`` were; stores may be given
    ``geographic``, too.
    """
    from daskgp.data import open_dataset
    from daskgp.fit import named

    if target is None:
        named_here = (name for name, value in columns.items() if value is not None)
        option = next((name for name in named_here if name != "geographic"), None)
        if option is not None:
            raise SettingError(
                f"--{option.replace('_', '-')} names a column of a grid or a table: give its "
                "--target too; a dataset store names its own columns"
            )
        named.refuse_unnamed(source)
        stored: tuple[Any, Any, dict[str, int]] = (*open_dataset(source), {})
        return lambda url: nullcontext(stored)
    errors = [name for name in ("y_std", "y_variance", "weight") if columns[name] is not None]
    if ignore_errors and errors:
        raise SettingError(
            f"--ignore-errors leaves out --{errors[0].replace('_', '-')}: give one of them"
        )
    rows = named.Named(source, target, **columns)
    if model is not None:
        rows = rows.like(model.columns, model.feature_units)

    @contextmanager
    def converted(url: str) -> Iterator[tuple[Any, Any, dict[str, int]]]:
        with rows.converted(url) as (X, y, found):
            note(f"{source} was converted to {url}, which is removed {until}")
            yield X, y, {"skipped": found.skipped}

    return converted


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
        return (
            f"{click.style(f'{record.levelname.capitalize()}:', fg=colour)} {record.getMessage()}"
        )


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


def _verbose(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        logger.setLevel(logging.DEBUG)


def _quiet(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from daskgp.runtime.progress import silent  # the help is instant without

        logger.setLevel(logging.ERROR)
        ctx.with_resource(silent())


def note(message: str) -> None:
    """Say on stderr what is done, unless the command is quiet."""
    if logger.isEnabledFor(logging.WARNING):
        click.echo(message, err=True)


def verbose_option(command: F) -> F:
    """Add ``-v`` and ``-q``, accepted before or after the name of the command."""
    verbose = click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_verbose,
        help="Log what is done to stderr.",
    )
    quiet = click.option(
        "-q",
        "--quiet",
        is_flag=True,
        expose_value=False,
        callback=_quiet,
        help="Show errors and the result alone: no warnings, no progress.",
    )
    return verbose(quiet(command))


# -- the cluster -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Workers:
    """Options that say where tasks run."""

    scheduler: str | None
    number: int | None
    memory_limit: str | None

    def __post_init__(self) -> None:
        if self.scheduler and (self.number or self.memory_limit):
            raise SettingError(
                "--workers and --memory-limit are for the local cluster: leave them or "
                "--scheduler out"
            )

    @property
    def chosen(self) -> bool:
        """Return True if an option asks for a cluster."""
        return bool(self.scheduler or self.number or self.memory_limit)

    def come(self, *modules: str) -> None:
        """Begin to start a local cluster, whose workers get modules while the command imports."""
        if not self.scheduler:
            ahead.start("daskgp.cli.workers", *modules)

    @contextmanager
    def executor(self, device: Device = "cpu", start: bool = True) -> Iterator[Executor]:
        """Yield the cluster at ``--scheduler``, or a local one for as long as the command runs.

        Without ``start``, no local cluster is started and this process is used.
        """
        from daskgp.runtime.connect import connect
        from daskgp.runtime.executor import Executor, chosen

        if not (start or self.scheduler):
            yield Executor.current(device=device)
            return
        level = logging.WARNING if logger.isEnabledFor(logging.DEBUG) else logging.CRITICAL
        logging.getLogger("distributed").setLevel(level)
        with connect(
            self.scheduler,
            n_workers=self.number,
            memory_limit=self.memory_limit or "auto",
            log_level=level,
            device=device,
        ):
            executor = Executor.current(device=device)
            if logger.isEnabledFor(logging.INFO):
                logger.info("tasks compute on the %s", chosen(executor, device))
            yield executor
