"""What a person reads: tables as text, Markdown and LaTeX, and the paper's numbers beside ours."""

from ergnn.report.paper import PaperResult, paper_result
from ergnn.report.tables import Table, accuracy_table, measure_table, run_table

__all__ = ["PaperResult", "Table", "accuracy_table", "measure_table", "paper_result", "run_table"]
