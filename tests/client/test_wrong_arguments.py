"""Every public call with wrong values for every argument raises only errors of the catalogue."""

from __future__ import annotations

import asyncio
import collections.abc
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa
import pytest

import headpond
from headpond.client.arguments import check_argument
from headpond.client.link.dialling import Backoff
from headpond.client.options import ConsumerOptions, ProducerOptions
from headpond.errors import BadRequest, HeadpondError
from tests.client.test_tokens import Guarded

TOPIC = "wrong"
WAIT_S = 0.2
STRANGE = object()
NUMBERS = [True, 5, -1, 2**70, 2.5, math.nan, math.inf]
TEXTS = ["x", "", "\0", "\ud800", b"x"]
SEVERAL = [[], [None], ["x"], (1, 2), {}, {5: 5}, {"x": STRANGE}, pa.schema([]), pa.table({"x": [1]})]
WRONG: list[Any] = [None, STRANGE, lambda: None, datetime(1, 1, 1, tzinfo=UTC), *NUMBERS, *TEXTS, *SEVERAL]
VALID: dict[str, Any] = {
    "url": "headpond://127.0.0.1:1",
    "topic": TOPIC,
    "topics": [TOPIC],
    "subscription": "s",
    "name": "n",
    "tenant": "nowhere",
    "product": "nowhere/at",
    "component": "nowhere/at/all",
    "producer": "p",
    "writer": "w",
    "token": "nobody",
    "rights": ["consume"],
    "scopes": ["*"],
    "schema": pa.schema([("n", pa.int64())]),
    "positions": [0],
    "to": "earliest",
    "shard": 0,
    "entry": 0,
    "start": 0,
    "end": 1,
    "first": 0,
    "last": 0,
    "when": datetime(2020, 1, 1, tzinfo=UTC),
    "value": b"v",
    "table": pa.table({"value": [b"v"]}),
    "rows": pa.table({"value": [b"v"]}),
    "batch": 1,
    "stages": [],
}
INSIDE = {
    "links",
    "add",
    "add_consumer",
    "add_producer",
    "keep_unread",
    "parcel_ended",
    "record",
    "next_batches",
}
"""Names that only the package itself calls."""
OPTIONS = {
    "producer": [field.name for field in fields(ProducerOptions)],
    "consumer": [field.name for field in fields(ConsumerOptions)],
    "fetch": ["incarnation", "bytes_max", "filter", "columns", "named"],
    "read": ["incarnation", "bytes_max", "filter", "columns", "named"],
    "create_subscription": ["kind", "mode", "start", "policy", "exist_ok", "positions"],
}
"""Options that methods take as ``**options``."""

