"""Faults to plant: one small change of the source each, which the simulator must catch (plant.py).

Each is a bug that messaging systems have had, or the loss of one guard. ``old`` stands once in its file, which
tests/sim/test_planted.py checks. ``breaks`` names the checks that may catch the fault (sim/checks); beside
those there are ``liveness`` (what should happen after healing does not), ``unhandled`` (an exception that no
user expects), ``recovered`` (recovering twice finds two states) and ``limits``. ``needs`` names what a plan
must have for the fault to matter (``plant.words_of``; ``|`` between alternatives).
"""

from __future__ import annotations

from typing import NamedTuple


class PlantedFault(NamedTuple):
    name: str
    file: str
    """Below src/headpond."""
    old: str
    new: str
    breaks: tuple[str, ...]
    needs: tuple[str, ...] = ()
    scenario: str | None = None
    """Its seeds are those of a scenario (sim/scenarios.py), whatever ``needs`` says."""


POWER = "cut power|cut power at a point"
CRASH = f"{POWER}|kill node|kill node at a point"
START = f"{CRASH}|restart node"
CLIENT_POWER = "cut power of client|cut power of client at a point"
CLIENT_CRASH = f"{CLIENT_POWER}|kill client|kill client at a point"
BROKEN = "reset|cut|reset connection"
"""Connections end."""

