"""Guards of a cluster: without any one of them, seeds of the scenario ``cluster`` must fail."""

from __future__ import annotations

from tests.sim.planted import PlantedFault

LOST = ("lost", "unhandled", "returned", "batches", "repeated", "liveness", "receipts", "ledger", "numbers")

CLUSTER = [
    PlantedFault(
        "A change counts as durable before the stream has confirmed it",
        "cluster/replicated_disk.py",
        "            if self._failure is None and self._durable_number < self.outbox.number:",
        "            if False:",
        LOST,
    ),
    PlantedFault(
        "A record counts although the one before it is not confirmed",
        "cluster/outbox.py",
        "        while self.flight and self.flight[0].confirmed:",
        "        while self.flight and any(each.confirmed for each in self.flight):",
        LOST,
    ),
    PlantedFault(
        "A refused record counts as stored",
        "cluster/outbox.py",
        "        for record in waiting:\n            record.confirmed = False",
        "        for record in waiting:\n            record.confirmed = True",
        LOST,
    ),
    PlantedFault(
        "A member that was replaced does not notice it",
        "cluster/outbox.py",
        "            if epoch > self.epoch:",
        "            if False:",
        LOST,
    ),
    PlantedFault(
        "A member applies the records of one that was replaced",
        "cluster/apply.py",
        "        void = record.epoch < at.epoch or (record.epoch == at.epoch and not fits)",
        "        void = record.epoch == at.epoch and not fits",
        LOST,
    ),
    PlantedFault(
        "A checkpoint is noted before the files are synced",
        "cluster/apply.py",
        "            if (file := self._file(path)) is not None:\n                file.sync()",
        "            pass",
        LOST,
    ),
    PlantedFault(
        "A member continues behind the end of its folder after a power cut",
        "cluster/apply.py",
        "        self.checkpointed = self.position = msgspec.structs.replace(self.position, done=done)",
        "        self.checkpointed = self.position = msgspec.structs.replace(self.position, done=done, "
        "seq=self.position.seq + 1)",
        LOST,
    ),
    PlantedFault(
        "A member that may be replaced answers its clients",
        "cluster/active.py",
        "        return not self.ended.done() and self._loop.time() - self._proven_s < CERTAIN_S",
        "        return True",
        ("replaced",),
    ),
    PlantedFault(
        "A member that starts takes over at once",
        "cluster/standby.py",
        "    return CERTAIN_S if is_own else SILENCE_S",
        "    return 0.0",
        ("replaced",),
    ),
    PlantedFault(
        "A new member takes the copy of a folder for the end of the stream",
        "cluster/copy.py",
        "        self._files = [(path, self._disk.open(path)) for path in shared_paths(self._disk)]",
        "        self._files = [(path, self._disk.open(path)) for path in shared_paths(self._disk)][1:]",
        LOST,
    ),
]
