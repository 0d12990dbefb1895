"""A program that reads a topic by position and notes how far it came, as Spark's source does."""

from __future__ import annotations

import headpond
from headpond.sim.actors.program import Program, Role, value_of
from headpond.sim.history import Gone, Seen
from headpond.sim.plan import ReaderPlan


class ReaderProgram(Program):
    def __init__(self, role: Role, life: int, plan: ReaderPlan, url: str) -> None:
        super().__init__(role, life)
        self.plan = plan
        self.url = url
        self._next: dict[int, tuple[int, int]] = {}
        """By shard: the next entry and its incarnation."""

    async def run(self) -> None:
        async with self.connect(self.url) as client, client.reader(self.plan.topic) as reader:
            while not self.role.ending:
                for shard, ends in enumerate(await reader.ends()):
                    entry, _ = self._next.get(shard, (0, 0))
                    if entry < ends.entry_next:
                        await self._read(reader, shard, entry, ends.entry_next)
                await self.rest(self.random.random() * self.plan.pause_s)

    async def _read(self, reader: headpond.Reader, shard: int, entry: int, end: int) -> None:
        plan = self.plan
        incarnation = self._next[shard][1] if shard in self._next else None
        async for part in reader.read(shard, entry, end, incarnation=incarnation):
            for batch in part.batches:
                for message in batch.messages():
                    seen = (plan.topic, plan.node, shard, message.entry, value_of(message), message.key)
                    self.history.add(Seen(*seen, str(self), self.now_s()))
            for lost in part.lost:
                self.history.add(Gone(plan.topic, plan.node, *lost))
            self._next[shard] = (part.entry_next, part.incarnation)
            self.note(f"read {shard}/{entry} up to {part.entry_next}")
            entry = part.entry_next
