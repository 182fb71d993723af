"""Your own graph: read from files, data frames and Arrow tables, and cut into a stream of tasks.

No file runs code, and none holds more than :class:`Limits` allow. Whatever is wrong with a file is a
:class:`~ergnn.config.errors.FormatError` that names the file, the column, the row, the value and what is allowed.
"""

from ergnn.config.errors import FormatError
from ergnn.config.limits import Limits
from ergnn.data.tables.columns import Columns
from ergnn.data.tables.named_graph import NamedGraph, cut, from_graph, to_graph
from ergnn.data.tables.node_tables import EdgeTable, NodeTable
from ergnn.data.tables.npz import read_graph
from ergnn.data.tables.read import read_edges, read_nodes, read_tables, write_edges, write_nodes

__all__ = [
    "Columns",
    "EdgeTable",
    "FormatError",
    "Limits",
    "NamedGraph",
    "NodeTable",
    "cut",
    "from_graph",
    "read_edges",
    "read_graph",
    "read_nodes",
    "read_tables",
    "to_graph",
    "write_edges",
    "write_nodes",
]
