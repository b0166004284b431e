"""Entry point of ``python -m daskgp.cli``, and of the ``daskgp`` command."""

import atexit
import gc

from daskgp.cli import main

SELDOM = 50_000, 20, 50
"""Thresholds of the search for garbage: imports make a million objects, all of which stay."""


def run() -> None:
    """Run the command in a process of its own."""
    gc.set_threshold(*SELDOM)
    atexit.register(gc.freeze)  # the end frees everything: it need not be searched
    main()


if __name__ == "__main__":
    run()
