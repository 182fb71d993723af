"""The HTTP interface of a service."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import PurePath
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from ergnn import __version__
from ergnn.config.errors import BusyError, FolderError, InputError
from ergnn.data.partial import find_all
from ergnn.folder import why
from ergnn.folder.page import folder_page
from ergnn.folder.spool import IDS, OUTCOMES, Job
from ergnn.folder.update import check_labels, prepare_update
from ergnn.pages.table import render_page
from ergnn.serve import requests as schema
from ergnn.serve.guard import Guard, one_line, problem
from ergnn.serve.requests import FORM, JSON, TYPES, media_type, read_upload, save_upload
from ergnn.serve.service import Service

SMALL = 256
"""Maximum number of known ids that are looked up without a thread."""
MOST_EXPLAINED = 100
"""Maximum number of nodes to explain in a request."""
ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": schema.Problem} for code in (401, 404, 409, 413, 415, 422, 503, 507)
}
UpdateId = Annotated[int, Path(ge=1)]
FILE = {"type": "string", "format": "binary"}
BODIES = {
    FORM: {"type": "object", "properties": {"nodes": FILE, "edges": FILE, "name": {"type": "string"}}},
    JSON: {"type": "object", "properties": {key: {"type": "array"} for key in ("nodes", "edges")}},
    **dict.fromkeys(TYPES, FILE),
}
UPLOAD = {"requestBody": {"required": True, "content": {kind: {"schema": body} for kind, body in BODIES.items()}}}
"""What an update may be, for the description of the interface."""


def make_app(service: Service, token: str | None = None) -> FastAPI:
    """Create the application; ``token`` is required in every request, if given."""

    app = FastAPI(
        title="ergnn", version=__version__, lifespan=service.running, docs_url=None, redoc_url=None, responses=ERRORS,
        summary="Predictions, updates and versions of a learner's folder.",
    )  # fmt: skip
    app.add_middleware(Guard, limits=service.limits, token=token, metrics=service.metrics)
    _add_errors(app, service)
    _add_reading(app, service)
    _add_explaining(app, service)
    _add_writing(app, service)
    _add_pages(app, service)
    return app


def _add_errors(app: FastAPI, service: Service) -> None:
    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        kind = media_type(request.headers.get("content-type"))
        if kind != JSON and any(one["loc"][:1] == ("body",) for one in error.errors()):
            return problem(415, f"send content-type: {JSON}" + (f" (not {kind[:60]})" if kind else ""))
        return problem(422, schema.first_error(error.errors()))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        return problem(error.status_code, error.detail, error.headers)

    @app.exception_handler(InputError)
    @app.exception_handler(OSError)
    async def unusable(request: Request, error: Exception) -> Response:
        cause = error if isinstance(error, OSError) else error.__context__
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return problem(507, "the disk of the server is full; nothing was accepted")
        if isinstance(error, OSError):
            raise error
        kinds = {BusyError: 409, FolderError: 500}
        status = next((code for kind, code in kinds.items() if isinstance(error, kind)), 422)
        return problem(status, service.without_paths(error))


def _check_rows(service: Service, **counts: int) -> None:
    for name, count in counts.items():
        if count > service.limits.predict_rows:
            raise HTTPException(413, f"{name}: {count:,} rows; at most {service.limits.predict_rows:,} are allowed")


def _add_reading(app: FastAPI, service: Service) -> None:
    @app.post("/predict", response_model=schema.PredictResponse)
    async def predict(body: schema.PredictRequest) -> Response:
        """Predict nodes: known nodes by id, or new nodes with features and edges, which are not stored."""
        version, limits = service.served, service.limits
        _check_rows(service, ids=len(body.ids or ()), nodes=len(body.nodes or ()), edges=len(body.edges or ()))
        if body.ids is None and not body.nodes:
            raise InputError("ids or nodes are needed")
        if not version.learner.num_tasks:
            raise HTTPException(409, "nothing has been learned yet; observe labeled nodes first")
        ids = None if body.ids is None else schema.texts(body.ids)
        if ids is not None and len(ids) <= SMALL and not body.nodes and not body.edges:
            return _answer(service, version.number, *version.predict(ids, classes=body.classes))

        def work() -> tuple[Any, ...]:
            nodes = schema.node_table(body.nodes, limits.tables) if body.nodes else None
            edges = schema.edge_table(body.edges) if body.edges else None
            answer = version.predict(ids, nodes, edges, body.classes)
            if nodes is not None:
                service.watch(version, nodes, edges)
            return answer

        return _answer(service, version.number, *await service.answer(work))

    @app.get("/versions")
    async def versions() -> dict[str, Any]:
        """List the versions that are kept, oldest first."""
        version = service.served
        return {"version": version.number, "versions": list(version.versions)}

    @app.get("/updates")
    async def updates() -> dict[str, Any]:
        """List unfinished updates, and the newest finished ones."""
        await service.answer(service.spool.refresh)
        return {"updates": [job.describe() for _, job in sorted(service.spool.jobs.items())]}

    @app.get("/updates/{id}")
    async def update(id: UpdateId) -> dict[str, Any]:
        """Report the state of an update."""
        return (await _job(service, id)).describe()

    @app.get("/health")
    async def health() -> Response:
        """Report the state of the service, and the served version."""
        waiting, troubles = len(service.spool.unfinished()), service.troubles()
        body = {"status": "degraded" if troubles else "ok", "version": service.served.number, "waiting": waiting}
        return JSONResponse({**body, "trouble": one_line("; ".join(troubles))} if troubles else body)

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Return figures for Prometheus."""
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _add_explaining(app: FastAPI, service: Service) -> None:
    async def answer(ask: Callable[..., Any], *given: Any) -> dict[str, Any]:
        version = service.served
        found = await service.answer(lambda: ask(version, *given))
        return {"version": version.number, **(found if isinstance(found, dict) else {"nodes": found})}

    @app.get("/explain")
    async def explain(
        id: Annotated[list[str], Query(min_length=1, max_length=MOST_EXPLAINED, description="a node of the graph")],
        count: Annotated[int, Query(ge=1, le=1000, description="labeled nodes and columns to list")] = 10,
    ) -> dict[str, Any]:
        """Explain the classes of nodes: terms of labeled nodes, distances and columns, and what would change the class.
        Only the closed form can be explained."""
        return await answer(why.explain_nodes, id, count)

    @app.get("/audit")
    async def audit(count: Annotated[int, Query(ge=1, le=10_000)] = 20) -> dict[str, Any]:
        """List the training labels that look wrong to all others, those that fit least first."""
        return await answer(why.audit_labels, count)

    @app.get("/suggest")
    async def suggest(
        count: Annotated[int, Query(ge=1, le=1000)] = 50,
        by: Annotated[str, Query(description="variance, margin or random")] = "variance",
    ) -> dict[str, Any]:
        """List nodes without a label whose labels would help most, best first."""
        return await answer(why.suggest_nodes, count, None, by)


