"""Options of scripts, as the command line gives them."""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple

import click

Options = SimpleNamespace
"""Values of a script's options: out, folder, threads, limit, tiny and its own."""
Keys = Iterator[dict[str, Any]]


class Some(NamedTuple):
    """Names that an option takes, and those it takes by default."""

    known: Collection[str]
    default: Collection[str]


def option_of(name: str, value: Any) -> Callable:
    """Return a script's own option."""
    if value is False:
        return click.option(name, is_flag=True)
    if not isinstance(value, (str, Some)) and isinstance(value, Collection):
        value = list(value) if isinstance(value, dict) else value
        if all(isinstance(word, str) for word in value):
            value = Some(value, value)
    if isinstance(value, Some):
        return click.option(
            name,
            default=",".join(value.default),
            show_default=True,
            callback=lambda ctx, option, text: names_in(text, value.known),
        )
    full, tiny = value if isinstance(value, tuple) else (value, value)

    def chosen(ctx: click.Context, option: click.Parameter, text: str | None) -> Any:
        default = tiny if ctx.params["tiny"] else full
        return default if text is None else value_in(text, tiny)

    shown = (
        "all" if full is None else ",".join(map(str, full if isinstance(full, list) else [full]))
    )
    return click.option(name, callback=chosen, help=f"Default: {shown}.")


def names_in(text: str, known: Collection[str]) -> list[str]:
    """Return names that are separated by commas; each is a known one."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in known:
            raise click.BadParameter(f"{word!r} is none of {', '.join(known)}")
    return words


def value_in(text: str, like: Any) -> Any:
    """Return a text, a number or a list of numbers, as an example is; none is below 0."""
    if isinstance(like, str):
        return text
    try:
        values = [type(like[0] if isinstance(like, list) else like)(w) for w in text.split(",")]
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if min(values) < 0 or (len(values) > 1 and not isinstance(like, list)):
        raise click.BadParameter(f"{text!r}: give numbers from 0 on like {like}")
    return values if isinstance(like, list) else values[0]


def runs(options: Options, sizes: str = "", **lists: Iterable) -> Keys:
    """Yield the keys of all combinations of some lists, with the sizes that they share."""
    shared = {name: getattr(options, name) for name in sizes.split()}
    for values in product(*lists.values()):
        yield dict(zip(lists, values, strict=True)) | shared