STORAGE = [
    PlantedFault(
        "The sync of a log is dropped",
        "storage/append.py",
        "        if self.sync:\n            file.sync()",
        '        if self.sync and not self.path.startswith("topics/"):\n            file.sync()',
        ("lost", "batches", "unhandled"),
        (POWER,),
    ),
    PlantedFault(
        "The sync of a journal is dropped",
        "storage/append.py",
        "        if self.sync:\n            file.sync()",
        '        if self.sync and not self.path.endswith(".journal"):\n            file.sync()',
        ("returned", "batches", "repeated", "lost", "unhandled"),
        (POWER,),
    ),
    PlantedFault(
        "The sync of a stage file is dropped",
        "storage/append.py",
        "        if self.sync:\n            file.sync()",
        '        if self.sync and not self.path.startswith("stages/"):\n            file.sync()',
        ("batches",),
        (POWER, "writers"),
    ),
    PlantedFault(
        "A new file gets its name before it is synced",
        "storage/append.py",
        "            self._write(file, self.whole())",
        "            file.write_at(self.offset, self.whole())",
        ("lost", "batches", "unhandled"),
        (POWER,),
    ),
    PlantedFault(
        "The folder is not synced after a new file got its name",
        "storage/append.py",
        "            disk.rename(path, self.path)\n            disk.sync_folder(folder)\n        except",
        "            disk.rename(path, self.path)\n        except",
        ("lost", "batches", "unhandled"),
        (POWER,),
    ),
    PlantedFault(
        "Files are removed before the one that replaces them is durable",
        "storage/append.py",
        "        if self.creates:\n            self._create(disk)",
        "        if self.creates:\n            self._remove(disk)\n            self._create(disk)",
        ("lost", "batches", "returned", "repeated", "unhandled"),
        scenario="snapshots",
    ),
    PlantedFault(
        "The log continues in a file in which a sync failed",
        "storage/append.py",
        "            self.sound = False\n        self.leave()",
        "            self.sound = False",
        ("lost", "batches", "unhandled"),
        ("sync fails", START),
    ),
    PlantedFault(
        "A failed write is answered as a success",
        "storage/commit_lane.py",
        "        if error is None:\n            _call(waiters, None)",
        "        if True:\n            _call(waiters, None)",
        ("lost", "batches"),
        ("sync fails|write fails",),
    ),
    PlantedFault(
        "A waiter for staged bytes is called after the write that is under way",
        "storage/commit_lane.py",
        "if under_way is not None and not (staged and pending):",
        "if under_way is not None:",
        ("lost", "batches"),
        (CRASH,),
    ),
    PlantedFault(
        "The sync of the commit journal is dropped",
        "storage/commit_rounds.py",
        "        self.file.write_at(self.at, frames)\n        self.file.sync()",
        "        self.file.write_at(self.at, frames)",
        ("lost", "batches"),
        (POWER, "shards"),
    ),
    PlantedFault(
        "A checkpoint retires a generation whose logs are not synced",
        "storage/commit_rounds.py",
        "self.written_again = sync_generation(disk, generation.number, generation.paths, self.doubtful)",
        "self.written_again = set()",
        ("lost", "batches"),
        (POWER, "shards"),
    ),
    PlantedFault(
        "A round does not notice that the file of a log could not be written",
        "storage/commit_rounds.py",
        "                self.errors[lane] = error",
        "                pass",
        ("lost", "batches", "unhandled"),
        ("write fails", "shards"),
    ),
    PlantedFault(
        "Opening does not replay the commit journal",
        "storage/commit_journal.py",
        "    found = _write_again(disk, sorted(int(number) for number in digits if number.isdecimal()))",
        "    found = ReplayReport()",
        ("lost", "batches"),
        (POWER, "shards"),
    ),
    PlantedFault(
        "Replaying the commit journal does not sync the logs",
        "storage/commit_journal.py",
        "                        found.writes += targets.put(commit)\n        targets.sync()",
        "                        found.writes += targets.put(commit)",
        ("lost", "batches"),
        (POWER, "shards"),
    ),
    PlantedFault(
        "Recovery does not check checksums",
        "storage/frame_file.py",
        "        if len(raw) < total or crc32c(raw) != CRC_RESIDUE:",
        "        if len(raw) < total:",
        ("altered", "lost", "unhandled", "receipts"),
        (POWER,),
    ),
    PlantedFault(
        "Recovery takes every torn tail for rot",
        "storage/recovery.py",
        "            self.tail_damaged = not looks_torn(self.file, tail, shard=self._shard, last=True)",
        "            self.tail_damaged = True",
        ("ledger", "receipts", "lost", "batches"),
        (POWER,),
    ),
    PlantedFault(
        "Recovery cuts off the last frame with a torn tail",
        "storage/recovery.py",
        "            file.truncate(self.end)",
        "            file.truncate(self.proven)",
        ("lost", "batches", "unhandled"),
        (POWER,),
    ),
    PlantedFault(
        "Recovery leaves the torn tail in the file, and the log continues behind it",
        "storage/recovery.py",
        "            file.truncate(self.end)",
        "            self.end = self.tail.end",
        ("damage", "lost", "ledger"),
        (POWER,),
    ),
    PlantedFault(
        "Recovery accepts the frames behind a torn place of the same write",
        "storage/recovery.py",
        "                if torn and not self._proves(item):",
        "                if False:",
        ("damage", "lost", "ledger"),
        scenario="torn-write",
    ),
    PlantedFault(
        "Recovery trusts frames whose sync nothing proves",
        "storage/recovery.py",
        "            self._write_again(self.proven, self.end)",
        "            pass",
        ("lost", "damage"),
        scenario="failed-sync",
    ),
    PlantedFault(
        "Recovery syncs the frames of a failed sync and does not write them again",
        "storage/recovery.py",
        "                self.file.write_at(offset, [data])",
        "                del data",
        ("lost", "damage"),
        scenario="failed-sync",
    ),
    PlantedFault(
        "Recovery does not restore the marks from records",
        "storage/log/recover.py",
        "            state.marks.admit(header.block, number, (crc, first, count), header.stored_at_us, code)",
        "            pass",
        ("lost", "ledger"),
        (START,),
    ),
    PlantedFault(
        "The head of a new log file forgets the marks",
        "storage/log/shard_log.py",
        "        marks, forgotten = self.marks.encode_within(MARKS_BYTES_MAX, keep=block)",
        "        marks, forgotten = type(self.marks)().encode_within(MARKS_BYTES_MAX, keep=block)",
        ("lost", "ledger"),
        (START,),
    ),
    PlantedFault(
        "A failed write leaves the marks where they are",
        "storage/log/shard_log.py",
        "        batch.withdraw_from(self.marks)\n        if batch.begun:",
        "        if batch.begun:",
        ("lost", "ledger", "liveness"),
        ("sync fails|write fails",),
    ),
    PlantedFault(
        "A failed write does not set the next entry back",
        "storage/log/shard_log.py",
        "        self.appender.failed(write)\n        self.entry_next = self.entry_durable",
        "        self.appender.failed(write)",
        ("lost", "ledger", "liveness", "unhandled"),
        ("sync fails|write fails",),
    ),
    PlantedFault(
        "Entries count as durable when they are appended",
        "storage/log/shard_log.py",
        "        self.entry_next = batch.end_entry = first + count\n        return first",
        "        self.entry_next = self.entry_durable = batch.end_entry = first + count\n        return first",
        ("lost", "liveness"),
        (CRASH,),
    ),
    PlantedFault(
        "The seal of a clean stop names one entry too many",
        "storage/log/shard_log.py",
        "return SealedFile(last, view.end_offset, view.entry_durable, self.entry_first)",
        "return SealedFile(last, view.end_offset, view.entry_durable + 1, self.entry_first)",
        ("damage", "ledger", "recovered", "lost"),
        ("restart node",),
    ),
    PlantedFault(
        "A reader continues behind the record that had no room",
        "storage/log/read.py",
        "                self._hint(first_entry, file_id, offset)",
        "                self._hint(first_entry, file_id, offset + len(raw))",
        ("unsettled", "lost", "liveness"),
    ),
    PlantedFault(
        "A read of a closed file ends one entry early",
        "storage/log/read.py",
        "        if expected < limit:\n            lost.append((expected, limit))",
        "        if records and expected == limit and number < len(view.files) - 1:\n            records.pop()",
        ("unsettled", "lost", "batches"),
    ),
    PlantedFault(
        "A packed file replaces the others before it is synced",
        "storage/log/rewrite.py",
        "        self._flush(new)\n        new.sync()",
        "        self._flush(new)",
        ("lost", "batches", "damage", "unhandled"),
        (POWER,),
    ),
    PlantedFault(
        "Packing drops the last segment of a run",
        "storage/log/rewrite.py",
        "        packed = pack(run) if len(run) >= self._place.pack_segments_min else None",
        "        packed = pack(run[:-1]) if len(run) >= self._place.pack_segments_min else None",
        ("lost", "unsettled", "batches", "damage"),
    ),
    PlantedFault(
        "A damaged packed record gives back segments that fail their checksum",
        "wire/plain/packed.py",
        "                    if crc32c(each.framed(shard)[: -frame.TRAILER.size]) == crc:",
        "                    if each.segment:",
        ("recovered",),
        ("damage|damage after a stop",),
    ),
    PlantedFault(
        "A read that stops inside a packed record continues behind it",
        "storage/log/read.py",
        "            if room <= 0:\n                return room, stop",
        "            if room <= 0:\n                return room, end",
        ("lost", "unsettled", "batches", "liveness"),
    ),
    PlantedFault(
        "The snapshot of a journal lacks its first record",
        "storage/journal.py",
        "        for body in snapshot:\n",
        "        for body in list(snapshot)[1:]:\n",
        ("lost", "liveness", "unhandled"),
        (START,),
    ),
    PlantedFault(
        "The ledger counts one message too many",
        "storage/log/book.py",
        "            tally.messages += count",
        "            tally.messages += count + 1",
        ("ledger",),
    ),
]

