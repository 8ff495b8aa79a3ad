"""``python -m afspark`` is the command line."""

import sys

from afspark.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
