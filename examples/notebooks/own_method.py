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
# # Your own method against the others
#
# A method is one class with a decorator. This one is replay whose remembered nodes count twice; the contract suite checks it,
# and a comparison trains it beside other methods with equal memory and equal search.

# %%
import tempfile

import pandas as pd

import ergnn
from ergnn.methods.replay import Replay
from ergnn.testing import check_method


@ergnn.METHODS.register("double-replay", help="replay whose remembered nodes count twice")
class DoubleReplay(Replay):
    """Replay; the weights of remembered nodes are doubled.

    Args:
        selector: name of a selector.
        per_class: nodes to store per class.
    """

    def __init__(self, selector="random", per_class=1):
        super().__init__(selector=selector, per_class=per_class)

    def examples(self, learner, task):
        examples = super().examples(learner, task)
        weights = examples.weights.clone()
        weights[task.train.numel() :] *= 2  # the nodes of the task come first
        return examples.weighted(weights)


check_method("double-replay")

# %% [markdown]
# One run on Cora, three classes of two:

# %%
stream = ergnn.make_stream("cora").stream
learner = ergnn.Learner("gcn", method="double-replay", epochs=50)
ergnn.evaluate_stream(learner, stream).plot()

# %% [markdown]
# Now beside others, with the same streams, the same bytes of memory and the same number of settings tried. Two seeds and few
# epochs, so that this page is built in a minute; `ergnn compare` without options runs 27 methods and variants on nine graphs.

# %%
from ergnn.lab.compare import compare
from ergnn.lab.config import CompareOptions
from ergnn.lab.engines import GridRunner
from ergnn.lab.report.comparison import write_comparison

options = CompareOptions(
    methods=["finetune", "ewc", "replay", "double-replay", "analytic:statistics"],
    datasets=["cora"],
    scenarios=["class"],
    edges=["all"],
    seeds=2,
    class_orders=1,
    epochs=20,
    trials=1,
)
out = tempfile.mkdtemp()
sections = write_comparison(*compare(options, GridRunner(out)), out, "ergnn compare …", True)
pd.DataFrame(sections[0].table.rows, columns=sections[0].table.header)

# %% [markdown]
# The folder holds the tables as text, Markdown and LaTeX, the figures, and one HTML page. Give seeds and intervals with
# every number: two seeds and twenty epochs, as here, are an example and no result.
