"""Tables as text, Markdown, LaTeX and HTML, figures, and the HTML page of a run store."""

from ergnn.report.table import Table
from ergnn.report.tables import accuracy_table, measure_table, run_table

__all__ = ["Table", "accuracy_table", "measure_table", "run_table"]
