"""`python -m eaglechat` is the console script."""

import sys

from eaglechat.cli import main

if __name__ == "__main__":
    sys.exit(main())
