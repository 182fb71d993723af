import warnings
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import to_undirected

from ergnn import ContinualNodeClassifier, Learner
from ergnn.config.errors import InputError
from ergnn.data import Graph, Task
from graphs import graphs, sparse_x


def tiny(sparse: bool = False, **changes: torch.Tensor) -> Graph:
    x = torch.tensor([[1.0, 3.0, 0.0], [0.0, 0.0, 0.0], [0.0, 2.0, 2.0]])
    graph = Graph(x, torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1, -1]), name="tiny")
    graph = replace(graph, **changes)
    return sparse_x(graph) if sparse else graph


@settings(max_examples=40, deadline=None)
@given(graphs(), st.data())
def test_rows_are_those_of_the_dense_features(graph: Graph, data: st.DataObject) -> None:
    nodes = torch.tensor(data.draw(st.lists(st.integers(0, graph.num_nodes - 1))), dtype=torch.long)
    assert torch.equal(graph.rows(nodes), graph.dense_x()[nodes])
    selected = graph.select_x(nodes)
    assert selected.layout == graph.x.layout
    assert torch.equal(selected.to_dense() if graph.is_sparse else selected, graph.dense_x()[nodes])


def test_selected_sparse_rows_have_sorted_columns_and_no_zeros() -> None:
    pointers, columns, values = (
        torch.tensor([0, 3, 3, 5]),
        torch.tensor([4, 0, 2, 3, 1]),
        torch.tensor([1.0, 2, 0, 3, 4]),
    )
    x = torch.sparse_csr_tensor(pointers, columns, values, (3, 5), check_invariants=False)
    found = Graph(x, torch.empty(2, 0).long(), torch.zeros(3).long()).select_x(torch.tensor([2, 0, 1]))
    assert found.crow_indices().tolist() == [0, 2, 4, 4]
    assert found.col_indices().tolist() == [1, 3, 0, 4]
    assert found.values().tolist() == [4, 3, 2, 1]


@pytest.mark.parametrize("sparse", [False, True])
def test_row_normalization_divides_by_the_sum_and_keeps_empty_rows(sparse: bool) -> None:
    graph = tiny(sparse)
    expected = torch.tensor([[0.25, 0.75, 0.0], [0.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    assert torch.equal(graph.row_normalized().dense_x(), expected)
    assert graph.row_normalized().is_sparse == sparse
    assert graph.dense_x()[0, 1] == 3  # nobody writes to a graph


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.ones(2, 3)}, r"tiny: x has shape \(2, 3\); expected \[3, features\] as y has 3 nodes"),
        ({"edge_index": torch.zeros(3, 2).long()}, r"tiny: edge_index has shape \(3, 2\); expected \[2, edges\]"),
        ({"edge_weight": torch.ones(3)}, r"float32 of shape \(3,\); expected floats of shape \[2\], one per edge"),
        ({"y": torch.zeros(3)}, r"must be int64; got torch\.int64 and torch\.float32"),
        ({"edge_index": torch.zeros(2, 1).int()}, r"must be int64; got torch\.int32 and torch\.int64"),
    ],
)
def test_shapes_are_checked_at_once(changes: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tiny(**changes)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_features_that_are_not_finite_name_the_node(sparse: bool, value: float) -> None:
    x = torch.ones(3, 3)
    x[2, 1] = value
    with pytest.raises(InputError, match=r"tiny: NaN or infinite features on 1 node\(s\), the first is node 2"):
        tiny(sparse, x=x).validate()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edge_index": torch.tensor([[0], [3]])}, "tiny: an edge contains node 3; nodes are 0 to 2"),
        ({"edge_index": torch.tensor([[-1], [0]])}, "tiny: an edge contains node -1; nodes are 0 to 2"),
        ({"edge_weight": torch.tensor([1.0, -0.5])}, "tiny: an edge has weight -0.5; weights must be finite, 0 or"),
        ({"edge_weight": torch.tensor([torch.nan, 1.0])}, "tiny: an edge has weight nan"),
        ({"y": torch.tensor([0, -2, 1])}, "tiny: label -2 is out of range; labels are 0, 1, 2"),
    ],
)
def test_values_out_of_range_are_named(changes: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tiny(**changes).validate()


def test_a_graph_without_nodes_is_rejected() -> None:
    empty = Graph(torch.ones(0, 2), torch.zeros(2, 0).long(), torch.zeros(0).long(), name="void")
    with pytest.raises(InputError, match="void: the graph has no nodes"):
        empty.validate()


def test_from_pyg_reads_masks_as_the_public_split() -> None:
    masks = torch.eye(3, dtype=torch.bool)
    data = Data(
        x=torch.ones(3, 2),
        edge_index=torch.tensor([[0], [1]]),
        y=torch.tensor([[0], [1], [1]]),
        train_mask=masks[2],
        val_mask=masks[0],
        test_mask=masks[1],
    )
    graph = Graph.from_pyg(data, "mine")
    assert graph.y.tolist() == [0, 1, 1]
    parts = (graph.public_split.train, graph.public_split.val, graph.public_split.test)
    assert [part.tolist() for part in parts] == [[2], [0], [1]]
    del data.val_mask
    assert Graph.from_pyg(data).public_split is None


def test_from_pyg_reads_edge_weights_but_no_edge_features() -> None:
    data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([0, 1, 1]))
    data.edge_attr = torch.ones(2)
    assert Graph.from_pyg(data).edge_weight is None
    data.edge_weight = torch.tensor([2, 3])
    graph = Graph.from_pyg(data)
    assert graph.edge_weight.tolist() == [2.0, 3.0]
    assert graph.to("cpu").edge_weight is not None
    assert graph.unweighted().edge_weight is None
    assert tiny().unweighted().edge_weight is None


