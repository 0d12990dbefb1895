"""The faults that happen to machines and processes; bytes on the network have their own (sim/network.py).

Each is a function of the cast that does one thing now, and says whether there was something to do it to.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from headpond.sim.actors.actor import Actor
from headpond.sim.cast import Cast
from headpond.sim.node import SimNode
from headpond.sim.process import Machine, Trap
from headpond.storage.memory_disk import Keep

KEEP: tuple[Keep, ...] = ("none", "all", "some", "some")
"""What a power cut keeps of unsynced bytes."""
FOLDERS = ("", "", "topics/")
"""Where writes and syncs fail: anywhere, or in logs alone."""


def _node(cast: Cast) -> SimNode | None:
    running = [node for node in cast.nodes.values() if node.up]
    return cast.random.choice(running) if running else None


def _client(cast: Cast) -> Actor | None:
    running = [actor for actor in cast.actors if actor.up]
    return cast.random.choice(running) if running else None


def kill_node(cast: Cast) -> bool:
    if (node := _node(cast)) is None or node.process is None:
        return False
    cast.note(f"{node.process} is killed")
    node.process.kill()
    return True


def kill_node_at_a_point(cast: Cast) -> bool:
    return _set_trap(cast, cast.random.choice(list(cast.nodes.values())).machine, None)


def cut_power_at_a_point(cast: Cast) -> bool:
    return _set_trap(cast, cast.random.choice(list(cast.nodes.values())).machine, cast.random.choice(KEEP))


def _set_trap(cast: Cast, machine: Machine, keep: Keep | None) -> bool:
    """By count in one half of the cases, by kind in the other: so rare points get their share."""
    if not machine.labels or cast.random.random() < 0.5:
        machine.trap = Trap("", cast.random.choice([0, 1, 3, 10, 40]), keep)
    else:
        machine.trap = Trap(cast.random.choice(sorted(machine.labels)), cast.random.choice([0, 0, 1, 3]), keep)
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
    node = cast.random.choice(list(cast.nodes.values()))
    keep = cast.random.choice(KEEP)
    cast.note(f"{node.machine.name} loses its power and keeps {keep}")
    node.machine.cut_power(keep)
    return True


def cut_power_of_client(cast: Cast) -> bool:
    actor = cast.random.choice(cast.actors)
    keep = cast.random.choice(KEEP)
    cast.note(f"{actor.machine.name} loses its power and keeps {keep}")
    actor.machine.cut_power(keep)
    return True


def stop_node(cast: Cast) -> bool:
    if (node := _node(cast)) is None or node.process is None:
        return False
    process = node.process
    pause_s = cast.pause_s()
    cast.note(f"{process} stands still for {pause_s} s")
    process.stop()
    cast.loop.call_in(None, pause_s, process.resume)
    return True


def kill_client(cast: Cast) -> bool:
    if (actor := _client(cast)) is None or actor.process is None:
        return False
    cast.note(f"{actor.process} is killed")
    actor.process.kill()
    return True


def kill_client_at_a_point(cast: Cast) -> bool:
    return _set_trap(cast, cast.random.choice(cast.producers).machine, None)


def cut_power_of_client_at_a_point(cast: Cast) -> bool:
    return _set_trap(cast, cast.random.choice(cast.producers).machine, cast.random.choice(KEEP))


def stop_client(cast: Cast) -> bool:
    if (actor := _client(cast)) is None or actor.process is None:
        return False
    process = actor.process
    pause_s = cast.pause_s()
    cast.note(f"{process} stands still for {pause_s} s")
    process.stop()
    cast.loop.call_in(None, pause_s, process.resume)
    return True


def partition(cast: Cast) -> bool:
    return _cut(cast, both=True)


def one_way_partition(cast: Cast) -> bool:
    return _cut(cast, both=False)


def _cut(cast: Cast, *, both: bool) -> bool:
    node = cast.random.choice(list(cast.nodes))
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


def clock_jump(cast: Cast) -> bool:
    machine = cast.random.choice(cast.machines)
    machine.skew_us += round(cast.random.choice([-3600e6, -5e6, 5e6, 3600e6]))
    cast.note(f"the clock of {machine.name} is now {machine.skew_us / 1e6:g} s wrong")
    return True


def sync_fails(cast: Cast) -> bool:
    return _fail_sync(cast, cast.random.choice(list(cast.nodes.values())).machine)


def sync_of_client_fails(cast: Cast) -> bool:
    return _fail_sync(cast, cast.random.choice(cast.producers).machine)


def _fail_sync(cast: Cast, machine: Machine) -> bool:
    where = cast.random.choice(FOLDERS)
    cast.note(f"the next sync of {machine.name} fails below /{where}")
    machine.disk.fail_next("sync", errno.EIO, path_prefix=where)
    return True


def write_fails(cast: Cast) -> bool:
    return _fail_writes(cast, cast.random.choice(list(cast.nodes.values())).machine)


def write_of_client_fails(cast: Cast) -> bool:
    return _fail_writes(cast, cast.random.choice(cast.producers).machine)


def _fail_writes(cast: Cast, machine: Machine) -> bool:
    where = cast.random.choice(FOLDERS)
    cast.note(f"the next writes of {machine.name} below /{where} find the disk full")
    machine.disk.fail_next("write", errno.ENOSPC, cast.random.choice([1, 3]), where)
    return True


FAULTS: dict[str, Callable[[Cast], bool]] = {
    "kill node": kill_node,
    "kill node at a point": kill_node_at_a_point,
    "restart node": restart_node,
    "cut power": cut_power,
    "cut power at a point": cut_power_at_a_point,
    "cut power of client": cut_power_of_client,
    "cut power of client at a point": cut_power_of_client_at_a_point,
    "stop node": stop_node,
    "kill client": kill_client,
    "kill client at a point": kill_client_at_a_point,
    "stop client": stop_client,
    "partition": partition,
    "one-way partition": one_way_partition,
    "reset connection": reset_connection,
    "clock jump": clock_jump,
    "sync fails": sync_fails,
    "write fails": write_fails,
    "sync of client fails": sync_of_client_fails,
    "write of client fails": write_of_client_fails,
}