BROKER = [
    PlantedFault(
        "A segment that was stored is stored again",
        "broker/ingest/admission.py",
        "        return Again(known.recent.get(segment))",
        "        return ADMIT",
        ("lost",),
    ),
    PlantedFault(
        "A segment behind a gap is admitted",
        "broker/ingest/admission.py",
        "            return Early(expected)",
        "            return ADMIT",
        ("order", "ledger", "lost"),
        ("sync fails|write fails", "batch_rows"),
    ),
    PlantedFault(
        "A segment is acknowledged before it is durable",
        "broker/ingest/ingest.py",
        "        self._answer_when_durable(session, context, shard, frame, answer, stored_bytes=len(body))",
        "        self._answer(session, context, frame.shard, answer)\n        shard.lane.mark()",
        ("lost",),
        (CRASH,),
    ),
    PlantedFault(
        "A repeat is acknowledged before its first copy is durable",
        "broker/ingest/ingest.py",
        "        if first_entry is not None and first_entry < shard.log.entry_durable:",
        "        if first_entry is not None:",
        ("lost", "batches"),
        (POWER, BROKEN, "slow disk"),
    ),
    PlantedFault(
        "A number that came with other content is taken as a duplicate",
        "broker/ingest/admission.py",
        "        if stored_crc != origin_crc:",
        "        if False:",
        ("lost",),
        ("resume", "old backup of client"),
    ),
    PlantedFault(
        "A process of a single producer is not fenced when another one gets the lease",
        "broker/ingest/ingest.py",
        "            if known is not None and context.epoch != epoch:",
        "            if False:",
        ("fenced",),
        scenario="leases",
    ),
    PlantedFault(
        "A fenced process of a single producer gets the lease again",
        "broker/ingest/producers.py",
        "        if 0 < epoch <= self.epoch:\n            return Verdict.FENCED",
        "        if 0 < epoch <= self.epoch:\n            return Verdict.GRANT",
        ("fenced",),
        ("single", "zombie|stop client|partition|one-way partition"),
    ),
    PlantedFault(
        "A clock jump counts as the end of a lease",
        "node/server.py",
        "    return time.monotonic_ns() // 1000",
        "    return time.time_ns() // 1000",
        ("lease", "liveness"),
        scenario="clocks",
    ),
    PlantedFault(
        "A producer's lease never ends",
        "broker/ingest/producers.py",
        "        if self.instance and self.left_s(now_us, lease_us) > 0:",
        "        if self.instance:",
        ("liveness",),
        ("single", CLIENT_CRASH),
    ),
    PlantedFault(
        "A settlement is confirmed before the journal is durable",
        "broker/subscriptions/consume.py",
        "        lane.wait(partial(self._send_settled, session, attachment.consumer, confirmation))",
        "        self._send_settled(session, attachment.consumer, confirmation, None)\n        lane.mark()",
        ("returned",),
        (CRASH,),
    ),
    PlantedFault(
        "A settlement is not written to the journal",
        "broker/subscriptions/consume.py",
        "            self._journal.append(encode_change(settlement))",
        "            encode_change(settlement)",
        ("returned", "ledger", "unhandled"),
        (START,),
    ),
    PlantedFault(
        "A message that just became durable wakes no consumer",
        "broker/subscriptions/consume.py",
        "        for subscription in list(self._awake.get(topic.uuid, ())):",
        "        for subscription in list(self._awake.get(topic.uuid, ()))[:0]:",
        ("liveness",),
    ),
    PlantedFault(
        "A consumer that lost its connection keeps what it held",
        "broker/subscriptions/subscription.py",
        "        else:\n            self._drop(attachment, None)",
        "        else:\n            attachment.connected = False",
        ("liveness",),
        (f"{BROKEN}|{CLIENT_CRASH}",),
    ),
    PlantedFault(
        "A lease that is over does not end",
        "broker/subscriptions/subscription.py",
        "            self._drop(first, None)\n            self._result().detached.append(first)",
        "            pass",
        ("liveness",),
        ("resilient failover|resilient unique", CLIENT_CRASH, "several"),
    ),
    PlantedFault(
        "Backoff is ignored",
        "broker/subscriptions/subscription.py",
        "        wait_us = round(wait_s * 1e6)\n        due_us, bound",
        "        wait_us = 0\n        due_us, bound",
        ("backoff",),
        ("calm", "refuses"),
    ),
    PlantedFault(
        "What comes back is not offered again",
        "broker/subscriptions/cursor.py",
        "        self.ready.include(back)",
        "        pass",
        ("liveness",),
        (f"{BROKEN}|{CLIENT_CRASH}",),
    ),
    PlantedFault(
        "A redelivery has attempt 1",
        "broker/subscriptions/cursor.py",
        "        return self._by_attempt(spans) if self.delivered.sets or self.flagged.bits else [(1, spans)]",
        "        return [(1, spans)]",
        ("repeated",),
        (f"{BROKEN}|refuses",),
    ),
    PlantedFault(
        "After a crash, what may have been delivered is not flagged",
        "broker/subscriptions/cursor.py",
        "        self.flag(EntrySet.of([(self.cursor, self.reach)]))",
        "        pass",
        ("repeated",),
        (CRASH,),
    ),
    PlantedFault(
        "Deliveries go further than the journal lets them",
        "broker/subscriptions/cursor.py",
        "        self.reach_staged = self.offered + self._reach_step",
        "        self.reach = self.reach_staged = self.offered + self._reach_step",
        ("repeated",),
        scenario="attempts",
    ),
    PlantedFault(
        "The cursor jumps over unsettled entries to the last settled one",
        "broker/subscriptions/cursor.py",
        "            self.cursor = settled.run_end(end)",
        "            self.cursor = settled.end",
        ("unsettled", "ledger", "unhandled"),
    ),
    PlantedFault(
        "A settlement settles one entry more",
        "broker/subscriptions/cursor.py",
        "        elif not settled.bits:\n            self.cursor = end",
        "        elif not settled.bits:\n            self.cursor = end + 1",
        ("unsettled", "ledger", "unhandled", "turns"),
    ),
    PlantedFault(
        "A refused message is forgotten",
        "broker/subscriptions/cursor.py",
        "            self._refuse(one, due_us, bound)",
        "            pass",
        ("liveness",),
        ("refuses",),
    ),
    PlantedFault(
        "A message whose deadline passed is forgotten",
        "broker/subscriptions/cursor.py",
        "        self._refuse(late, 0, bound)",
        "        pass",
        ("liveness",),
        ("deadline", "stop client", "non_resilient"),
    ),
    PlantedFault(
        "An entry that was offered once is offered again",
        "broker/subscriptions/kinds.py",
        "                offers += self._give(receiver, shard, piece, [record])\n"
        "        cursor.advance(start, end)",
        "                offers += self._give(receiver, shard, piece, [record])",
        ("repeated", "liveness"),
        ("non_resilient shared",),
    ),
    PlantedFault(
        "A shared resilient subscription sends a message while another is out",
        "broker/subscriptions/kinds.py",
        "        if not receivers or self._blocked():\n            return []\n        cursor",
        "        if not receivers:\n            return []\n        cursor",
        ("turns",),
        ("resilient shared", "several"),
    ),
    PlantedFault(
        "A key's next message does not wait for the one before it",
        "broker/subscriptions/key_shared.py",
        "        if self.strict:\n            return False\n",
        "        if self.strict:\n            return owner.open\n",
        ("turns",),
        ("resilient key_shared",),
    ),
    PlantedFault(
        "A key goes to two consumers at a time",
        "broker/subscriptions/key_shared.py",
        "        if owner is not None:\n"
        "            return owner if self._continues(table, slot, owner) else None",
        "        if owner is not None and self._continues(table, slot, owner):\n"
        "            return receivers[entry % len(receivers)]",
        ("apart",),
        ("calm", "non_resilient key_shared", "several"),
    ),
    PlantedFault(
        "A key's messages overtake one that waits",
        "broker/subscriptions/key_shared.py",
        "        if waiting is not None and waiting.bits.min() < entry:\n            return None",
        "",
        ("turns",),
        ("resilient key_shared",),
    ),
    PlantedFault(
        "A dead message is settled before its copy is durable",
        "broker/subscriptions/dead_letters.py",
        "        if spans:\n            yield on_disk(dead.shards[shard % len(dead.shards)].lane)",
        "        dead.shards[shard % len(dead.shards)].lane.mark()",
        ("unsettled",),
        scenario="dead-letters",
    ),
    PlantedFault(
        "A dead message gets no copy",
        "broker/subscriptions/dead_letters.py",
        "                self._copy_rows(subscription, topic, target, shard, record, wanted)",
        "                pass",
        ("unsettled",),
        ("dies",),
    ),
    PlantedFault(
        "A dead message is copied again after a crash",
        "broker/subscriptions/dead_letters.py",
        "        if not isinstance(verdict, Admit):\n            return  # the copy exists already",
        "",
        ("dead", "ledger"),
        scenario="dead-letters",
    ),
    PlantedFault(
        "A snapshot of settlements forgets what is settled out of order",
        "broker/subscriptions/journal.py",
        "        sets = (cursor.settled.encode(), ",
        "        sets = (EntrySet().encode(), ",
        ("returned", "ledger", "recovered", "liveness"),
        (START,),
    ),
    PlantedFault(
        "A snapshot of settlements forgets the ledger's counts",
        "broker/subscriptions/journal.py",
        "        yield Tallied(topic, name, shard, cursor.tally)",
        "        pass",
        ("ledger",),
        (START,),
    ),
    PlantedFault(
        "A clock that was set back lets a refused message wait longer",
        "broker/subscriptions/journal.py",
        "            wait_us = min(due_us - now_us, due_us - at_us, round(SECONDS_MAX * 1e6))",
        "            wait_us = due_us - now_us",
        ("liveness",),
        scenario="clocks",
    ),
    PlantedFault(
        "A staged batch that comes again is committed again",
        "broker/staging/staging.py",
        "            if writer is None or ask.batch > writer.batch:",
        "            if writer is None or ask.batch >= writer.batch:",
        ("batches", "unhandled", "liveness"),
        ("writers",),
    ),
    PlantedFault(
        "A batch is published before its record is durable, under numbers that no repeat has",
        "broker/staging/staging.py",
        "        uuid = known.uuid if known is not None else self._context.new_uuid()\n"
        "        parts = number_segments(uuid, known.next if known is not None else {}, stages)\n"
        "        rows = sum(stage.rows for stage in stages)\n"
        "        now_us = self._context.now_us()\n"
        "        record = BatchRecorded(ask.writer, uuid, ask.batch, now_us, parts, rows, size, ask.holder)\n"
        "        self._stages.claim(ask.stages)\n"
        "        self._writers_journal.note(record)\n"
        "        writer = self._writers.get(ask.writer)\n"
        "        assert writer is not None\n"
        "        yield on_disk(self._writers_journal.lane)  # the journal repeats a write that failed\n",
        "        uuid = self._context.new_uuid()\n"
        "        parts = number_segments(uuid, {}, stages)\n"
        "        rows = sum(stage.rows for stage in stages)\n"
        "        now_us = self._context.now_us()\n"
        "        record = BatchRecorded(ask.writer, uuid, ask.batch, now_us, parts, rows, size, ask.holder)\n"
        "        self._stages.claim(ask.stages)\n"
        "        self._writers_journal.note(record)\n"
        "        writer = self._writers.get(ask.writer)\n"
        "        assert writer is not None\n"
        "        yield from ()\n",
        ("batches",),
        ("writers", CRASH, "slow disk"),
    ),
    PlantedFault(
        "A batch is committed before its segments are durable",
        "broker/staging/publish.py",
        "                try:\n                    yield write\n",
        "                try:\n                    yield from ()\n",
        ("batches",),
        ("writers", f"{CRASH}|sync fails"),
    ),
    PlantedFault(
        "A node that starts does not publish the batch that was committed",
        "broker/staging/publish.py",
        "                run(self.publish(writer), lambda done: None, lambda error: None)",
        "                writer.pending = None",
        ("batches",),
        ("writers", CRASH),
    ),
    PlantedFault(
        "The stages of a batch are dropped before it is published",
        "broker/staging/publish.py",
        '        batch = f"batch {record.batch} of writer {writer.name!r}"',
        '        batch = f"batch {record.batch} of writer {writer.name!r}"\n'
        "        self._stores.stages.drop([part.stage for part in record.parts])",
        ("batches", "ledger"),
        ("writers",),
    ),
    PlantedFault(
        "A repeated publication stores segments twice",
        "broker/staging/publish.py",
        "        return known is not None and self.segment in known.admitted",
        "        return False",
        ("batches", "unhandled"),
        ("writers", f"{CRASH}|sync fails"),
    ),
    PlantedFault(
        "A stage counts as finished before its chunks are durable",
        "broker/staging/stages.py",
        "        stage.finished = True\n        stage.touched_us = now_us\n        batch = self._begun()",
        "        stage.finished = stage.finish_durable = True\n        stage.touched_us = now_us\n"
        "        batch = self._begun()",
        ("batches", "liveness"),
        ("writers", CRASH),
    ),
    PlantedFault(
        "The end of a connection ends the lease at once",
        "broker/subscriptions/subscription.py",
        "        if self.lease_s and attachment.welcome and self.active(attachment):",
        "        if not attachment.connected:",
        ("lease",),
        ("resilient failover", "several", BROKEN),
    ),
    PlantedFault(
        "A delivery costs no credit",
        "broker/subscriptions/subscription.py",
        "                receiver.credit_bytes -= sum(map(len, record.parts))",
        "                pass",
        ("limits",),
    ),
    PlantedFault(
        "The memory of an answered segment is not free again",
        "broker/ingest/ingest.py",
        "            self._context.unacked_bytes -= size\n            if error is not None:",
        "            if error is not None:",
        ("limits",),
    ),
    PlantedFault(
        "A delivery that came back is not counted",
        "broker/subscriptions/cursor.py",
        "        returned = self.delivered.shift(delivered, 1)\n        for deliveries, part in returned:",
        "        returned = list[ReturnedSet]()\n        for deliveries, part in returned:",
        ("repeated",),
        (f"{BROKEN}|{CLIENT_CRASH}",),
    ),
    PlantedFault(
        "The ledger counts an acknowledgement twice",
        "broker/subscriptions/subscription.py",
        "            cursor.tally.acked += count",
        "            cursor.tally.acked += 2 * count",
        ("ledger",),
    ),
]

