"""Values as messages show them."""

from __future__ import annotations

import reprlib
from typing import Any

LONGEST = 100
"""Characters of a value that a message shows."""


class _Short(reprlib.Repr):
    """``reprlib``, which says the shape of an array instead of its numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = LONGEST
        self.maxlevel = 3

    def repr_instance(self, x: Any, level: int) -> str:
        shape = getattr(x, "shape", None)
        if isinstance(shape, tuple) and shape:
            return f"<{type(x).__name__} of shape {shape}>"
        return super().repr_instance(x, level)


_SHORT = _Short()


def shown(value: Any) -> str:
    """Return a value as messages show it: on one line, a long one without its middle.

    Examples
    --------
    >>> shown("auto"), shown(list(range(10_000)))
    ("'auto'", '[0, 1, 2, 3, 4, 5, ...]')
    """
    text = " ".join(_SHORT.repr(value).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
