"""The faults that happen to machines and processes; bytes on the network have their own (sim/network.py).

Each is a function of the cast that does one thing now, and says whether there was something to do it to.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from headpond.sim.actors.actor import Actor
from headpond.sim.cast import Cast
from headpond.sim.damage import damage_copy
from headpond.sim.history import Restored, SetBack
from headpond.sim.jetstream import StreamServer
from headpond.sim.member import SimGroup
from headpond.sim.node import SimNode
from headpond.sim.process import Machine, Trap
from headpond.storage.memory_disk import Keep, MemoryDisk, Operation

KEEP: tuple[Keep, ...] = ("none", "all", "some", "some", "some")
"""What a power cut keeps of unsynced bytes."""
HALF_DONE = (
    *(f"disk sync {folder}" for folder in ("topics", "topics", "commits", "settlements", "stages", "writers")),
    *(f"disk write {folder}" for folder in ("topics", "settlements", "stages")),
    *(f"disk rename {folder}" for folder in ("topics", "settlements", "writers", "catalog")),
    "disk remove",
    "disk sync refill",
    "disk rename refill",
)
"""Points at which a write is half done, where a slow disk spends most of its time."""
FOLDERS = ("", "", "topics/")
"""Where writes and syncs fail: anywhere, or in logs alone."""


def _node(cast: Cast) -> SimNode | None:
    running = [node for node in cast.hosts if node.up]
    return cast.random.choice(running) if running else None


def _client(cast: Cast) -> Actor | None:
    running = [actor for actor in cast.actors if actor.up]
    return cast.random.choice(running) if running else None


def kill_node(cast: Cast) -> bool:
    return _kill(cast, _node(cast))


def _kill(cast: Cast, program: SimNode | Actor | None) -> bool:
    if program is None or program.process is None:
        return False
    cast.note(f"{program.process} is killed")
    program.process.kill()
    return True


def kill_node_at_a_point(cast: Cast) -> bool:
    return _set_trap(cast, _machine_of_node(cast), None)


def cut_power_at_a_point(cast: Cast) -> bool:
    return _set_trap(cast, _machine_of_node(cast), cast.random.choice(KEEP))


def _set_trap(cast: Cast, machine: Machine, keep: Keep | None) -> bool:
    """By count, by kind, or in the middle of a write: so rare points and narrow windows get their share."""
    by = cast.random.choice(["count", "kind", "write", "write"])
    if by == "kind" and machine.points:
        machine.trap = Trap(cast.random.choice(sorted(machine.points)), cast.random.choice([0, 0, 1, 3]), keep)
    elif by == "write" and (places := [each for each in HALF_DONE if machine.has_point(each)]):
        machine.trap = Trap(cast.random.choice(places), cast.random.choice([0, 0, 1, 3]), keep)
    else:
        machine.trap = Trap("", cast.random.choice([0, 1, 3, 10, 40]), keep)
    cast.note(f"{machine.name} gets {machine.trap}")
    return True


def restart_node(cast: Cast) -> bool:
    """A clean stop."""
    if (node := _node(cast)) is None or node.server is None or node.process is None or node.process.stopped:
        return False
    cast.note(f"{node.process} is stopped in good order")
    cast.loop.create_task(node.stop())
    return True


def cut_power(cast: Cast) -> bool:
    """Now, or while a log is synced."""
    machine, keep = _machine_of_node(cast), cast.random.choice(KEEP)
    if cast.random.random() < 0.5:
        machine.trap = Trap("disk sync topics", cast.random.choice([0, 0, 1, 3]), keep)
        cast.note(f"{machine.name} gets {machine.trap}")
    else:
        cast.note(f"{machine.name} loses its power and keeps {keep}")
        machine.cut_power(keep)
    return True


def tear_write(cast: Cast) -> bool:
    """The power is cut while a log is synced, and the disk keeps some sectors of that write."""
    machine = _machine_of_node(cast)
    machine.trap = Trap("disk sync topics", cast.random.choice([1, 3, 10]), "some")
    cast.note(f"{machine.name} gets {machine.trap}")
    return True


def cut_power_of_client(cast: Cast) -> bool:
    actor = cast.random.choice([*cast.actors, *cast.producers])
    keep = cast.random.choice(KEEP)
    cast.note(f"{actor.machine.name} loses its power and keeps {keep}")
    actor.machine.cut_power(keep)
    return True


def stop_node(cast: Cast) -> bool:
    return _stop(cast, _node(cast))


def _stop(cast: Cast, program: SimNode | Actor | None) -> bool:
    if program is None or (process := program.process) is None:
        return False
    pause_s = cast.pause_s()
    cast.note(f"{process} stands still for {pause_s} s")
    process.stop()
    cast.loop.call_in(None, pause_s, process.resume)
    return True


def kill_client(cast: Cast) -> bool:
    return _kill(cast, _client(cast))


def kill_client_at_a_point(cast: Cast) -> bool:
    return _set_trap(cast, cast.random.choice(cast.producers).machine, None)


def cut_power_of_client_at_a_point(cast: Cast) -> bool:
    return _set_trap(cast, cast.random.choice(cast.producers).machine, cast.random.choice(KEEP))


def stop_client(cast: Cast) -> bool:
    return _stop(cast, _client(cast))


def twin(cast: Cast) -> bool:
    """A second process of the same name runs on the same machine."""
    if (actor := _single(cast)) is None:
        return False
    cast.note(f"{actor.name} runs twice")
    actor.twin()
    return True


def zombie(cast: Cast) -> bool:
    """A process stands still, another takes its place, and the first wakes up."""
    if (actor := _single(cast)) is None:
        return False
    process = actor.running[0].process
    pause_s = cast.pause_s()
    cast.note(f"{process} stands still for {pause_s} s, and another takes its place")
    process.stop()
    actor.twin()
    cast.loop.call_in(None, pause_s, process.resume)
    return True


def _single(cast: Cast) -> Actor | None:
    """An actor with one process."""
    running = [actor for actor in cast.actors if len(actor.running) == 1]
    return cast.random.choice(running) if running else None


def partition(cast: Cast) -> bool:
    return _cut(cast, both=True)


def one_way_partition(cast: Cast) -> bool:
    return _cut(cast, both=False)


def _cut(cast: Cast, *, both: bool) -> bool:
    node = cast.random.choice(cast.hosts).machine.name
    other = cast.random.choice([actor.machine.name for actor in cast.actors])
    pairs = [(node, other), (other, node)]
    cast.random.shuffle(pairs)
    pause_s = cast.pause_s()
    for source, target in pairs if both else pairs[:1]:
        cast.note(f"nothing arrives from {source} at {target} for {pause_s} s")
        cast.network.cut(source, target)
        cast.loop.call_in(None, pause_s, cast.network.heal_between, source, target)
    return True


def reset_connection(cast: Cast) -> bool:
    if (actor := _client(cast)) is None or actor.process is None:
        return False
    cast.note(f"a connection of {actor.process} is reset")
    cast.network.reset_some(actor.process)
    return True


def silence_connection(cast: Cast) -> bool:
    """A router forgets a connection: nothing arrives on it, and neither side hears of that."""
    if (actor := _client(cast)) is None or actor.process is None:
        return False
    cast.note(f"a connection of {actor.process} falls silent")
    cast.network.silence_some(actor.process)
    return True


def clock_jump(cast: Cast) -> bool:
    machine = cast.random.choice(cast.machines)
    machine.skew_us += round(cast.random.choice([-3600e6, -5e6, 5e6, 3600e6]))
    cast.note(f"the clock of {machine.name} is now {machine.skew_us / 1e6:g} s wrong")
    return True


def sync_fails(cast: Cast) -> bool:
    return _fail(cast, _machine_of_node(cast), "sync", errno.EIO)


def write_fails(cast: Cast) -> bool:
    return _fail(cast, _machine_of_node(cast), "write", errno.ENOSPC)


def read_fails(cast: Cast) -> bool:
    return _fail(cast, _machine_of_node(cast), "read", errno.EIO)


def sync_of_client_fails(cast: Cast) -> bool:
    return _fail(cast, cast.random.choice(cast.producers).machine, "sync", errno.EIO)


def write_of_client_fails(cast: Cast) -> bool:
    return _fail(cast, cast.random.choice(cast.producers).machine, "write", errno.ENOSPC)


def _machine_of_node(cast: Cast) -> Machine:
    return cast.random.choice(cast.hosts).machine


def _fail(cast: Cast, machine: Machine, operation: Operation, error: int) -> bool:
    if machine.disk.failing:
        return False
    times = 1 if operation == "read" else cast.random.choice([1, 1, 3])  # a sector that fails twice is damaged
    folder = cast.random.choice(FOLDERS)
    if machine.name not in cast.nodes:
        folder = ""  # a client has no logs
    cast.note(f"the next {operation} of {machine.name} below /{folder} fails ({times})")
    machine.disk.fail_next(operation, error, times, folder)
    return True


def disk_full(cast: Cast) -> bool:
    """A disk has little room for some time."""
    disk = _machine_of_node(cast).disk if cast.random.random() < 0.5 else cast.random.choice(cast.machines).disk
    pause_s = cast.pause_s()
    disk.capacity_bytes = disk.used_bytes() + cast.random.choice([0, 3000])
    cast.note(f"a disk has room for {disk.free_bytes()} bytes for {pause_s} s")
    cast.loop.call_in(None, pause_s, _give_room, disk)
    return True


def _give_room(disk: MemoryDisk) -> None:
    disk.capacity_bytes = None


def damage(cast: Cast) -> bool:
    """A bit flips in a copy of a node's disk, and a node opens the copy (sim/damage.py)."""
    return damage_copy(cast.random.choice(cast.hosts), cast.random)


