"""HTML pages that need nothing else: style, script and figures are inside; templates of plain text."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from typing import Any

from ergnn import __version__
from ergnn.pages.table import percent


def render_page(template: str, package: str = "ergnn.pages", **values: Any) -> str:
    """Render a template of a package, which may extend those of ``ergnn.pages``.

    Text is escaped; a :class:`~ergnn.pages.figures.Drawing` is inserted as an element. Templates of plain text (.txt)
    escape nothing.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in dict.fromkeys((package, "ergnn.pages"))]),
        autoescape=lambda name: not str(name).endswith(".txt"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "commas": "{:,}".format}
    environment.filters["minus"] = lambda text: re.sub(r"(?<![\w)])-(?=\d)", "−", text)
    environment.filters["pretty"] = lambda value: json.dumps(value, indent=2, ensure_ascii=False)
    made = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return environment.get_template(template).render(version=__version__, made=made, **values)
