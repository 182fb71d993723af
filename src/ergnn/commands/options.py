"""Values of command line options."""

from __future__ import annotations

import argparse
import json
from typing import Any


def key_values(text: str) -> dict[str, Any]:
    """``a=1,b=x`` as a dictionary, with numbers and true/false read as such."""
    options = {}
    for part in filter(None, text.split(",")):
        key, separator, value = part.partition("=")
        if not separator or not key:
            raise argparse.ArgumentTypeError(f"{part!r} is not KEY=VALUE")
        try:
            options[key.strip().replace("-", "_")] = json.loads(value)
        except json.JSONDecodeError:
            options[key.strip().replace("-", "_")] = value
    return options
