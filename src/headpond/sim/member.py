"""A group of nodes in the world: three members on three machines over one simulated stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from headpond.broker.core import NodeCore
from headpond.broker.effects import Effect, Send
from headpond.cluster.active import Active
from headpond.cluster.copy import LOCAL
from headpond.cluster.records import ActiveMember
from headpond.cluster.replicated_disk import ReplicatedDisk
from headpond.model.errors import HeadpondError
from headpond.node.member import JournalAndBucket, MemberLife
from headpond.node.server import Server
from headpond.sim.jetstream import SimJournal, Stream
from headpond.sim.node import SimNode, SimServer
from headpond.sim.process import Machine, Process
from headpond.wire.frame import FrameType

MEMBERS = "abc"


class MemberServer(SimServer):
    """Notes what it sends to clients after another member has begun to serve them."""

    group: SimGroup
    number: int
    """Of the times that a member began to serve."""

    def _do(self, effect: Effect) -> None:
        if (
            isinstance(effect, Send)
            and self.number < self.group.starts
            and effect.parts[0][0] != FrameType.PING
        ):
            self.group.answers.append(f"{self.process} answers, though another member serves")
        super()._do(effect)


class SimMember(SimNode):
    """A member of a group: the real life of one, killed and started again."""

    def __init__(self, machine: Machine, group: SimGroup) -> None:
        super().__init__(machine)
        confirm = "journal+standby" if group.standby_confirms else "journal"
        self.settings = msgspec.structs.replace(
            self.settings, cluster="nats://sim", member=machine.name, confirm=confirm
        )
        self._group = group
        self.life: MemberLife | None = None
        self._stopped = asyncio.Event()

    @property
    def active(self) -> Active | None:
        """While it serves clients, and no other member can."""
        if not self.up or self.life is None or self.life.server is None or self.life.member is None:
            return None
        active = self.life.member.active
        return active if active is not None and active.certain else None

    async def _begin(self, process: Process) -> None:
        process.disk.lock()
        self._stopped = asyncio.Event()
        self.life = MemberLife(
            self.settings,
            process.disk,
            connect=partial(self._connect, process),
            in_thread=partial(process.work, None),
            refuses=self._group.refuses,
            new_server=partial(self._new_server, process),
            instance=f"{self.starts:08}",
            waits=False,
        )
        process.spawn(self._live(process, self.life))

    async def _live(self, process: Process, life: MemberLife) -> None:
        """To the end of the life; then the supervisor starts the next one."""
        try:
            await life.live(self._stopped)
            process.disk.unlock()
        except (OSError, HeadpondError):
            pass  # the process ends with an error
        except Exception as error:  # noqa: BLE001  # the run fails with it
            self._group.failures.append(f"{process}: {error!r}")
        process.kill()

    async def _connect(self, process: Process, me: ActiveMember) -> JournalAndBucket:
        return SimJournal(self._group.stream, process), None

    def _new_server(
        self, process: Process, disk: ReplicatedDisk, core: NodeCore, certain: Callable[[], bool]
    ) -> Server:
        server = MemberServer(disk, core, self.settings, threads=process.executor, certain=certain)
        server.process = process
        self.server = server
        self._group.starts += 1
        server.group, server.number = self._group, self._group.starts
        return server

    def compare_recoveries(self) -> None:
        """A folder that was cut off in the middle is no node's before the stream completes it."""

    def start(self) -> asyncio.Task[None]:
        self.life = None
        return super().start()

    async def stop(self) -> None:
        """A clean stop: another member takes over."""
        self._stopped.set()


class SimGroup:
    """What programs see as one node."""

    def __init__(self, machines: list[Machine], stream: Stream, *, standby_confirms: bool = False) -> None:
        """``standby_confirms``: a change counts only when a standby has it too."""
        self.stream = stream
        self.standby_confirms = standby_confirms
        self.members = [SimMember(machine, self) for machine in machines]
        self.starts = 0
        """How often a member began to serve."""
        self.answers: list[str] = []
        """Of members that were replaced: they must answer nobody."""
        self.failures: list[str] = []
        """Lives that ended with an exception that no operator expects."""
        places = ",".join(member.url.removeprefix("headpond://") for member in self.members)
        self.url = f"headpond://{places}"

    def differences(self) -> Iterator[str]:
        """Files that members have and the first one has not, or not the same; all are at the stream's end."""
        folders = [
            {path: disk.contents(path) for path in disk.paths() if path.partition("/")[0] not in LOCAL}
            for disk in (member.machine.disk for member in self.members)
        ]
        for member, folder in zip(self.members, folders, strict=True):
            for path in sorted(folder.keys() | folders[0].keys()):
                if folder.get(path) != folders[0].get(path):
                    yield f"{path} differs on {member.machine.name} and {self.members[0].machine.name}"

    @property
    def settled(self) -> bool:
        """Whether every member has applied the whole stream."""
        last = self.stream.extent.last_seq
        statuses = [each.life.member.status() for each in self.members if each.life and each.life.member]
        return len(statuses) == len(self.members) and all(each.seq == last for each in statuses)

    async def refuses(self, active: ActiveMember) -> bool:
        """Whether the machine of a member runs and nothing listens there; a machine may also not answer."""
        (member,) = [each for each in self.members if each.machine.name == active.member]
        return not member.up

    @property
    def active(self) -> SimMember | None:
        """The member that serves clients."""
        return next((member for member in self.members if member.active is not None), None)
