"""Remove Sphinx roles such as :class:`X` from docstrings, so that pages show only the name."""

import re
from typing import Any


def on_page_content(html: str, **_: Any) -> str:
    return re.sub(r":(?:class|func|meth|mod|attr|data):(?=<code>)", "", html)