PRODUCER = [
    PlantedFault(
        "A message counts as spilled before the refill is synced",
        "producer/spills.py",
        "            refill.write_statuses()\n            refill.sync()",
        "            refill.write_statuses()",
        ("lost",),
        ("refill", CLIENT_POWER),
    ),
    PlantedFault(
        "A refill file is removed before everything in it is confirmed",
        "producer/spills.py",
        "            if refill.done() and not refill.claims.refused_there:\n                refill.remove()",
        "            if not refill.claims.refused_there:\n                refill.remove(force=True)",
        ("lost",),
        ("refill",),
    ),
    PlantedFault(
        "A new refill file gets its name before it is synced",
        "producer/refill/file.py",
        "            file.write_at(0, self._head)\n            file.sync()",
        "            file.write_at(0, self._head)",
        ("lost", "liveness"),
        ("refill", CLIENT_POWER),
    ),
    PlantedFault(
        "The folder is not synced after a refill file got its name",
        "producer/refill/file.py",
        "            disk.sync_folder(_folder_of(path))\n        except OSError:\n            file.close()",
        "        except OSError:\n            file.close()",
        ("lost",),
        ("refill", CLIENT_POWER),
    ),
    PlantedFault(
        "A refill trusts the bytes of a failed sync",
        "producer/refill/file.py",
        "                self._cut_back(self.synced_bytes, self._mark)\n"
        "                self.dirty = False\n"
        "                raise",
        "                self.synced_bytes = self.end\n"
        "                self.dirty = False\n"
        "                raise",
        ("lost", "liveness"),
        scenario="refill",
    ),
    PlantedFault(
        "A refill confirms one segment too many",
        "producer/refill/claims.py",
        "                return missing[0][0]",
        "                return missing[0][0] + 1",
        ("lost",),
        ("refill",),
    ),
    PlantedFault(
        "A producer that starts does not adopt the refill of the run before",
        "producer/blocks.py",
        "        paths = self._sendable_paths() if place is not None else []",
        "        paths: list[str] = []",
        ("liveness",),
        ("refill", CLIENT_CRASH),
    ),
    PlantedFault(
        "The youngest refill file is sent first",
        "producer/refill/folder.py",
        '    return [f"{slot}/{name}" for name in sorted_names] if slot else sorted_names',
        '    return [f"{slot}/{name}" for name in sorted_names[::-1]] if slot else sorted_names',
        ("order",),
        ("refill", "rotate_after", "kill node|cut power|stop node|partition|one-way partition"),
    ),
    PlantedFault(
        "A refill file is sent as a new block",
        "producer/blocks.py",
        "        return Manager(\n            refill.block,",
        "        return Manager(\n            refill.block if make_encoder else self._new_block(),",
        ("lost",),
        ("refill",),
    ),
    PlantedFault(
        "A new block is sent beside the one before it",
        "producer/keeper.py",
        "                found.append(manager)\n"
        "                if self._ordered:\n"
        "                    return found",
        "                found.append(manager)",
        ("order",),
        ("refill", "rotate_after"),
    ),
    PlantedFault(
        "A sender that goes back forgets the segments in flight",
        "producer/sender.py",
        '        """Begins a session at the first unconfirmed segment."""\n        self.cursor = self.floor',
        '        """Begins a session at the first unconfirmed segment."""',
        ("liveness", "lost"),
        (BROKEN,),
    ),
    PlantedFault(
        "A sender that was held is held for ever",
        "producer/sender.py",
        "            if self.held_until > now:\n                return []\n            self.held_until = None",
        "            return []",
        ("liveness",),
    ),
    PlantedFault(
        "Keys are dealt out to shards in turn",
        "producer/encoder.py",
        "        by_code = [hashed & self.mask for hashed in hashes]",
        "        by_code = [(hashed + self.turn) & self.mask for hashed in hashes]",
        ("keys",),
        ("shards",),
    ),
    PlantedFault(
        "A rejected segment leaves memory before the refill has it",
        "producer/exchange.py",
        "            held.rejected.add(destination)\n            self.to_write[key] = None",
        "            held.rejected.add(destination)\n            self.to_write[key] = None\n"
        "            self._spill(key, held, destination)",
        ("lost", "unhandled"),
    ),
]

