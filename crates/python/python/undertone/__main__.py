"""The command line: ``undertone`` or ``python -m undertone``."""

import sys

from . import _engine


def main() -> None:
    """Runs the command and exits with its code."""
    own = [sys.executable, "-m", "undertone"]
    sys.exit(_engine.main(["undertone", *sys.argv[1:]], own))


if __name__ == "__main__":
    main()
