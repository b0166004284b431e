"""``python -m daskgp``, the same as the ``daskgp`` command."""

from daskgp.cli import main

if __name__ == "__main__":
    main()
