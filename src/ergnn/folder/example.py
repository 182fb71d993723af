"""An example of ordinary tables: customers with columns of every kind, and payments between them, in weekly updates.

Whether a customer churns depends on all columns and on whom she pays: customers of one (hidden) group pay each other
more often, and groups differ in how often they churn.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

COUNTRIES = {"DE": 0.2, "FR": -0.3, "US": 0.5, "BR": 0.9, "JP": -0.8, "IN": 0.1, "NG": 0.4, "SE": -0.6}
"""Countries and their effect on churn; later ones are rarer."""
PLANS = {"free": 0.8, "basic": 0.0, "premium": -0.9}
COMPLAINTS = ("late delivery", "wrong invoice", "app crashes", "no reply from support", "price too high")
PRAISE = ("great service", "fast delivery", "friendly support", "good price", "easy to use")
FILLER = ("again", "about", "my order", "was", "with", "last week", "this", "product", "box", "items")
GROUPS = 12
WEEKS = 4


def make_customers(count: int, seed: int) -> tuple[list[dict[str, Any]], list[tuple[str, str, float]]]:
    """Return rows of customers, each with the week of its arrival, and payments."""
    rng = np.random.default_rng(seed)
    group = rng.integers(GROUPS, size=count)
    age = np.clip(rng.normal(44, 15, count), 18, 90).round()
    income = np.exp(rng.normal(10.3, 0.8, count)).round(-1)
    names, effect = list(COUNTRIES), np.array(list(COUNTRIES.values()))
    share = 1 / np.arange(2, len(names) + 2)
    country = rng.choice(len(names), count, p=share / share.sum())
    plan = rng.integers(len(PLANS), size=count)
    week = rng.integers(WEEKS, size=count)
    signup = rng.integers(0, 1400, count)
    newsletter = rng.random(count) < 0.4
    unhappy = rng.random(count) < 0.35
    score = 1.6 * rng.normal(size=GROUPS)[group]
    score += 0.9 * (44 - age) / 15 - 0.9 * (np.log(income) - 10.3) / 0.8 + effect[country]
    score += np.array(list(PLANS.values()))[plan] + 0.8 * (signup - 700) / 400 - 0.7 * newsletter + 2.0 * unhappy
    churn = score + 0.5 * rng.logistic(size=count) > np.quantile(score, 0.7)
    rows = []
    for i in range(count):
        phrases = rng.choice(COMPLAINTS if unhappy[i] else PRAISE, 2, replace=False)
        words = [*rng.choice(FILLER, 5), phrases[0], *rng.choice(FILLER, 4), phrases[1]]
        row = {
            "id": f"c{i}",
            "label": "churned" if churn[i] else "stays",
            "age": int(age[i]) if rng.random() > 0.08 else "",
            "income": int(income[i]) if rng.random() > 0.15 else "",
            "country": names[country[i]] if rng.random() > 0.03 else "",
            "plan": list(PLANS)[plan[i]],
            "newsletter": "yes" if newsletter[i] else "no",
            "signup": (date(2022, 1, 3) + timedelta(days=int(signup[i]))).isoformat(),
            "note": " ".join(words) if rng.random() > 0.2 else "",
        }
        rows.append(row | {"week": int(week[i])})
    return rows, _payments(group, rng)


def _payments(group: np.ndarray, rng: np.random.Generator) -> list[tuple[str, str, float]]:
    """Return payments, four in five of them within a group."""
    members = [np.flatnonzero(group == g) for g in range(GROUPS)]
    payments = {}
    for i in range(len(group)):
        for _ in range(rng.poisson(2.5)):
            j = rng.choice(members[group[i]]) if rng.random() < 0.8 else rng.integers(len(group))
            if i != j:
                payments[f"c{i}", f"c{j}"] = round(float(np.exp(rng.normal(3, 1))), 2)
    return [(*pair, amount) for pair, amount in payments.items()]


def write_files(folder: Path, count: int = 4000, seed: int = 0, new: int = 0) -> None:
    """Write ``nodes_1.csv``, ``edges_1.csv`` to ``nodes_4.csv``, ``edges_4.csv``.

    Args:
        folder: is created if it does not exist.
        count: number of customers.
        seed: of all random choices.
        new: number of the last customers that are written without labels, to ``new.csv`` and ``new_edges.csv``.
    """
    rows, payments = make_customers(count, seed)
    arrival = {row["id"]: row.pop("week") for row in rows}
    arrival |= {row["id"]: WEEKS for row in rows[count - new :]}
    folder.mkdir(parents=True, exist_ok=True)
    for week in range(WEEKS + bool(new)):
        nodes, edges = "new.csv", "new_edges.csv"
        if week < WEEKS:
            nodes, edges = f"nodes_{week + 1}.csv", f"edges_{week + 1}.csv"
        columns = [name for name in rows[0] if week < WEEKS or name != "label"]
        arrived = ([row[name] for name in columns] for row in rows if arrival[row["id"]] == week)
        paid = (payment for payment in payments if max(arrival[end] for end in payment[:2]) == week)
        _write(folder / nodes, columns, *arrived)
        _write(folder / edges, ["source", "target", "amount"], *paid)


def _write(path: Path, *rows: Sequence[object]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
