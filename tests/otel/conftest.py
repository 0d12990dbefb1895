"""Spans in memory, of the clients that a test connects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from headpond.otel import HeadpondInstrumentor
from tests.otel.finished import FinishedSpans


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    provider = TracerProvider()
    HeadpondInstrumentor().instrument(tracer_provider=provider)
    yield provider
    HeadpondInstrumentor().uninstrument()
    provider.shutdown()


@pytest.fixture
def spans(provider: TracerProvider) -> FinishedSpans:
    spans = FinishedSpans()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return spans
