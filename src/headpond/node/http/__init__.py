"""HTTP: the node's operations for programs without the client library.

In reading order::

    server   The listener, and a connection with deadlines for headers, bodies and slow readers
    gate     Checks before every route: sizes and numbers of requests, and protection from web pages
    answers  Memory for answers, which count until their clients have read them
    status   The HTTP status of every error of the catalogue
    app      All routes, and the OpenAPI schema of them
    openapi  The parts of the schema that the framework cannot derive: errors, and the body of a publish
    request  What routes share: the server's state, the caller of a request, names in paths, waiting
    callers  One caller per token: its session at the node, its producers and its consumers
    bodies   Messages in the body of a request: JSON, JSON lines, an Arrow stream, or one raw value
    publish  Messages of a request on their way to the node: under a key, through a lane, or under a name
    lane        Segments of a block, and lanes: requests of one caller to one topic share segments
    local_link  A link to the node of the same process: requests and segments go as objects
    held     A consumer that a caller holds between its requests
    history  The last hour of the node: a reading every ten seconds, for plots
    metrics  What Prometheus reads: the process, the node, its topics, subscriptions and links
    cluster  A member of a cluster: its metrics, and its group
    standby  A member of a cluster that is not active: alive, not ready
    routes   The routes, one file per group
    console  The console: a page for people at the path /
"""

from __future__ import annotations

from importlib import import_module

from headpond.model.errors import HttpMissing

try:
    for _package in ("h11", "litestar", "prometheus_client", "uvicorn"):
        import_module(_package)
except ModuleNotFoundError as error:
    raise HttpMissing(f"HTTP needs packages that are not installed: {error}") from error
