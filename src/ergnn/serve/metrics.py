"""Figures for Prometheus: requests, updates, and the result of ``ergnn inspect`` for the served version."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


def gauge(name: str, text: str, value: float | Mapping[str, float | None], label: str = "") -> GaugeMetricFamily:
    """A gauge with one value, or with those of a label that are known."""
    if not isinstance(value, Mapping):
        return GaugeMetricFamily(f"ergnn_{name}", text, value)
    family = GaugeMetricFamily(f"ergnn_{name}", text, labels=[label])
    for key, number in value.items():
        if number is not None:
            family.add_metric([key], number)
    return family


def figures(inspection: dict[str, Any]) -> Iterator[GaugeMetricFamily]:
    """The figures in the result of ``LearnerFolder.inspect``; those that a version does not have are absent.

    To export another figure of ``inspect``, add it here.
    """
    sizes = {size: inspection["graph"][size] or 0 for size in ("nodes", "edges", "labeled", "features")}
    yield gauge("graph_size", "nodes, edges, labeled nodes and features of the served version", sizes, "part")
    yield gauge("remembered_nodes", "nodes that the method remembers or learned from", len(inspection["buffer"]))
    recalls = {row["class"]: row["recall"] for row in inspection["per_class"]}
    yield gauge("recall", "recall of a class on held-out nodes", recalls, "label")
    drift, calibration, unknown = (inspection["watch"][name] for name in ("drift", "calibration", "unknown"))
    if drift is not None:
        yield gauge("input_drift_alarm", "whether the newest update drifted from earlier nodes", drift["alarm"])
        yield gauge("input_drift_p", "adjusted p-value of drift of the newest update", drift["p"], "aspect")
    if calibration is not None:
        yield gauge("calibration_error", "expected calibration error on held-out nodes", calibration["ece"])
    if unknown is not None:
        share = unknown["above"] / unknown["nodes"]
        yield gauge("unknown_share", "share of the newest update's nodes that belong to no known class", share)
    if inspection["updates"]:
        last = inspection["updates"][-1]
        scores = {str(update + 1): right / of for update, right, of in last["scores"]}
        yield gauge("accuracy", "accuracy on held-out nodes of an update, after the newest update", scores, "update")
        if last["forgetting"] is not None:
            text = "accuracy lost on earlier updates since they were learned, mean over them"
            yield gauge("forgetting", text, last["forgetting"])


class Metrics:
    """The metrics of one server.

    Attributes:
        inspection: the result of ``LearnerFolder.inspect`` for the served version, once it is known.
        live: returns counts of nodes of requests, see :meth:`ergnn.serve.live.LiveWatch.summary`.
    """

    def __init__(self) -> None:
        self.inspection: dict[str, Any] | None = None
        self.live: Callable[[], dict[str, int]] = dict
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        into: dict[str, Any] = {"registry": self.registry, "namespace": "ergnn"}
        self.requests = Counter("requests", "requests by outcome", ("method", "path", "status"), **into)
        self.seconds = Histogram("request_seconds", "time to respond", ("path",), buckets=SECONDS, **into)
        self.running = Gauge("requests_running", "requests in progress", **into)
        self.predictions = Counter("predictions", "predicted nodes by class", ("label",), **into)
        self.version = Gauge("version", "served version", **into)
        self.loaded = Gauge("version_loaded_timestamp_seconds", "time at which the served version was loaded", **into)
        self.updates = Counter("updates", "updates and other writes by outcome", ("kind", "state"), **into)
        self.waiting = Gauge("updates_waiting", "unfinished updates", **into)
        self.learning = Counter("learning_seconds", "working time of the writer", **into)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The figures of the served version, which follow from its inspection."""
        yield gauge("live", "nodes of requests to the served version; see docs/watch.md", self.live(), "what")
        yield from () if self.inspection is None else figures(self.inspection)
