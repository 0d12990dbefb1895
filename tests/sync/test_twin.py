"""The blocking twin offers what the async client offers, with the same signatures."""

from __future__ import annotations

import asyncio
import inspect

import pytest

import headpond
import headpond.sync
from headpond import testing
from headpond.client.admin import Admin
from headpond.client.reader import Reader
from headpond.client.writer import OpenedStage
from headpond.sync.writer import OpenedStage as BlockingStage

PAIRS = [
    (Admin, headpond.sync.Admin),
    (headpond.Client, headpond.sync.Client),
    (headpond.Consumer, headpond.sync.Consumer),
    (Reader, headpond.sync.Reader),
    (headpond.Writer, headpond.sync.Writer),
    (OpenedStage, BlockingStage),
]
INTERNAL_OF_STAGES = {"encode", "send"}
OTHER_RESULT = {"unacked", "skipped", "dead_letters", "browse", "batches", "read"}
"""Async iterators, as a list or as an iterator."""
FEWER_NAMED = {"create_subscription", "browse", "fetch", "read"}
"""The twin passes some keywords on, or does not offer them."""


@pytest.mark.parametrize(("kind", "twin"), PAIRS)
def test_the_twin_has_every_public_member_of_the_async_class(kind: type, twin: type) -> None:
    internal = getattr(kind, "internal", INTERNAL_OF_STAGES)
    offered = {name for name in dir(kind) if not name.startswith("_")} - internal
    assert offered <= set(dir(twin))


def test_completion_offers_what_a_program_uses() -> None:
    async def scenario() -> None:
        async with (
            testing.node() as node,
            node.connect() as client,
            client.producer("orders") as producer,
            client.consumer("orders", "s") as consumer,
        ):
            await producer.send(b"tea")
            for each in (client, producer, consumer, client.writer("nightly")):
                names, known = set(dir(each)), set(object.__dir__(each))
                assert each.internal <= known and not names & each.internal
                assert {"close", "__class__"} <= names
            assert {"send", "topic"} <= set(dir(producer)) and {"ack", "dropped"} <= set(dir(consumer))

    asyncio.run(scenario())


@pytest.mark.parametrize(("kind", "twin"), PAIRS)
def test_a_method_of_the_twin_has_the_signature_of_the_async_one(kind: type, twin: type) -> None:
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if name.startswith("_") or name in FEWER_NAMED or not hasattr(twin, name):
            continue
        signature, blocking = inspect.signature(method), inspect.signature(getattr(twin, name))
        assert signature.parameters == blocking.parameters, name
        if name not in OTHER_RESULT:
            assert signature.return_annotation == blocking.return_annotation, name


@pytest.mark.parametrize(("kind", "twin"), PAIRS)
def test_a_method_of_the_twin_that_names_fewer_arguments_takes_them_as_the_async_one_does(
    kind: type, twin: type
) -> None:
    for name in sorted(FEWER_NAMED & set(dir(kind))):
        parameters = inspect.signature(getattr(kind, name)).parameters
        for each in inspect.signature(getattr(twin, name)).parameters.values():
            assert each.kind is each.VAR_KEYWORD or each == parameters[each.name], (name, each.name)


@pytest.mark.parametrize(("kind", "twin"), PAIRS)
def test_every_documented_method_is_documented_in_the_twin(kind: type, twin: type) -> None:
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_") and method.__doc__ and hasattr(twin, name):
            assert getattr(twin, name).__doc__, name
