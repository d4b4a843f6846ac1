"""`python -m tailrace` is the `tailrace` command."""

import sys

from tailrace.cli import main

if __name__ == "__main__":
    sys.exit(main())
