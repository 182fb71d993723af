# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your own PyG model with replay
#
# Six communities arrive in three tasks of two classes. A GCN that trains on one task after another forgets the earlier ones;
# the same GCN with one stored node per class forgets less. The matrix shows it.

# %%
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import stochastic_blockmodel_graph

import ergnn
from ergnn.data import splits

torch.manual_seed(0)
y = torch.arange(6).repeat_interleave(60)
edge_index = stochastic_blockmodel_graph([60] * 6, 0.002 + 0.1 * torch.eye(6))
x = torch.randn(6, 16)[y] + 4 * torch.randn(y.numel(), 16)
graph = ergnn.Graph.from_pyg(Data(x=x, edge_index=edge_index, y=y), name="communities")
split = splits.per_class(graph.y, train=10, val=10, seed=0)
stream = ergnn.TaskStream.from_classes(graph, classes_per_task=2, split=split)
stream

# %% [markdown]
# Any module with `forward(x, edge_index)` works. `embed` is only needed by selectors in embedding space.


# %%
class MyGNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = GCNConv(16, 32), GCNConv(32, 6)

    def embed(self, x, edge_index):
        return F.relu(self.first(x, edge_index))

    def forward(self, x, edge_index):
        return self.last(self.embed(x, edge_index), edge_index)


def learn(method, **options):
    learner = ergnn.Learner(MyGNN(), method=method, head="shared", epochs=100, lr=0.01, **options)
    return learner, ergnn.evaluate_stream(learner, stream)


# %% [markdown]
# Row i, column j: accuracy on task j after learning task i. Below the diagonal is what was learned before.

# %%
_, forgetting = learn("finetune")
forgetting.plot()

# %%
learner, replayed = learn("replay", selector="mf*", per_class=2)
replayed.plot()

# %%
replayed

# %% [markdown]
# PM is the mean accuracy on each task right after learning it, FM the mean drop since then, AA the accuracy at the end.
# What is stored are twelve nodes:

# %%
learner.method.buffer.nodes

# %% [markdown]
# With the task unknown, the closed form needs no training and forgets nothing:

# %%
closed = ergnn.Learner(method="analytic", head="growing")
ergnn.evaluate_stream(closed, stream)

# %% [markdown]
# A learner is kept in one file without code in it.

# %%
path = Path(tempfile.mkdtemp()) / "closed.safetensors"
closed.save(path, graph=True)
ergnn.Learner.load(path)