Method = Callable[..., Any]
FUNCTIONS: list[Method] = [headpond.connect, Backoff]
Call = tuple[str, tuple[Any, ...], dict[str, Any]]
"""The argument that is wrong, then all of them."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with Guarded(tmp_path_factory.mktemp("wrong")) as running:
        with headpond.sync.connect(running.url, running.token) as client:
            client.admin.create_topic(TOPIC)
            client.admin.create_subscription(TOPIC, "s")
            with client.producer(TOPIC) as producer:
                producer.send(b"a")
        yield running


def methods(*targets: object) -> Iterator[Method]:
    """Their public methods that take something."""
    for target in targets:
        for name, member in inspect.getmembers(type(target), inspect.isfunction):
            outside = name not in INSIDE and not name.startswith(("_", "on_"))
            if outside and len(inspect.signature(member).parameters) > 1:
                yield getattr(target, name)


def calls(method: Method, wrong: list[Any]) -> Iterator[Call]:
    """Each argument in turn with each wrong value, the others as they should be."""
    parameters = inspect.signature(method).parameters
    further = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [
        name for name, each in parameters.items() if each.default is each.empty and each.kind not in further
    ]
    for name, each in parameters.items():
        right = {other: VALID[other] for other in needed if other != name}
        for value in wrong:
            if each.kind is each.VAR_POSITIONAL:
                yield "an argument", (*right.values(), value), {}
            elif each.kind is each.VAR_KEYWORD:
                for option in OPTIONS.get(method.__name__, ["hard_ttl"]):
                    yield option, (), {**right, option: value}
            else:
                yield name, (), {**right, name: value}


async def outcome(made: Any) -> None:
    """Uses the result of a call as a program would."""
    if inspect.iscoroutine(made):
        made = await made
    if isinstance(made, headpond.Producer | headpond.Consumer | headpond.Writer):
        await made.open()
        await made.close()
    elif hasattr(made, "__anext__"):
        await anext(made, None)


async def raised(method: Method, call: Call) -> Exception | None:
    try:
        async with asyncio.timeout(WAIT_S):
            await outcome(method(*call[1], **call[2]))
    except TimeoutError:
        return None
    except Exception as error:  # which is what is looked for
        return error
    return None


def shown(method: Method, call: Call, error: Exception | None) -> str:
    name, args, kwargs = call
    return f"{method.__qualname__}({name}={kwargs.get(name, args)!r:.60}): {error!r:.120}"


async def opened(client: headpond.Client) -> list[object]:
    """One of everything that a client opens."""
    producer = await client.producer(TOPIC, "p").open()
    consumer = await client.consumer(TOPIC, "c", kind="shared").open()
    promise = producer.post(b"b")
    await promise
    reader = await client.reader(TOPIC).open()
    writer = await client.writer("w").open()
    batch = await anext(consumer.batches())
    VALID["what"], VALID["message"] = batch, batch.messages()[0]
    return [client, client.admin, producer, promise, consumer, batch, reader, writer]


def test_only_errors_of_the_catalogue_come_of_wrong_arguments(
    node: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some are names of files

    async def main() -> list[str]:
        async with headpond.connect(node.url, node.token) as client:
            return [
                shown(method, call, error)
                for method in [*FUNCTIONS, *methods(*await opened(client))]
                for call in calls(method, WRONG)
                if not isinstance(error := await raised(method, call), HeadpondError | None)
            ]

    assert asyncio.run(main()) == []


def test_a_value_that_no_argument_can_have_is_refused_by_the_arguments_name(node: Guarded) -> None:
    own_words = {
        "what": "a message or a batch",
        "table": "Arrow table",
        "ttl": "a time to live",
    }

    def is_named(name: str, error: Exception | None) -> bool:
        words = (name, own_words.get(name, name))
        return isinstance(error, BadRequest) and any(each in error.message for each in words)

    async def main() -> list[str]:
        async with headpond.connect(node.url, node.token) as client:
            return [
                shown(method, call, error)
                for method in [*FUNCTIONS, *methods(*await opened(client))]
                for call in calls(method, [STRANGE])
                if not is_named(call[0], error := await raised(method, call))
            ]

    assert asyncio.run(main()) == []


def test_the_blocking_twin_does_the_same(
    node: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = []
    with headpond.sync.connect(node.url, node.token) as client:
        producer, consumer = client.producer(TOPIC, "p"), client.consumer(TOPIC, "d", kind="shared")
        batch = next(consumer.batches())
        VALID["what"], VALID["message"] = batch, batch.messages()[0]
        targets = [client, client.admin, producer, producer.post(b"b"), consumer]
        for method in methods(*targets, client.reader(TOPIC), client.writer("w")):
            known = {**vars(collections.abc), **inspect.unwrap(method).__globals__, "pa": pa}
            hints = get_type_hints(inspect.unwrap(method), known)
            for name, args, kwargs in calls(method, WRONG):
                if fits(kwargs.get(name, STRANGE), hints.get(name, int)):
                    continue  # it might wait for something
                try:
                    method(*args, **kwargs)
                except HeadpondError:
                    pass
                except Exception as error:  # which is what is looked for
                    found.append(shown(method, (name, args, kwargs), error))
    assert found == []


def fits(value: Any, hint: Any) -> bool:
    try:
        check_argument("it", value, hint)
    except BadRequest:
        return False
    return True


@pytest.mark.parametrize(
    ("hint", "value", "words"),
    [
        (int, "4", "it is '4' (str); it must be a whole number"),
        (int, True, "it is True (bool); it must be a whole number"),
        (float | None, math.nan, "it is nan (float); it must be a number or None"),
        (str, b"x", "it is b'x' (bytes); it must be text"),
        (headpond.Policy | None, {}, "it is of type dict; it must be a Policy or None"),
        (Sequence[str], "abc", "it is 'abc' (str); it must be a list of text"),
        (Mapping[str, int], {"a": "b"}, "it is of type dict; it must be a mapping of text to a whole number"),
        (Iterable[tuple[int, str]], [(1,)], "it is of type list; it must be a list of (a whole number, text)"),
        (Callable[[], None] | None, 5, "it is 5 (int); it must be something that can be called or None"),
    ],
)
def test_an_error_says_what_came_and_what_is_wanted(hint: Any, value: Any, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        check_argument("it", value, hint)
    assert caught.value.message == words


def test_no_error_repeats_a_token() -> None:
    for wrong in (b"hpd_id_s3cr3t", ["hpd_id_s3cr3t"], "hpd_id_s3cr3t\ud800"):
        with pytest.raises(BadRequest) as caught:
            headpond.connect("headpond://127.0.0.1:1", wrong)  # type: ignore[arg-type]
        assert "s3cr3t" not in str(caught.value) and "token" in caught.value.message
