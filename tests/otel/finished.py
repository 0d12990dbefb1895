"""The spans that have ended, and how a test looks at them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

TRACE, SENDER = "a" * 32, "b" * 16
GIVEN = {"traceparent": f"00-{TRACE}-{SENDER}-01"}
"""The headers of a message whose context comes from elsewhere."""


class FinishedSpans(InMemorySpanExporter):
    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


def own(span: ReadableSpan) -> tuple[int, int]:
    """The trace and the span."""
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def links(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def carried(headers: dict[str, str]) -> tuple[int, int]:
    """The trace and the span that a message names."""
    _, trace, span, _ = headers["traceparent"].split("-")
    return int(trace, 16), int(span, 16)


def attributes(span: ReadableSpan, names: Sequence[str]) -> list[Any]:
    found = span.attributes or {}
    return [found.get(name) for name in names]


def failure(span: ReadableSpan) -> tuple[Any, str | None]:
    """The type of the error and the status's text; nothing if it did not fail."""
    return (span.attributes or {}).get("error.type"), span.status.description
