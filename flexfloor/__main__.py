"""`python -m flexfloor`: the command line, also for `torchrun -m`."""

import sys

from flexfloor.cli import main

if __name__ == "__main__":
    sys.exit(main())