async def _job(service: Service, id: int) -> Job:
    await service.answer(service.spool.refresh)
    if (job := service.spool.jobs.get(id)) is None:
        raise HTTPException(404, f"unknown update {id}; outcomes of the newest {OUTCOMES} are kept")
    return job


def _answer(service: Service, version: int, ids: list[str], classes: list[str], rows: Any) -> Response:
    best, rows = rows.argmax(1).tolist() if len(ids) else [], rows.round(6).tolist()
    predictions = [
        {"id": name, "label": classes[k], "probability": row[k], "probabilities": row}
        for name, k, row in zip(ids, best, rows, strict=True)
    ]
    for k in best:
        service.metrics.predictions.labels(classes[k]).inc()
    body = {"version": version, "classes": classes, "predictions": predictions}
    return Response(json.dumps(body, ensure_ascii=False), media_type="application/json")


def _add_writing(app: FastAPI, service: Service) -> None:
    def check_queue() -> None:
        if service.spool.num_stored() >= service.limits.queued:
            raise HTTPException(503, f"{service.limits.queued} updates are queued; try again", {"retry-after": "10"})

    @app.post("/observe", status_code=202, openapi_extra=UPLOAD)
    async def observe(
        request: Request,
        name: Annotated[str, Query(max_length=200, description="name of the update")] = "",
        table: Annotated[str, Query(description="content of a CSV, TSV or Parquet body: nodes or edges")] = "nodes",
    ) -> Response:
        """Queue an update: nodes, edges and labels, as a form with two files or as one body. Updates are learned in the
        order of arrival; see `/updates/{id}`. A body of JSON or JSON lines may contain both nodes and edges."""
        check_queue()
        with service.spool.incoming() as directory:
            name = await save_upload(request, directory, name, table)
            idle = not service.spool.unfinished()

            def check() -> None:
                tables = read_upload(directory, service.limits.tables, service.served.version.columns)
                if idle:  # otherwise a queued update may add nodes that this one refers to
                    prepare_update(service.served, *tables)
                    check_labels(service.served, tables[0])

            await service.answer(check)
            return _accepted(service, (await service.submit(directory, "observe", name)).number)

    @app.post("/forget", status_code=202)
    async def forget(body: schema.ForgetRequest) -> Response:
        """Queue the removal of nodes from the graph and the model; see `/updates/{id}`, which reports unknown ids."""
        check_queue()
        _check_rows(service, ids=len(body.ids))
        ids = list(dict.fromkeys(schema.texts(body.ids)))
        if not service.spool.unfinished():
            find_all(service.served.graph, ids)
        with service.spool.incoming() as directory:
            (directory / IDS).write_text(json.dumps({"ids": ids, "retrain": body.retrain}), encoding="utf-8")
            return _accepted(service, (await service.submit(directory, "forget")).number)

    @app.delete("/updates/{id}")
    async def delete(id: UpdateId) -> dict[str, Any]:
        """Delete an update that waits, failed or cannot be read; what was learned stays."""
        return (await service.delete(await _job(service, id))).describe()

    @app.post("/rollback")
    async def rollback(body: schema.RollbackRequest) -> dict[str, Any]:
        """Serve an older version, by default the previous one; newer versions are kept until the next update."""
        numbers = [row["version"] for row in service.served.versions]
        if body.version is not None and body.version not in numbers:
            raise HTTPException(404, f"version {body.version} is not kept; versions {', '.join(map(str, numbers))} are")
        if body.version is None and service.served.number == numbers[0]:
            raise HTTPException(409, f"version {numbers[0]} is the oldest that is kept")
        return {"version": await service.rollback(body.version)}


def _accepted(service: Service, number: int) -> Response:
    where = f"/updates/{number}"
    body = {"id": str(number), "state": "queued", "progress": where, "version": service.served.number}
    return JSONResponse(body, 202, {"location": where})


def _add_pages(app: FastAPI, service: Service) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        inspection = await service.inspect()
        shown = {**inspection, "folder": PurePath(inspection["folder"]).name}  # paths of the server are not shown
        return HTMLResponse(folder_page(shown, "live.html", "ergnn.serve", versions=service.served.versions[::-1]))

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(render_page("docs.html", "ergnn.serve", api=app.openapi()))
