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
# # Why this class, and which labels look wrong
#
# The closed form answers both exactly: a score is a sum over labeled nodes, and the head without a label is known without
# solving it again.

# %%
import pandas as pd
import torch

from ergnn import Learner, make_stream

(task,) = make_stream("cora", split="0.6/0.2/0.2", classes_per_task=7).stream
graph = task.graph
learner = Learner("sgc", "analytic", head="growing", kernel="linear")
learner.observe(task)
learner

# %% [markdown]
# The labeled nodes that count most for one paper. Each adds its term to the score of its own class.

# %%
node = int(task.test[0])
why = learner.explain(node)
top = why.order[:5]
labels = [graph.class_names[int(graph.y[why.nodes[i]])] for i in top]
print("class", graph.class_names[int(why.classes[why.best])], "margin", round(float(why.margin), 3))
pd.DataFrame({"labeled node": why.nodes[top].tolist(), "label": labels, "term": why.terms[top].tolist()}).round(4)

# %% [markdown]
# Give 5 % of the labels another class, and look for them: `audit` sorts labels by the probability that they have if they are
# left out. With a random order, 5 % of the first labels would be wrong.

# %%
order = torch.randperm(task.train.numel(), generator=torch.Generator().manual_seed(0))
wrong = task.train[order[: task.train.numel() // 20]]
graph.y[wrong] = (graph.y[wrong] + 1) % graph.num_classes
learner = Learner("sgc", "analytic", head="growing", kernel="linear")
learner.observe(task)
doubts = learner.audit()
first = doubts.nodes[doubts.order()[: wrong.numel()]]
print(f"{int(torch.isin(first, wrong).sum())} of {wrong.numel()} wrong labels are among the first {wrong.numel()}")

# %% [markdown]
# The same for a folder of tables: which customers, distances and columns decide.

# %%
import tempfile
from html import escape
from pathlib import Path

from IPython.display import HTML

from ergnn.cli.main import main
from ergnn.folder.example import write_files

files = Path(tempfile.mkdtemp())
write_files(files, count=800, new=5)
folder = str(files / "learner")
main(["init", folder])
for week in (1, 2):
    main(["observe", folder, "--nodes", str(files / f"nodes_{week}.csv"), "--edges", str(files / f"edges_{week}.csv")])

# %%
(files / "ask.csv").write_text("id\nc0\n")
main(["explain", folder, "--nodes", str(files / "ask.csv"), "-o", str(files / "why.html")])
page = escape((files / "why.html").read_text(encoding="utf-8"))
HTML(f'<div><iframe srcdoc="{page}" width="100%" height="700"></iframe></div>')

# %%
_ = main(["audit", folder, "--count", "5"])