CLIENT = [
    PlantedFault(
        "A client that lost its connection makes no new one",
        "client/link/link.py",
        "            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())\n"
        "\n"
        "    def _on_refused",
        "            self._reconnecting = None\n\n    def _on_refused",
        ("liveness",),
        (BROKEN,),
    ),
    PlantedFault(
        "A client gives up after one failed attempt to reconnect",
        "client/link/link.py",
        '                    log.warning("still not connected, trying again: %s", error.message)',
        '                    log.warning("still not connected, trying again: %s", error.message)\n'
        "                return",
        ("liveness",),
        (CRASH,),
    ),
    PlantedFault(
        "A new connection collects the rest of a delivery of the old one",
        "client/link/link.py",
        "        self._delivery = None\n        connection.watch",
        "        connection.watch",
        ("liveness", "altered", "unhandled"),
        ("cut",),
    ),
    PlantedFault(
        "Segments of another block follow without its title",
        "client/link/link.py",
        "        if self._connection.title != title:",
        "        if self._connection.title is None:",
        ("lost", "order", "liveness", "unhandled"),
        ("refill", "rotate_after"),
    ),
    PlantedFault(
        "A connection that is silent never ends",
        "client/link/connection.py",
        "        if silent_s >= dead_after_s:",
        "        if False:",
        ("liveness",),
        ("silence connection",),
    ),
    PlantedFault(
        "A consumer does not subscribe again on a new connection",
        "client/consume/intake.py",
        "        if self.error is None and not self._closed and self._left is None:\n"
        "            self._resubscribe()",
        "        pass",
        ("liveness",),
        (f"{BROKEN}|{CRASH}",),
    ),
    PlantedFault(
        "Settlements that were not confirmed are not sent again",
        "client/consume/intake.py",
        "        self.link.send(*self.settler.unconfirmed)",
        "        pass",
        ("returned", "liveness"),
        (BROKEN,),
    ),
    PlantedFault(
        "Of the settlements that were not confirmed, the first is not sent again",
        "client/consume/intake.py",
        "        self.link.send(*self.settler.unconfirmed)",
        "        self.link.send(*list(self.settler.unconfirmed)[1:])",
        ("returned", "liveness", "hands"),
        (BROKEN,),
    ),
    PlantedFault(
        "A consumer keeps what was sent ahead over a lost connection",
        "client/consume/intake.py",
        "        self._heartbeat.stop()\n        self._drop_ahead()\n        if self._left is not None",
        "        self._heartbeat.stop()\n        if self._left is not None",
        ("repeated", "returned", "turns"),
        (BROKEN,),
    ),
    PlantedFault(
        "A consumer does not renew its lease",
        "client/consume/intake.py",
        "        self._link.send(Renew(self._consumer, self._number))",
        "        pass",
        ("liveness",),
        ("resilient unique|resilient failover",),
    ),
    PlantedFault(
        "A consumer returns no credit",
        "client/consume/intake.py",
        "            self.link.send(Credit(self.number, self._owed_bytes))\n            self._owed_bytes = 0",
        "            self._owed_bytes = 0",
        ("liveness",),
    ),
    PlantedFault(
        "Two acknowledgements settle what lies between them",
        "client/consume/settler.py",
        "        if start == unsent.end:",
        "        if start >= unsent.end > unsent.start:",
        ("unsettled", "unhandled", "liveness"),
    ),
    PlantedFault(
        "A confirmation counts for the next settlement too",
        "client/consume/settler.py",
        "        while self.unconfirmed and self.unconfirmed[0].number <= number:",
        "        while self.unconfirmed and self.unconfirmed[0].number <= number + 1:",
        ("returned", "liveness"),
        (BROKEN,),
    ),
    PlantedFault(
        "A flush returns before the node has confirmed",
        "client/consume/settler.py",
        "        self._flushes.append((self.number, done))",
        "        done.set_result(None)",
        ("returned",),
        (f"{CRASH}|reset",),
    ),
    PlantedFault(
        "A resilient consumer gets the next message before it settled the last",
        "client/consume/consumer.py",
        "            gate.in_hand, gate.shut = message, True",
        "            gate.in_hand = message",
        ("turns",),
        ("resilient unique|resilient failover",),
    ),
    PlantedFault(
        "The rows of a record are those of the record before",
        "client/consume/deliveries.py",
        "                self._rows.pop(deliver.shard, None)",
        "                pass",
        ("liveness", "unhandled", "altered"),
        ("resilient shared|resilient key_shared",),
    ),
    PlantedFault(
        "A receipt names the entry of the segment's first message",
        "client/produce/promise.py",
        "        entry = None if fate.first_entry is None else fate.first_entry + row",
        "        entry = fate.first_entry",
        ("receipts",),
    ),
    PlantedFault(
        "A producer takes messages beyond its limit of memory",
        "client/produce/producer.py",
        "        if batcher.bytes - self._outstanding.freed_bytes >= self._memory_max:",
        "        if False:",
        ("limits",),
        ("memory_max",),
    ),
    PlantedFault(
        "A consumer hands out messages after its lease",
        "client/consume/gate.py",
        "        self._barred = self.paused or not self.active or now >= self._lease_until",
        "        self._barred = self.paused or not self.active",
        ("lease",),
        ("resilient failover", "several", "stop client|partition|one-way partition|stall"),
    ),
    PlantedFault(
        "A program gets again what it has in hand",
        "client/consume/gate.py",
        "        return without(batch, again)",
        "        return batch",
        ("hands",),
        (BROKEN,),
    ),
]

WIRE = [
    PlantedFault(
        "The checksum of a frame is not checked",
        "wire/frame.py",
        "    if extend(value(header), body) != crc:",
        "    if False:",
        ("altered", "unhandled", "lost", "liveness"),
        ("flip",),
    ),
    PlantedFault(
        "A frame that arrives in two pieces loses its first",
        "wire/frame.py",
        "        self._chunks = [buffer[at:]] if have > at else []",
        "        self._chunks = []",
        ("liveness", "unhandled"),
        ("split",),
    ),
    PlantedFault(
        "A connection that got a broken frame continues behind it",
        "wire/frame.py",
        "            self.fault = fault\n            self.clear()",
        "            self.clear()",
        ("liveness", "returned", "unhandled"),
        ("flip",),
    ),
]

FAULTS = [*STORAGE, *BROKER, *PRODUCER, *CLIENT, *WIRE]
