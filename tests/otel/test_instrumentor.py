"""How tracing is turned on, and that a program without it pays nothing for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tomllib
from importlib import import_module

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from headpond import testing
from headpond.client.produce.batcher import Batcher
from headpond.otel import HeadpondInstrumentor
from tests.client.reading import receive
from tests.otel.finished import FinishedSpans
from tests.root import ROOT

UNTRACED = """
import sys, headpond, headpond.sync, headpond.testing

app = headpond.App()

@app.subscriber("orders", subscription="s")
def bill(value: bytes) -> None:
    app.stop()

with headpond.testing.blocking_node() as node:
    with node.connect() as client, client.producer("orders") as producer:
        producer.send(b"tea")
    app.url = node.url
    import asyncio
    asyncio.run(app.run())
print([name for name in sys.modules if "opentelemetry" in name or name == "headpond.otel"])
"""


def test_a_program_without_tracing_loads_nothing_of_it() -> None:
    run = subprocess.run(
        [sys.executable, "-c", UNTRACED], capture_output=True, text=True, check=False, timeout=100
    )
    assert (run.stdout, run.returncode) == ("[]\n", 0), run.stderr


def test_a_client_is_traced_if_it_connects_while_tracing_is_on() -> None:
    spans, provider = FinishedSpans(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))

    async def scenario() -> list[type[Batcher]]:
        async with testing.node() as node:
            kinds: list[type[Batcher]] = []
            async with node.connect() as before:
                HeadpondInstrumentor().instrument(tracer_provider=provider, skip_dep_check=True)
                async with node.connect() as during:
                    HeadpondInstrumentor().uninstrument()
                    async with node.connect() as after:
                        for client in (before, during, after):
                            async with client.producer("orders") as producer:
                                await producer.send(b"tea")
                                kinds.append(type(producer.batcher))
            return kinds

    plain, traced, plain_again = asyncio.run(scenario())
    assert (plain, plain_again) == (Batcher, Batcher), "no call is added to a send"
    assert issubclass(traced, Batcher) and traced is not Batcher
    assert len(spans.named("send orders")) == 1


def test_without_a_provider_messages_are_sent_as_ever_and_carry_the_context_around_them() -> None:
    """OpenTelemetry without a provider makes no spans."""
    HeadpondInstrumentor().instrument()

    async def scenario() -> dict[str, str]:
        async with testing.node() as node, node.connect() as client:
            async with client.producer("orders") as producer:
                assert (await producer.send(b"tea")).stored
            async with client.consumer("orders", "s") as consumer:
                message = await receive(consumer)
                return message.headers

    try:
        assert asyncio.run(scenario()) == {}
    finally:
        HeadpondInstrumentor().uninstrument()


def test_opentelemetry_instrument_finds_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["opentelemetry_instrumentor"]["headpond"].partition(":")
    assert getattr(import_module(module), name) is HeadpondInstrumentor
