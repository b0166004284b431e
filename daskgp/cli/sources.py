"""Training and test rows of a command: a dataset store, or columns of a source by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from daskgp.cli.options import SETTINGS, read_fills
from daskgp.cli.run import note
from daskgp.errors import SettingError

if TYPE_CHECKING:
    from daskgp.estimators import GaussianProcess
    from daskgp.posterior.posterior import Posterior

Rows = Callable[[str], AbstractContextManager[tuple[Any, Any, dict[str, int]]]]
"""Context of X, y and what a result adds about them; a source is converted at the URL."""


def training_rows(
    source: str,
    columns: dict[str, Any],
    ignore_errors: bool = False,
    until: str = "after the fit",
    model: Posterior | None = None,
) -> Rows:
    """Return the rows of a dataset store, or of a source whose columns have a ``target``.

    Others are named for sources alone, which are converted for a time that ``until`` tells, as the
    training rows of a ``model`` were; stores may be given ``SETTINGS``, too.
    """
    from daskgp.data import open_dataset
    from daskgp.fit import named

    if columns["target"] is None:
        own = (name for name, value in columns.items() if value is not None)
        option = next((name for name in own if name not in SETTINGS), None)
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
    rows = named.Named(source, **columns)
    if model is not None:
        rows = rows.like(model.columns, model.feature_units, model.target_names)

    @contextmanager
    def converted(url: str) -> Iterator[tuple[Any, Any, dict[str, int]]]:
        with rows.converted(url) as (X, y, conversion):
            note(f"{source} was converted to {url}, which is removed {until}")
            yield X, y, {"skipped": conversion.skipped}

    return converted


def left_out(given: int, used: int, more: dict[str, int]) -> dict[str, int]:
    """Return what a result adds about rows or values: how many of them were not used."""
    return more | {"skipped": more.get("skipped", 0) + given - used}


def rows_to_compare(model: GaussianProcess, source: str, columns: dict[str, Any]) -> Rows:
    """Return rows to compare predictions with, by default features and targets of the model.

    The model reads as missing what ``--fill`` gives, too.
    """
    from daskgp.data import beside_in_store, open_dataset
    from daskgp.fit import named
    from daskgp.models.columns import refuse_other

    posterior = read_fills(model, columns["fill_values"])
    columns = columns | {"fill_values": model.fill_values}
    if columns["target"] is None and named.is_table_or_grid(source):
        columns |= {"target": list(posterior.target_names)}
    names = columns["features"] or posterior.feature_names
    refuse_other(columns["geographic"], names, posterior.columns)
    rows = training_rows(source, columns, until="again", model=posterior)
    if columns["target"] is None:
        present = {*beside_in_store(open_dataset(source)[1])}
    else:
        present = {name for name, value in columns.items() if value is not None}
    model._fitted.refuse_without_columns(present, {})
    return rows
