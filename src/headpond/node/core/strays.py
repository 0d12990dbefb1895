"""Topics that the catalog has lost: each log file says whose it is, so a topic can be found again.

A folder below ``topics/`` that the catalog does not name is what a deletion left behind, or a topic whose
catalog record was lost: a topic is in the catalog before it has a folder, and a deletion is remembered until
the folder is gone. The first is removed, the second taken back if its name is free. Anything else is reported
and left alone.
"""

from __future__ import annotations

from headpond.files.disk import Disk
from headpond.files.frame_file import read_frame
from headpond.files.salvage import open_salvaged
from headpond.model.errors import BadFrame, BadTopicName, SchemaMismatch
from headpond.model.topic import TopicName
from headpond.node.core.log_file import parse_name
from headpond.node.core.topics import TOPICS_FOLDER, TopicAltered, TopicCreated
from headpond.wire.frame import FrameType
from headpond.wire.schema import decode_schema
from headpond.wire.title import Title, decode_title


def strays(disk: Disk, known: set[bytes]) -> list[bytes]:
    """The uuids of topic folders that are not in ``known``."""
    found: list[bytes] = []
    for name in disk.list(TOPICS_FOLDER):
        try:
            uuid = bytes.fromhex(name)
        except ValueError:
            continue
        if len(uuid) == 16 and uuid not in known:
            found.append(uuid)
    return found


def identify(disk: Disk, uuid: bytes, now_us: int) -> list[TopicCreated | TopicAltered]:
    """The topic that a folder's log files say they belong to, with its schemas; empty where none can tell."""
    folder = f"{TOPICS_FOLDER}/{uuid.hex()}"
    folders = [f"{folder}/{shard}" for shard in disk.list(folder)]
    paths = [f"{inside}/{name}" for inside in folders for name in disk.list(inside)]
    titles = [
        found
        for path in paths
        if parse_name(path.rpartition("/")[2]) is not None and (found := _title(disk, path, uuid)) is not None
    ]
    if not titles:
        return []
    shard_power, title = max(titles, key=lambda found: len(found[1].schemas))
    schemas = title.schemas
    first = schemas[0] if schemas else None
    created = TopicCreated(title.topic, uuid, shard_power, now_us, schema=first)
    return [created, *(TopicAltered(uuid, version, schema) for version, schema in enumerate(schemas[1:], 2))]


def _title(disk: Disk, path: str, uuid: bytes) -> tuple[int, Title] | None:
    """Shard power and title of a log file, if they are a topic's of that uuid."""
    file = open_salvaged(disk, path)
    try:
        frame = read_frame(file, 0).frame
        _, shard_power, title = decode_title(frame.body)
        TopicName.parse(title.topic)
        for schema in title.schemas:
            decode_schema(schema)
    except (BadFrame, BadTopicName, SchemaMismatch):
        return None
    finally:
        file.close()
    return (shard_power, title) if frame.type == FrameType.TITLE and title.topic_uuid == uuid else None