def damage_after_a_stop(cast: Cast) -> bool:
    """The same to a copy of a node that was stopped in good order."""
    return damage_copy(cast.random.choice(cast.hosts), cast.random, stopped=True)


def old_backup(cast: Cast) -> bool:
    """A node that only follows another one is put back to an old copy of its folder."""
    return cast.follower is not None and _put_back(cast, cast.follower)


def old_backup_of_the_only_node(cast: Cast) -> bool:
    """Messages that it got since are gone; nothing that a client remembers of them may touch others."""
    return _put_back(cast, next(iter(cast.nodes)))


def _put_back(cast: Cast, name: str) -> bool:
    node = cast.nodes[name]
    assert isinstance(node, SimNode)
    if name not in cast.backups or cast.random.random() < 0.3:
        if node.up:
            cast.backups[name] = node.machine.disk.copy()
        return False
    cast.note(f"{name} is put back to an old copy of its folder")
    cast.history.add(Restored(name, cast.loop.time()))
    node.machine.cut_power("none")
    node.machine.disk = cast.backups[name].copy()
    return True


def old_backup_of_client(cast: Cast) -> bool:
    """The machine of a producer that continues its numbers is put back to an old copy of its disk."""
    if not cast.resuming:
        return False
    actor = cast.random.choice(cast.resuming)
    if actor.name not in cast.backups or cast.random.random() < 0.3:
        if actor.up:
            cast.backups[actor.name] = actor.machine.disk.copy()
        return False
    cast.note(f"{actor.name} is put back to an old copy of its disk")
    cast.history.add(SetBack(actor.name))
    actor.machine.cut_power("none")
    actor.machine.disk = cast.backups[actor.name].copy()
    return True


