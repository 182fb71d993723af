"""``python -m ergnn``: the command line."""

import sys

from ergnn.cli import main

sys.exit(main())
