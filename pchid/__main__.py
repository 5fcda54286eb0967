"""`python -m pchid` is `pchid`."""

import sys

from pchid.cli import main

if __name__ == "__main__":
    sys.exit(main())