# --- of a cluster -------------------------------------------------------------------------------------


def kill_server(cast: Cast) -> bool:
    """A server of the stream; its data is on its disk."""
    return _for_a_while(cast, "is killed", StreamServer.kill, StreamServer.start)


def pause_server(cast: Cast) -> bool:
    return _for_a_while(cast, "stands still", StreamServer.pause, StreamServer.resume)


def lag_server(cast: Cast) -> bool:
    return _for_a_while(cast, "lags", StreamServer.lag, StreamServer.catch_up)


def _for_a_while(
    cast: Cast, what: str, begin: Callable[[StreamServer], None], end: Callable[[StreamServer], None]
) -> bool:
    server, pause_s = cast.random.choice(_group(cast).stream.servers), cast.pause_s()
    cast.note(f"{server.name} {what} for {pause_s} s")
    begin(server)
    cast.loop.call_in(None, pause_s, end, server)
    return True


def cut_from_stream(cast: Cast) -> bool:
    """A member does not reach some servers, or they do not reach it, or two servers each other."""
    group, pause_s = _group(cast), cast.pause_s()
    stream = group.stream
    names = [member.machine.name for member in group.members] + [server.name for server in stream.servers]
    one = cast.random.choice(names)
    both = cast.random.random() < 0.5
    servers = cast.random.sample(stream.servers, cast.random.choice([1, 2, 3]))
    for server in servers:
        if server.name != one:
            stream.cut(one, server.name, to=both or cast.random.random() < 0.5, back=True)
            cast.loop.call_in(None, pause_s, stream.heal_between, one, server.name)
    cast.note(f"{one} is cut off from {[server.name for server in servers]} for {pause_s} s")
    return True


