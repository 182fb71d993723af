"""Your own graph: read from files, data frames and Arrow tables, and cut into a stream of tasks.

No file runs code, and none holds more than :class:`Limits` allow. Whatever is wrong with a file is a
:class:`~ergnn.errors.FormatError` that names the file, the column, the row, the value and what is allowed.
"""

from typing import TYPE_CHECKING

from ergnn.data.formats.columns import Columns
from ergnn.data.formats.limits import Limits
from ergnn.data.formats.networkx import from_networkx
from ergnn.data.formats.read import read_edges, read_graph, read_nodes
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.data.formats.write import write_edges, write_nodes
from ergnn.errors import FormatError
from ergnn.lazy import lazy_names

if TYPE_CHECKING:
    from ergnn.data.cutting import cut
    from ergnn.data.named_graph import NamedGraph, from_graph, to_graph

__all__ = [
    "Columns",
    "EdgeTable",
    "FormatError",
    "Limits",
    "NamedGraph",
    "NodeTable",
    "cut",
    "from_graph",
    "from_networkx",
    "read_edges",
    "read_graph",
    "read_nodes",
    "to_graph",
    "write_edges",
    "write_nodes",
]

__getattr__ = lazy_names(
    __name__,
    {"ergnn.data.cutting": ("cut",), "ergnn.data.named_graph": ("NamedGraph", "from_graph", "to_graph")},
)
