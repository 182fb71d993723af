"""Tables as text, Markdown, LaTeX and HTML, figures, and the HTML page of a run store."""

from ergnn.pages.table import Table
from ergnn.pages.tables import accuracy_table, measure_table, run_table

__all__ = ["Table", "accuracy_table", "measure_table", "run_table"]
