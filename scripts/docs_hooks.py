"""Docstrings name things as :class:`X`, for people who read the source; pages show just the name."""

import re
from typing import Any


def on_page_content(html: str, **_: Any) -> str:
    return re.sub(r":(?:class|func|meth|mod|attr|data):(?=<code>)", "", html)
