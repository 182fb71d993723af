"""Split a real graph into files, one set per update.

    ERGNN_DATA=... python examples/growing/make_files.py computers|pubmed|twitch FOLDER [SEED]

Writes ``nodes-1.csv``, ``edges-1.csv``, ``nodes-2.csv``, … to the folder. In every update and class, 10 % of the nodes
have a training label, 5 % a validation label and 25 % a held-out label, drawn by seed (default: 0); the others are
unlabeled. An edge is in the files of the later of its two nodes.
"""

import os
import sys
from pathlib import Path

import numpy as np
import scipy.sparse

from ergnn.data import load_graph
from ergnn.data.tables import EdgeTable, NodeTable, from_graph, read_graph, write_edges, write_nodes

SHARES = {"train": 0.1, "val": 0.05, "test": 0.25}
LANGUAGES = ("DE", "ENGB", "ES", "FR", "PTBR", "RU")
Stream = tuple[NodeTable, np.ndarray, np.ndarray]
"""All nodes, edges ``[2, m]`` as their numbers, and the update of each node."""


def computers() -> Stream:
    """Load Amazon Computers: products bought together; ten categories, two new ones per update."""
    nodes, edges = from_graph(load_graph("amazon-computers", split="seeded").graph)
    kinds = sorted(set(nodes.labels), key=int)
    update = np.array([kinds.index(label) // 2 for label in nodes.labels])
    named = NodeTable([f"item-{i}" for i in nodes.ids], [f"kind-{k}" for k in nodes.labels], features=nodes.features)
    return named, numbers(edges), update


def pubmed() -> Stream:
    """Load PubMed: papers on diabetes by year of publication, in five updates of similar size; always three classes."""
    nodes, edges = from_graph(load_graph("pubmed", split="seeded").graph)
    with np.load(Path(os.environ["ERGNN_DATA"]) / "pubmed_temporal" / "pubmed_temporal.npz") as file:
        year = file["node_time"].astype(int)
    update = np.searchsorted(np.quantile(year, [0.2, 0.4, 0.6, 0.8]), year)
    ids = [f"paper-{i}" for i in nodes.ids]
    return (
        NodeTable(ids, [f"type-{k}" for k in nodes.labels], time=year, features=nodes.features),
        numbers(edges),
        update,
    )


def twitch() -> Stream:
    """Load Twitch: streamers of six countries who follow each other; always two classes."""
    ids, labels, features, links, update = [], [], [], [], []
    for language in LANGUAGES:
        nodes, edges = read_graph(Path(os.environ["ERGNN_DATA"]) / "musae_twitch" / f"{language}.npz")
        links.append(numbers(edges) + len(ids))
        update += [LANGUAGES.index(language)] * len(nodes)
        ids += [f"{language}-{i}" for i in nodes.ids]
        labels += [("everybody", "mature")[int(label)] for label in nodes.labels]
        features.append(nodes.features)
    joined = NodeTable(ids, labels, features=scipy.sparse.vstack(features).tocsr())
    return joined, np.concatenate(links, axis=1), np.array(update)


def numbers(edges: EdgeTable) -> np.ndarray:
    """Return the edges as node indices, without duplicates."""
    both = np.sort(np.stack([edges.source.astype(int), edges.target.astype(int)]), axis=0)
    return np.unique(both[:, both[0] < both[1]], axis=1)


def split(nodes: NodeTable, update: np.ndarray, seed: int) -> np.ndarray:
    """Draw ``train``, ``val``, ``test`` or None for each node, per class and update."""
    rng, out = np.random.default_rng(seed), np.full(len(nodes), None, object)
    for group in sorted({(int(u), label) for u, label in zip(update, nodes.labels, strict=True)}):
        mine = rng.permutation(np.flatnonzero((update == group[0]) & (nodes.labels == group[1])))
        ends = np.rint(np.cumsum([0, *SHARES.values()]) * len(mine)).astype(int)
        for part, start, end in zip(SHARES, ends[:-1], ends[1:], strict=True):
            out[mine[start:end]] = part
    return out


def main(stream: str, folder: str, seed: str = "0") -> None:
    nodes, edges, update = {"computers": computers, "pubmed": pubmed, "twitch": twitch}[stream]()
    parts, out = split(nodes, update, int(seed)), Path(folder)
    labels = np.where(parts == None, None, nodes.labels)  # noqa: E711  # element by element
    out.mkdir(parents=True, exist_ok=True)
    (out / "features.txt").write_text(f"{nodes.num_features}\n")
    for number in range(update.max() + 1):
        new, now = update == number, update[edges].max(0) == number
        time = None if nodes.time is None else nodes.time[new]
        table = NodeTable(nodes.ids[new], labels[new], time=time, split=parts[new], features=nodes.features[new])
        write_nodes(table, out / f"nodes-{number + 1}.csv")
        write_edges(EdgeTable(nodes.ids[edges[0, now]], nodes.ids[edges[1, now]]), out / f"edges-{number + 1}.csv")
        given = ", ".join(f"{(parts[new] == part).sum():,} {part}" for part in SHARES)
        print(f"update {number + 1}: {new.sum():,} nodes ({given}), {now.sum():,} edges")


if __name__ == "__main__":
    main(*sys.argv[1:])
