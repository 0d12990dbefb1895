"""Topics that the catalog has lost: each log file says whose it is, so a topic can be found again.

A folder below ``topics/`` that the catalog does not name is what a deletion left behind, or a topic whose
catalog record rotted. The first is removed where the catalog still says so; the second is taken back, but only
when the catalog is known to be damaged. Anything else is reported and left alone.
"""

from __future__ import annotations

from penstock.files.disk import Disk
from penstock.files.frame_file import read_frame
from penstock.files.salvage import open_salvaged
from penstock.model.errors import BadFrame, BadTopicName
from penstock.model.topic import TopicName
from penstock.node.core.log_file import parse_name
from penstock.node.core.topics import TOPICS_FOLDER, TopicCreated
from penstock.wire.frame import FrameType
from penstock.wire.title import decode_title


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


def identify(disk: Disk, uuid: bytes, now_us: int) -> TopicCreated | None:
    """The topic that a folder's log files say they belong to; None where none of them can tell."""
    folder = f"{TOPICS_FOLDER}/{uuid.hex()}"
    for shard in disk.list(folder):
        for name in disk.list(f"{folder}/{shard}"):
            if parse_name(name) is None:
                continue
            file = open_salvaged(disk, f"{folder}/{shard}/{name}")
            try:
                frame = read_frame(file, 0).frame
                _, shard_power, title = decode_title(frame.body)
                TopicName.parse(title.topic)
            except (BadFrame, BadTopicName):
                continue
            finally:
                file.close()
            if frame.type == FrameType.TITLE and title.topic_uuid == uuid:
                return TopicCreated(title.topic, uuid, shard_power, now_us)
    return None
