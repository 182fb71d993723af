"""Options made from a dataclass and its documentation."""

from __future__ import annotations

import argparse
import json
import re
from typing import Any


def argument_texts(doc: str) -> dict[str, str]:
    """Field → text, from the ``Args:`` of a docstring."""
    section = doc.partition("Args:")[2]
    found = re.findall(r"^\s{8}(\w+): (.+(?:\n\s{12,}.+)*)", section, flags=re.MULTILINE)
    return {name: " ".join(text.replace("``", "").split()) for name, text in found}


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