def test_without_x_features_follow_from_the_edges() -> None:
    data = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), y=torch.tensor([0, 1, 0]))
    with pytest.warns(UserWarning, match="mine: no features x; models read log degree"):
        graph = Graph.from_pyg(data, "mine")
    degree_columns = graph.dense_x()[:, -20:-4]
    torch.testing.assert_close(degree_columns[0], degree_columns[2])  # both have one neighbor
    assert not torch.equal(degree_columns[0], degree_columns[1])
    assert not torch.equal(graph.dense_x()[0], graph.dense_x()[2])  # their ids differ


@pytest.mark.parametrize("key", ["edge_index", "y"])
def test_from_pyg_names_what_is_missing(key: str) -> None:
    data = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
    data[key] = None
    with pytest.raises(InputError, match=f"mine: a Data without '{key}'; a PyG Data with edge_index and y is needed"):
        Graph.from_pyg(data, "mine")


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (torch.tensor([0.2, 1.7, 3.0]), r"mine: y is torch.float32, numbers to predict \(regression\)"),
        (torch.eye(3).long(), r"mine: y has shape \[3, 3\], several labels per node \(multi-label\)"),
    ],
)
def test_from_pyg_refuses_labels_that_are_not_one_class_per_node(y: torch.Tensor, message: str) -> None:
    data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [1, 0]]), y=y)
    with pytest.raises(InputError, match=message):
        Graph.from_pyg(data, "mine")
    with pytest.raises(InputError, match=message.replace("mine", "X")):
        ContinualNodeClassifier().fit(data)


def test_heterogeneous_graphs_are_refused() -> None:
    data = HeteroData({"a": {"x": torch.ones(2, 2)}, ("a", "to", "a"): {"edge_index": torch.tensor([[0], [1]])}})
    with pytest.raises(InputError, match="mine: a HeteroData has several types of nodes or edges"):
        Graph.from_pyg(data, "mine")
    with pytest.raises(InputError, match="X: a HeteroData has several types of nodes or edges"):
        ContinualNodeClassifier().fit(data, y=[0, 1])


def test_from_pyg_warns_about_labels_from_1_and_edges_in_one_direction(recwarn: pytest.WarningsRecorder) -> None:
    edges = torch.stack([torch.arange(9), torch.arange(1, 10)])
    data = Data(x=torch.ones(10, 2), edge_index=torch.cat([edges, edges[:, :2].flip(0)], 1), y=torch.arange(10) % 6 + 1)
    Graph.from_pyg(data, "mine")
    assert [str(warning.message) for warning in recwarn] == [
        "mine: 64 % of the edges have one direction only, and messages pass along edges; for an undirected graph, use "
        "torch_geometric.utils.to_undirected(data.edge_index)",
        "mine: no node has class 0; labels start at 1",
    ]
    assert {warning.filename for warning in recwarn} == {__file__}
    recwarn.clear()
    ContinualNodeClassifier().fit(data)
    assert "X: 64 % of the edges have one direction only" in str(recwarn.pop(UserWarning).message)
    recwarn.clear()
    Graph.from_pyg(Data(x=data.x, edge_index=to_undirected(edges), y=data.y - 1))
    assert not list(recwarn)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_feature_that_dominates_is_named_where_features_are_read_as_they_are(sparse: bool) -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(40, 5, generator=rng)
    large = torch.cat([x, 1e4 * (1 + x[:, :1])], 1)
    edges, y = torch.tensor([[0, 1], [1, 0]]), torch.arange(40) % 2
    graph = Graph(large.to_sparse_csr() if sparse else large, edges, y, "mine")
    task = Task(0, graph, *torch.arange(40).split([20, 10, 10]), (0, 1))
    for learner in (Learner("gcn", "finetune", epochs=1), Learner("sgc", "analytic", head="growing", scale="rows")):
        with pytest.warns(UserWarning, match=r"mine: feature 5 is 100\.0 % of the length of most rows"):
            learner.observe(task)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", message="Sparse CSR")
        Learner("sgc", "analytic", head="growing").observe(task)
        Learner("gcn", "finetune", epochs=1).observe(replace(task, graph=replace(task.graph, x=x)))
