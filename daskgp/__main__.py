"""Entry point of ``python -m daskgp``, equivalent to the ``daskgp`` command."""

from daskgp.cli import main

if __name__ == "__main__":
    main()
