"""The bytes and names that users, disks and other versions depend on, made from scratch.

``python -m tests.golden.contracts`` writes them to ``tests/fixtures/golden``. A difference there is a change of
a format or of the public surface: make one on purpose, and say so in the changelog.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

import headpond
import headpond.sync
from headpond.broker.settings import Settings
from headpond.model.errors import CATALOGUE
from headpond.node.http.app import make_app
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.access import CreateToken
from headpond.wire.control.catalog import CreatePlace, CreateTopic, TopicInfo
from headpond.wire.control.codec import Operation, Request, encode_control, read_result
from headpond.wire.control.consuming import Settle, Subscribe
from headpond.wire.control.links import AddPeer
from headpond.wire.control.producing import BlockEnd, CreateProducer, Hole
from headpond.wire.control.staging import CommitBatch, FinishStage, OpenStage
from headpond.wire.frame import FrameType, encode
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import encode_plain
from tests.broker.access.guarded import samples as operations
from tests.broker.ingest.typed_sender import TypedSender, row
from tests.fire.core_shell import CoreClient, CoreShell
from tests.fire.raw_client import encode_chunk, segment_body, segment_frame, title_frame
from tests.producer.refills import new_refill, save, snapshot_frame, write
from tests.root import ROOT
from tests.wire.samples import MESSAGES

FOLDER = ROOT / "tests" / "fixtures" / "golden"
START_US = 1_700_000_000_000_000
BLOCK = bytes(range(16))
ORDERS = "acme/shop/till/orders"
CREDIT_BYTES = 1 << 20


def frames() -> str:
    """The bytes of every message of the conversation and of every operation."""
    asked = [Request(1, cast(Operation, each)) for each in operations().values()]
    named = {f"{type(each).__name__} {index}": encode_control(each) for index, each in enumerate(MESSAGES)}
    return _lines(named | {f"Request {type(each.operation).__name__}": encode_control(each) for each in asked})


def data_folder() -> str:
    """Every file of a data folder: logs, journals, stages and the seal of a clean stop."""
    disk = MemoryDisk()
    shell = CoreShell(disk, seed=1, settings=Settings(data="memory"), now_us=START_US)
    client = shell.connect()
    _make_places(client)
    _send_plain(shell, client)
    TypedSender(shell).send([row(1), row(2, "b"), row(3)])
    _send_state(shell, client)
    _stage(client)
    client.request(CreateToken("root", ["admin"], ["*"]))  # the last: from then on a token is needed
    shell.core.close()
    return _lines({path: _bytes_of(disk, path) for path in disk.paths()})


def _make_places(client: CoreClient) -> None:
    client.request(CreatePlace("tenant", "acme", {"hard_ttl": 3600.0}))
    client.request(AddPeer("headpond://10.0.0.2:7411", ["acme/*"], name="west"))


def _send_plain(shell: CoreShell, client: CoreClient) -> None:
    ask = CreateTopic(ORDERS, 2)
    uuid = read_result(client.request(ask), TopicInfo).uuid
    client.request(CreateProducer(ORDERS, "till-1", "single"))
    client.send(
        title_frame(BLOCK, uuid, power=1, topic=ORDERS),
        segment_frame([b"one", b"two"]),
        segment_frame([b"three"], segment=1),
    )
    client.send(Hole(BLOCK, 0, 2), segment_frame([b"four"], segment=3), BlockEnd(BLOCK, {0: 4}))
    shell.work_all()
    client.send(Subscribe(1, ORDERS, "billing", "shared", "non_resilient", "earliest", CREDIT_BYTES))
    shell.work_all()
    client.send(Settle(1, 1, 0, acked=[(0, 1)], skipped=[(1, 2)], nacked=[(2, None)]))
    shell.work_all()


def _send_state(shell: CoreShell, client: CoreClient) -> None:
    uuid = read_result(client.request(CreateTopic("prices", settings={"state": True})), TopicInfo).uuid
    batch = rows_to_batch([b"1", None], [b"a", b"b"], None, None, [START_US, START_US])
    client.send(title_frame(b"s" * 16, uuid), encode(FrameType.SEGMENT, encode_plain(batch), segment=0))
    shell.work_all()


def _stage(client: CoreClient) -> None:
    for name, batch in ((b"1" * 16, 0), (b"2" * 16, None)):
        client.request(OpenStage(name, "nightly", ORDERS))
        client.send(encode_chunk(name, 0, 0, segment_body([b"staged " + name])))
        client.request(FinishStage(name, 1))
        if batch is not None:
            client.request(CommitBatch("nightly", batch, [name]))


def refill() -> str:
    """A refill file with segments of two shards, a snapshot, and the claims of two destinations."""
    disk = MemoryDisk()
    file = new_refill(disk)
    write(file, 0, 1)
    write(file, 0, shard=1)
    save(file)
    return _lines({"frames": _bytes_of(disk, "slot/one.refill"), "snapshot": snapshot_frame(1)})


def surface() -> str:
    """The public names of the client and of its blocking twin, with their signatures."""
    found: list[str] = []
    for module in (headpond, headpond.sync):
        for name in sorted(module.__all__):
            thing = getattr(module, name)
            found.append(f"{module.__name__}.{name}{_signature(thing)}")
            if inspect.isclass(thing):
                found += [f"    {part}{_signature(value)}" for part, value in _members(thing)]
    found += [f"error {code}: {kind.__name__}" for code, kind in sorted(CATALOGUE.items())]
    return "\n".join(found) + "\n"


def _members(kind: type) -> list[tuple[str, Any]]:
    hidden: frozenset[str] = getattr(kind, "internal", frozenset())
    members = sorted(inspect.getmembers(kind))
    return [(name, value) for name, value in members if not name.startswith("_") and name not in hidden]


def _signature(thing: Any) -> str:
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    plain = (bool, int, float, str, tuple, type(None))
    shown = [
        each if each.default is each.empty or isinstance(each.default, plain) else each.replace(default=...)
        for each in found.parameters.values()
    ]
    return str(found.replace(parameters=shown)).replace("'", "")


def http() -> str:
    """Every route: its parameters, its bodies and its answers; and the fields of every shape."""
    schema = make_app(None).openapi_schema.to_schema()
    found: list[str] = []
    for path, methods in sorted(schema["paths"].items()):
        for method, operation in sorted(methods.items()):
            found.append(f"{method.upper()} {path}")
            found += [
                f"    {each['in']} {each['name']}: {_kind(each['schema'])}"
                for each in operation.get("parameters", [])
            ]
            bodies = operation.get("requestBody", {}).get("content", {})
            found += [f"    takes {kind}: {_kind(each['schema'])}" for kind, each in sorted(bodies.items())]
            for status, answer in sorted(operation["responses"].items()):
                kinds = {
                    kind: _kind(each.get("schema", {})) for kind, each in answer.get("content", {}).items()
                }
                found.append(f"    {status} {kinds or ''}".rstrip())
    for name, shape in sorted(schema["components"]["schemas"].items()):
        found.append(name)
        for field, kind in sorted(shape.get("properties", {}).items()):
            found.append(f"    {field}{'' if field in shape.get('required', []) else '?'}: {_kind(kind)}")
    return "\n".join(found) + "\n"


def _kind(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for choice in ("oneOf", "anyOf"):
        if choice in schema:
            return " | ".join(_kind(each) for each in schema[choice])
    if schema.get("type") == "array":
        return f"[{_kind(schema.get('items', {}))}]"
    bounds = {
        key: schema[key] for key in ("minimum", "maximum", "maxLength", "maxItems", "enum") if key in schema
    }
    return f"{schema.get('type', 'any')}{bounds or ''}"


def _bytes_of(disk: MemoryDisk, path: str) -> bytes:
    file = disk.open(path)
    return file.read_at(0, file.size())


def _lines(parts: dict[str, bytes]) -> str:
    """A line per part: its name, its length, and its bytes in hexadecimal without the zeros at the end."""
    return "".join(
        f"{name} [{len(data)}] {data.rstrip(bytes(1)).hex()}\n" for name, data in sorted(parts.items())
    )


CONTRACTS: dict[str, Callable[[], str]] = {
    "frames.txt": frames,
    "data_folder.txt": data_folder,
    "refill.txt": refill,
    "surface.txt": surface,
    "http.txt": http,
}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, make in CONTRACTS.items():
        (FOLDER / name).write_text(make())
