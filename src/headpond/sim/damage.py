"""Damage at rest: a bit of a copied disk flips, or the end of a file is gone, and a node opens the copy.

It may refuse to open it, with an error that says why. If it opens, every record that it serves is one that was
there, what is missing is reported by its exact range, and no message counts as settled that was not.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass, field

from headpond.broker.core import NodeCore
from headpond.model.errors import HeadpondError
from headpond.sim.node import SimNode
from headpond.sim.process import kind_of
from headpond.storage import commit_journal

CUT_BYTES_MAX = 512

Place = tuple[str, int]
"""A topic and a shard."""


@dataclass
class Contents:
    """What a node serves and knows."""

    records: dict[Place, dict[int, tuple[int, bytes]]] = field(default_factory=dict)
    """By the first entry of a record: the entry after its last, and its bytes."""
    stored: dict[Place, list[int]] = field(default_factory=dict)
    """The first entries of the records in files: a packed one holds several records."""
    lost: dict[Place, list[tuple[int, int]]] = field(default_factory=dict)
    settled: dict[tuple[bytes, str, int], set[int]] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)
    """The ids of revoked tokens."""
    tokens: set[str] = field(default_factory=set)
    """The ids of the others."""


def damage_copy(node: SimNode, chance: random.Random, *, stopped: bool = False) -> bool:
    """Flips a bit of a file of any kind; False if there is no file.

    ``stopped``: the node of the copy was stopped in good order, and the end of a file is gone. Without such a
    stop no node can tell that from a write that a crash cut short.
    """
    disk = node.machine.disk.copy()
    if stopped:
        node.open_core(disk).stores.close()
    kinds: dict[str, list[str]] = {}
    for path in disk.paths():
        if disk.contents(path).rstrip(b"\0"):
            kinds.setdefault(kind_of(path), []).append(path)
    if not kinds:
        return False
    path = chance.choice(kinds[chance.choice(sorted(kinds))])
    offset = chance.randrange(len(disk.contents(path).rstrip(b"\0")))
    whole = _contents(node.open_core(disk.copy()))
    if stopped:
        file = disk.open(path, writable=True)
        file.truncate(max(offset, file.size() - CUT_BYTES_MAX))
    else:
        disk.flip(path, offset, chance.randrange(8))
    try:
        found = _contents(node.open_core(disk))
    except HeadpondError:
        return True
    differences = _differences(whole, found, path, ends_known=stopped)
    node.recoveries += [f"byte {offset} of {path}: {each}" for each in differences]
    return True


def _contents(core: NodeCore) -> Contents:
    contents = Contents()
    for topic in core.stores.catalog:
        for number, shard in enumerate(topic.shards):
            place = (topic.name, number)
            records = contents.records[place] = {}
            lost = contents.lost[place] = []
            entry = 0
            while entry < shard.log.entry_durable:
                read = shard.log.read(entry, 1 << 20)
                for record in read.records:
                    header = record.header
                    records[header.first_entry] = (header.end_entry, b"".join(map(bytes, record.parts)))
                lost += read.lost
                entry = read.next_entry
            packed = shard.log.read(0, 1 << 30, packed=True)
            contents.stored[place] = [record.header.first_entry for record in packed.records]
    for subscription in core.stores.subscriptions.all():
        for number, cursor in enumerate(subscription.cursors):
            key = (subscription.topic_uuid, subscription.name, number)
            spans = [span for each in (cursor.settled, cursor.dead) for span in each.spans(0, each.end)]
            contents.settled[key] = set(range(cursor.cursor)).union(*(range(*span) for span in spans))
    for token in core.stores.tokens:
        (contents.revoked if token.revoked_at_us else contents.tokens).add(token.made.id)
    return contents


def _differences(whole: Contents, found: Contents, path: str, *, ends_known: bool) -> list[str]:
    differences = []
    in_journal = path.startswith(commit_journal.FOLDER)
    """One write of a log in the commit journal may hold several records, and it knows its last round."""
    for place, records in whole.records.items():
        there, lost = found.records.get(place, {}), found.lost.get(place, [])
        differences += [
            f"{place} entry {first} is another one" for first in there if there[first] != records.get(first)
        ]
        missing = [(first, end) for first, (end, _) in records.items() if first not in there]
        tail = None if ends_known or in_journal else max(records, default=0)
        unreported = [
            first
            for first, end in missing
            if first != tail and not any(start <= first and end <= stop for start, stop in lost)
        ]
        differences += [f"{place} entry {first} is not there, and not reported" for first in unreported]
        gone = len({bisect_right(whole.stored[place], first) for first, _ in missing})
        if not (ends_known or in_journal) and (gone > 1 or (missing and not path.endswith(".log"))):
            differences.append(f"{place}: {gone} records are gone")
    for key, settled in found.settled.items():
        if more := settled - whole.settled.get(key, set()):
            differences.append(f"{key[1]}: {len(more)} messages count as settled that were not")
    return differences + [f"the revoked token {token} is good again" for token in found.tokens & whole.revoked]
