"""Columns in the names of folders, ``year=2020/month=1/part.parquet``, as Hive writes them.

They are the same in all rows of a file.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import unquote

import numpy as np

from daskgp.data import grids
from daskgp.data.convert.table import MISSING, NUMBERS, TIMES, Kind, Names, Other, Table, refusing
from daskgp.data.convert.tables import ISO
from daskgp.errors import InputError

NOTHING = ("__HIVE_DEFAULT_PARTITION__", "")
"""Values that stand for a missing one."""

Pairs = tuple[tuple[str, str], ...]
"""Names of columns and their values as text."""


def pairs_in(path: str) -> Pairs:
    """Return the columns in the names of the folders of a path."""
    folders = path.split("/")[:-1]
    found = (re.fullmatch(r"([^=]+)=(.*)", unquote(folder)) for folder in folders)
    return tuple((pair[1], pair[2]) for pair in found if pair)


def with_pairs(table: Table, pairs: Pairs, chosen: Names, source: str) -> Table:
    """Return the table of a file with the columns in the names of its folders; its own come first.

    Those that are ``chosen`` are features where nobody names these.

    Raises
    ------
    InputError
        By ``blocks``, if no column of the file itself is asked for.
    """
    texts = {name: value for name, value in pairs if name not in table.columns}
    if not texts:
        return table
    constants = {name: _constant(value) for name, value in texts.items()}

    def kinds(names: Names) -> dict[str, str]:
        own = table.kinds(tuple(name for name in names if name not in texts))
        found = {name: kind for name, (kind, _) in constants.items()}
        folders = refusing(source, found, table.targets)
        own |= folders(tuple(name for name in names if name in texts))
        return {name: own[name] for name in names}

    def blocks(kinds: Mapping[str, Kind], rows: int) -> Iterator[np.ndarray]:
        own = {name: kind for name, kind in kinds.items() if name not in texts}
        if not own:
            raise InputError(
                f"the columns {', '.join(kinds)} come only from names of folders: name a column "
                f"that is in {source} too"
            )
        places = [list(own).index(name) if name in own else None for name in kinds]
        values = [constants[name][1] if name in constants else 0.0 for name in kinds]
        for block in table.blocks(own, rows):
            whole = np.empty((len(block), len(kinds)))
            for j, (place, value) in enumerate(zip(places, values, strict=True)):
                whole[:, j] = value if place is None else block[:, place]
            yield whole

    names = (*table.columns, *texts)
    defaults = (*table.defaults, *(name for name in texts if name in chosen))
    return replace(table, columns=names, defaults=defaults, kinds=kinds, blocks=blocks)


def _constant(text: str) -> tuple[str | Other, float]:
    """Return the kind and the value of a column in the name of a folder; times as days."""
    if text in NOTHING:
        return MISSING, np.nan
    try:
        return NUMBERS, float(text)
    except ValueError:
        pass
    if re.match(ISO, text):
        try:
            return TIMES, float(grids._as_float(np.array(text, "M8[s]")))
        except ValueError:
            pass
    return Other(f"holds text such as {text!r} in the names of folders"), np.nan
