"""Features in a memory-mapped file that exceeds the memory limit of the process."""

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import resource, sys
from pathlib import Path

import numpy as np
import torch

from ergnn.data import Graph
from ergnn.data.csr import mapped
from ergnn.nn.backbones.convolutional import GAT
from ergnn.nn.examples import Examples
from ergnn.engine.outputs import logits_of
from ergnn.engine.objective import make_objective
from ergnn.engine.sampling import Sampling

torch.set_num_threads(1)


def status(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name)) * 1024


N, F = 200_000, 4_000
path = Path(sys.argv[1]) / "x.npy"
with path.open("wb") as file:  # 3.2 GB, sparse until written
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (N, F)})
    start = file.tell()
    file.truncate(start + 4 * N * F)
    for node in range(0, 4_000, 4):
        file.seek(start + 4 * node * F)
        file.write(np.full(F, node % 7 + 1, dtype=np.float32).data)

ring = torch.arange(N)
col = torch.stack([ring - 8, ring - 4, ring + 4, ring + 8], 1) % N
y = (ring // 4) % 2
graph = Graph.from_csr(mapped(path), torch.arange(N + 1) * 4, col.sort(1).values.flatten().int(), y, undirected=True)

limit = status("VmData") + (700 << 20)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
try:
    graph.x.clone()
    raise SystemExit("the limit does not bite")
except RuntimeError as error:
    assert "memory" in str(error), error

model = GAT(F, 2)
nodes = torch.arange(0, 4_000, 4)
examples = Examples(graph, nodes, torch.zeros(1000, 1).long(), y[nodes], torch.ones(1000) / 64)
objective = make_objective([model], [examples], sampling=Sampling((3, 2)))
params = {name: value.requires_grad_() for name, value in objective.parameters().items()}
keys = torch.arange(objective.dropout_sites, dtype=torch.int32).unsqueeze(1)
for step in range(5):
    batch = objective.batch(torch.arange(64 * step, 64 * (step + 1)), key=step)
    (batch.weights * batch.losses(params, keys)).sum().backward()
assert all(bool(torch.isfinite(value.grad).all()) for value in params.values())
assert float(params["convs.0.lin.weight"].grad.abs().max()) > 0

scores = logits_of(model, graph, nodes[:500], torch.zeros(500, 1).long())
x = torch.from_numpy(np.fromfile(path, dtype=np.float32, count=2_500 * F, offset=start).reshape(-1, F))
within = torch.arange(100, 400)  # nodes whose field lies in the first 2,500 rows
edges = torch.cat([torch.stack([ring[:2_500] + d, ring[:2_500]]) for d in (-8, -4, 4, 8)], 1)
edges = edges[:, (edges >= 0).all(0) & (edges < 2_500).all(0)]
wanted = model.eval()(x, edges)[4 * within]
assert torch.allclose(scores[within], wanted, atol=1e-4), (scores[within] - wanted).abs().max()
print(status("RssFile"), path.stat().st_size, status("VmHWM"))
"""


@pytest.mark.slow
def test_only_rows_of_the_batch_are_loaded(tmp_path: Path) -> None:
    """Train and score on 3.2 GB of features with a memory limit of 0.7 GB, so that a copy does not fit."""
    done = subprocess.run([sys.executable, "-c", CODE, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    in_memory, file, peak = (int(text) for text in done.stdout.split())
    assert file > 3.2e9
    assert in_memory < file / 4  # includes files of the interpreter and of torch
    assert peak < file / 2