def cut_active_from_stream(cast: Cast) -> bool:
    """The active member is alone, for longer than it may be."""
    group = _group(cast)
    member, pause_s, back = group.active, cast.random.choice([2.0, 5.0, 8.0, 15.0]), cast.random.random() < 0.5
    if member is None:
        return False
    for server in group.stream.servers:
        group.stream.cut(member.machine.name, server.name, to=not back, back=back or cast.random.random() < 0.5)
        cast.loop.call_in(None, pause_s, group.stream.heal_between, member.machine.name, server.name)
    cast.note(f"{member.process} is cut off from the stream for {pause_s} s")
    return True


def stop_active(cast: Cast) -> bool:
    """The active member stands still, is replaced, and wakes up."""
    member = _group(cast).active
    if member is None or member.process is None:
        return False
    pause_s = cast.random.choice([2.0, 5.0, 8.0, 15.0])
    cast.note(f"{member.process} stands still for {pause_s} s")
    member.process.stop()
    cast.loop.call_in(None, pause_s, member.process.resume)
    return True


def switch(cast: Cast) -> bool:
    """An operator asks the active member to let another one take over."""
    member = _group(cast).active
    if member is None or member.life is None or member.life.member is None:
        return False
    cast.note(f"{member.process} is asked to release its place")
    member.life.member.switch_wanted.set()
    return True


def flip_record(cast: Cast) -> bool:
    """A bit of one of the last records flips on one server."""
    stream = _group(cast).stream
    server = stream.flip(stream.extent.last_seq - cast.random.choice([0, 0, 1, 5]), cast.random)
    if server is not None:
        cast.note(f"a record is altered on {server.name}")
    return server is not None


def cut_power_everywhere(cast: Cast) -> bool:
    """All members of a group lose their power at once."""
    keep = cast.random.choice(KEEP)
    cast.note(f"all members lose their power and keep {keep}")
    for member in _group(cast).members:
        member.machine.cut_power(keep)
    return True


def _group(cast: Cast) -> SimGroup:
    return cast.random.choice(list(cast.groups.values()))


CLUSTER_FAULTS: dict[str, Callable[[Cast], bool]] = {
    "kill server": kill_server,
    "pause server": pause_server,
    "lag server": lag_server,
    "cut from stream": cut_from_stream,
    "cut active from stream": cut_active_from_stream,
    "stop active": stop_active,
    "switch": switch,
    "flip record": flip_record,
    "cut power everywhere": cut_power_everywhere,
}

FAULTS: dict[str, Callable[[Cast], bool]] = {
    **CLUSTER_FAULTS,
    "kill node": kill_node,
    "kill node at a point": kill_node_at_a_point,
    "restart node": restart_node,
    "cut power": cut_power,
    "tear write": tear_write,
    "cut power at a point": cut_power_at_a_point,
    "cut power of client at a point": cut_power_of_client_at_a_point,
    "cut power of client": cut_power_of_client,
    "stop node": stop_node,
    "kill client": kill_client,
    "kill client at a point": kill_client_at_a_point,
    "stop client": stop_client,
    "twin": twin,
    "zombie": zombie,
    "partition": partition,
    "one-way partition": one_way_partition,
    "reset connection": reset_connection,
    "silence connection": silence_connection,
    "clock jump": clock_jump,
    "sync fails": sync_fails,
    "write fails": write_fails,
    "sync of client fails": sync_of_client_fails,
    "write of client fails": write_of_client_fails,
    "read fails": read_fails,
    "disk full": disk_full,
    "damage": damage,
    "damage after a stop": damage_after_a_stop,
    "old backup": old_backup,
    "old backup of the only node": old_backup_of_the_only_node,
    "old backup of client": old_backup_of_client,
}
