"""The command line: ``undertone`` or ``python -m undertone``."""

import sys

from . import _engine


def main() -> None:
    """Runs the command and exits with its code."""
    sys.exit(_engine.main(["undertone", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
