"""What guards against the bug of each scenario (sim/scenarios.py): without it, the scenario must fail."""

from __future__ import annotations

from tests.sim.planted import FAULTS, PlantedFault
from tests.sim.planted_cluster import CLUSTER

_PLANTED = {fault.name: fault for fault in FAULTS}

_GUARDS: dict[str, list[PlantedFault]] = {
    "power-cut": [
        _PLANTED["The sync of a log is dropped"],
        _PLANTED["A segment is acknowledged before it is durable"],
        _PLANTED["A settlement is confirmed before the journal is durable"],
    ],
    "torn-write": [
        _PLANTED["Recovery takes every torn tail for rot"],
        _PLANTED["Recovery leaves the torn tail in the file, and the log continues behind it"],
    ],
    "bit-rot": [
        _PLANTED["Recovery does not check checksums"],
        PlantedFault(
            "Damage at the end of a file counts as a write that was cut short",
            "storage/seal.py",
            "    if not disk.exists(SEAL_FILE):",
            "    if True:",
            ("recovered",),
        ),
        PlantedFault(
            "A damaged revocation is forgotten",
            "broker/access/tokens.py",
            "        if lost:\n            for token in self:",
            "        if False:\n            for token in self:",
            ("recovered",),
        ),
    ],
    "failed-write": [
        _PLANTED["A failed write leaves the marks where they are"],
        _PLANTED["A failed write is answered as a success"],
        PlantedFault(
            "A node whose disk was full never takes a message again",
            "broker/ingest/watermark.py",
            "        self.full = above < 0",
            "        self.full = self.full or above < 0",
            ("liveness",),
        ),
    ],
    "failed-sync": [
        _PLANTED["The log continues in a file in which a sync failed"],
    ],
    "snapshots": [
        _PLANTED["The folder is not synced after a new file got its name"],
        _PLANTED["The snapshot of a journal lacks its first record"],
        _PLANTED["A snapshot of settlements forgets the ledger's counts"],
    ],
    "long-idle": [
        _PLANTED["Recovery does not restore the marks from records"],
        _PLANTED["The head of a new log file forgets the marks"],
        PlantedFault(
            "A node forgets the numbers of a producer that was silent for a minute",
            "storage/log/shard_log.py",
            "        after_silence_us = max(self._options.forget_silent_us, self.peer_hold_us)",
            "        after_silence_us = 60_000_000",
            ("lost", "ledger"),
        ),
    ],
    "restarted-sender": [
        PlantedFault(
            "A producer that starts again begins with numbers that it has used",
            "producer/numbers.py",
            "            self._write({**self._free, shard: number + RESERVE})",
            "            self._write({**self._free, shard: number})\n"
            "            self._free = {**self._free, shard: number + RESERVE}",
            ("numbers", "liveness"),
        ),
    ],
    "refill": [
        _PLANTED["A refill file is removed before everything in it is confirmed"],
        _PLANTED["A message counts as spilled before the refill is synced"],
    ],
    "bad-connection": [
        _PLANTED["A sender that goes back forgets the segments in flight"],
        _PLANTED["A segment that was stored is stored again"],
        _PLANTED["The checksum of a frame is not checked"],
        PlantedFault(
            "The receipt of a repeat names the next entry",
            "broker/ingest/ingest.py",
            '        answer = AckItem(frame.segment, "duplicate", first_entry)',
            '        answer = AckItem(frame.segment, "duplicate", (first_entry or 0) + 1)',
            ("receipts",),
        ),
        PlantedFault(
            "A repeat confirms everything behind it",
            "producer/exchange.py",
            "        held = self._segments.get(key)\n        if held is None or destination not in held.open:\n"
            "            promise = ",
            "        if fate.outcome == Outcome.DUPLICATE:\n"
            "            behind = [each for each in self._segments if each.segment > key.segment]\n"
            "            for each in behind:\n"
            "                self._through(each, self._segments[each], destination, fate)\n"
            "        held = self._segments.get(key)\n        if held is None or destination not in held.open:\n"
            "            promise = ",
            ("lost", "receipts", "liveness", "unhandled"),
        ),
    ],
    "full-memory": [
        _PLANTED["A delivery costs no credit"],
        _PLANTED["A producer takes messages beyond its limit of memory"],
        _PLANTED["The memory of an answered segment is not free again"],
    ],
    "refusals": [
        _PLANTED["Backoff is ignored"],
        PlantedFault(
            "The backoff of a message is its deadline",
            "broker/subscriptions/subscription.py",
            "        if self.policy.deadline is not None:\n            out = EntrySet.of(offer.spans)\n"
            "            self.deadlines.set(offer.attachment, offer.shard, out, now_us, self.policy.deadline)",
            "        out = EntrySet.of(offer.spans)\n"
            "        wait_s = self.policy.backoff or 0.1\n"
            "        self.deadlines.set(offer.attachment, offer.shard, out, now_us, wait_s)",
            ("deadline", "hands"),
        ),
        PlantedFault(
            "A start of the node forgets how long a refused message waits",
            "broker/subscriptions/journal.py",
            "            wait_us = min(due_us - now_us, due_us - at_us, round(SECONDS_MAX * 1e6))",
            "            wait_us = 0",
            ("backoff",),
        ),
    ],
    "ack-timeout": [
        PlantedFault(
            "A deadline that passed costs a consumer everything that it holds",
            "broker/subscriptions/subscription.py",
            "        late = attachment.take_from(shard, entries)",
            "        late = attachment.take_from(shard, attachment.held.get(shard, entries).copy())",
            ("deadline",),
        ),
    ],
    "dead-letters": [
        _PLANTED["A dead message gets no copy"],
    ],
    "attempts": [
        _PLANTED["After a crash, what may have been delivered is not flagged"],
        _PLANTED["A delivery that came back is not counted"],
    ],
    "poison-key": [
        PlantedFault(
            "A resilient subscription reads nothing new while a refused message waits",
            "broker/subscriptions/key_shared.py",
            "        return super().next_read(receivers, self._ends(ends), bytes_max)",
            "        if self.strict and any(cursor.unacked_log.entries.bits for cursor in self.cursors):\n"
            "            return None\n"
            "        return super().next_read(receivers, self._ends(ends), bytes_max)",
            ("poison",),
        ),
        PlantedFault(
            "A message that waits holds up those of every key",
            "broker/subscriptions/key_shared.py",
            "        waiting = table.waiting.get(slot)\n        if waiting is not None and waiting.bits",
            "        waiting = next(iter(table.waiting.values()), None)\n"
            "        if waiting is not None and waiting.bits",
            ("poison", "liveness"),
        ),
    ],
    "acks-out-of-order": [
        _PLANTED["The cursor jumps over unsettled entries to the last settled one"],
        _PLANTED["A consumer that lost its connection keeps what it held"],
    ],
    "compacted-gap": [
        PlantedFault(
            "A subscription waits for messages that compaction has removed",
            "broker/subscriptions/requests.py",
            "            changes += self._subscriptions.pass_compacted(subscription, shard, gone)",
            "            del gone",
            ("liveness",),
        ),
    ],
    "joining": [
        PlantedFault(
            "A consumer is sent more while it gives back",
            "broker/subscriptions/attachment.py",
            "        return self.credit_bytes > 0 and self.connected and self.welcome and self.writable "
            "and not self.recalled",
            "        return self.credit_bytes > 0 and self.connected and self.welcome and self.writable",
            ("apart", "sequence"),
        ),
        _PLANTED["A key goes to two consumers at a time"],
    ],
    "stepping-back": [
        PlantedFault(
            "A consumer that steps back waits for the message that it refused",
            "client/consume/gate.py",
            "        if not active:\n            self.awaited = None  # it comes to the active one\n",
            "",
            ("liveness",),
        ),
    ],
    "reconnect": [
        _PLANTED["A consumer keeps what was sent ahead over a lost connection"],
        _PLANTED["A program gets again what it has in hand"],
    ],
    "old-backup": [
        PlantedFault(
            "A consumer comes back though the node's log is another one",
            "broker/subscriptions/subscribe.py",
            "    for each in known:\n        shards, entry",
            "    for each in known[:0]:\n        shards, entry",
            ("unsettled", "altered", "liveness"),
        ),
    ],
    "leases": [
        _PLANTED["A consumer hands out messages after its lease"],
        _PLANTED["A lease that is over does not end"],
    ],
    "clocks": [
        _PLANTED["A clock that was set back lets a refused message wait longer"],
    ],
    "links": [
        PlantedFault(
            "A link continues behind a record whose write failed",
            "broker/links/sink.py",
            '        shard.lane.wait(intake.written)\n        intake.count("late", late)',
            '        shard.lane.mark()\n        intake.count("late", late)',
            ("copied",),
        ),
    ],
    "counts": [
        _PLANTED["The head of a new log file forgets the marks"],
        _PLANTED["The ledger counts an acknowledgement twice"],
    ],
    "batches": [
        PlantedFault(
            "A batch with other rows counts as a repeat",
            "broker/staging/compare.py",
            "        if self._sums[0] != self._sums[1]:",
            "        if False:",
            ("reported",),
        ),
        _PLANTED["A repeated publication stores segments twice"],
        _PLANTED["A node that starts does not publish the batch that was committed"],
    ],
    "cluster": CLUSTER,
}

GUARDS = [fault._replace(scenario=name) for name, faults in _GUARDS.items() for fault in faults]
