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
# # Your own growing graph
#
# A table of customers and one of payments grow every week. A learner in a folder reads them as they are, predicts who will
# churn, and forgets a customer exactly. Everything here runs in memory and in files below one folder, without training.

# %%
import tempfile
from pathlib import Path

import pandas as pd

from ergnn.folder import LearnerFolder, Settings
from ergnn.folder.example import write_files

files = Path(tempfile.mkdtemp())
write_files(files, count=800, new=5)
pd.read_csv(files / "nodes_1.csv").head(3)

# %% [markdown]
# Numbers, categories, dates, free text and missing values: nothing has to be prepared. The first update decides what each
# column is.

# %%
folder = LearnerFolder.create(files / "learner", Settings())
record = folder.observe(pd.read_csv(files / "nodes_1.csv"), pd.read_csv(files / "edges_1.csv"), name="week 1")
pd.DataFrame(record["columns"], columns=["column", "kind", "because", "becomes"]).set_index("column")

# %% [markdown]
# Three more weeks. After each, all customers who were held out so far are scored again.

# %%
rows = {}
for week in (2, 3, 4):
    nodes, edges = (pd.read_csv(files / f"{name}_{week}.csv") for name in ("nodes", "edges"))
    record = folder.observe(nodes, edges, name=f"week {week}")
    rows[record["name"]] = record["overall"]
pd.DataFrame(rows).T.drop(columns=["warnings"], errors="ignore")

# %% [markdown]
# Predict customers who are not in the graph yet; their payments are used for this prediction only.

# %%
new, payments = pd.read_csv(files / "new.csv"), pd.read_csv(files / "new_edges.csv")
((ids, classes, probabilities),) = folder.predict(nodes=new, edges=payments)
pd.DataFrame(probabilities, index=ids, columns=classes).round(3)

# %% [markdown]
# Remove a customer. The model is solved again from what is left, so nothing depends on her any more: the certificate says
# how far its probabilities are from those of a model that never saw her.

# %%
report = folder.forget(["c0"], purge=True, certificate=files / "gone.json")
{name: report[name] for name in ("nodes", "edges", "exact")}

# %%
pd.read_json(files / "gone.json", typ="series").get("largest_difference")

# %% [markdown]
# The page of the folder, as `ergnn inspect` writes it: accuracy after every update, classes, drift, versions, history.

# %%
from html import escape

from IPython.display import HTML

from ergnn.cli.main import main

main(["inspect", str(folder.root), "-o", str(files / "learner.html")])
page = escape((files / "learner.html").read_text(encoding="utf-8"))
HTML(f'<div><iframe srcdoc="{page}" width="100%" height="600"></iframe></div>')
