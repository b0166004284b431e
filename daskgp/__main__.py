"""Entry point of ``python -m daskgp``, equivalent to the ``daskgp`` command."""

from daskgp.cli.__main__ import run

if __name__ == "__main__":
    run()
