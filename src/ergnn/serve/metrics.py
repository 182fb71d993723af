"""Figures for Prometheus: requests, updates, and the result of ``ergnn inspect`` for the served version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
FIGURES = {
    "graph_size": ("nodes, edges, labeled nodes and features of the served version", ("part",)),
    "accuracy": ("accuracy on held-out nodes of an update, after the newest update", ("update",)),
    "forgetting": ("accuracy lost on earlier updates since they were learned, mean over them", ()),
    "recall": ("recall of a class on held-out nodes", ("label",)),
    "remembered_nodes": ("nodes that the method remembers or learned from", ()),
    "input_drift_p": ("adjusted p-value of drift of the newest update", ("aspect",)),
    "input_drift_alarm": ("whether the newest update drifted from earlier nodes", ()),
    "calibration_error": ("expected calibration error on held-out nodes", ()),
    "unknown_share": ("share of the newest update's nodes that belong to no known class", ()),
}
"""Gauges that :func:`figures` fills: meaning, and names of their labels."""


def figures(inspection: dict[str, Any]) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Name in :data:`FIGURES`, labels and value of every figure in the result of ``LearnerFolder.inspect``.

    To export another figure of ``inspect``, add it here and to ``FIGURES``.
    """
    for size in ("nodes", "edges", "labeled", "features"):
        yield "graph_size", (size,), inspection["graph"][size] or 0
    yield "remembered_nodes", (), len(inspection["buffer"])
    for row in inspection["per_class"]:
        if row["recall"] is not None:
            yield "recall", (row["class"],), row["recall"]
    drift, calibration, unknown = (inspection["watch"][name] for name in ("drift", "calibration", "unknown"))
    if drift is not None:
        yield "input_drift_alarm", (), drift["alarm"]
        for aspect, p in drift["p"].items():
            yield "input_drift_p", (aspect,), p
    if calibration is not None:
        yield "calibration_error", (), calibration["ece"]
    if unknown is not None:
        yield "unknown_share", (), unknown["above"] / unknown["nodes"]
    if inspection["updates"]:
        last = inspection["updates"][-1]
        for update, right, of in last["scores"]:
            yield "accuracy", (str(update + 1),), right / of
        if last["forgetting"] is not None:
            yield "forgetting", (), last["forgetting"]


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
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
        self.live = Gauge("live", "nodes of requests to the served version; see docs/watch.md", ("what",), **into)
        self.figures = CollectorRegistry()

    @contextmanager
    def request(self, scope: Any, status: Callable[[], int]) -> Iterator[None]:
        """Count a request with its status at the end."""
        start = perf_counter()
        with self.running.track_inprogress():
            yield
        path = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "other"
        self.requests.labels(method, path, status()).inc()
        self.seconds.labels(path).observe(perf_counter() - start)

    def show(self, inspection: dict[str, Any]) -> None:
        """Replace the figures of the served version; a figure that a version does not have is absent."""
        registry, gauges = CollectorRegistry(), dict[str, Gauge]()
        for name, labels, value in figures(inspection):
            text, keys = FIGURES[name]
            if name not in gauges:
                gauges[name] = Gauge(name, text, keys, registry=registry, namespace="ergnn")
            (gauges[name].labels(*labels) if labels else gauges[name]).set(value)
        self.figures = registry

    def show_live(self, summary: dict[str, Any]) -> None:
        """Show figures of the nodes of requests: new and unknown nodes, windows tested for drift, and alarms."""
        for what in ("nodes", "unknown", "windows", "alarms"):
            self.live.labels(what).set(summary[what])

    def text(self) -> bytes:
        return generate_latest(self.registry) + generate_latest(self.figures)
