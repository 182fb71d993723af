"""Write the tables of the example: customers with columns of every kind, and payments between them, in four weeks.

python examples/customers/make_files.py FOLDER [--customers 4000] [--seed 0]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ergnn.folder.example import make_customers, write_files

__all__ = ["make_customers", "write_files"]

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--customers", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    write_files(args.folder, args.customers, args.seed)
