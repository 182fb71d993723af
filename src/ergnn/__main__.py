"""``python -m ergnn``: the command line."""

import sys

from ergnn.cli.main import main

sys.exit(main())
