"""What happens to processes and connections. Each fault is a coroutine that ends when it is over, healed."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from headpond.cluster.journal import Unreachable
from tests.torture.cast import Sender, Taker
from tests.torture.group import Group
from tests.torture.machinery import Troupe
from tests.torture.observer import alike, wait_until
from tests.torture.victim import Victim

PAUSES_S = (0.3, 1.0, 3.0)
"""How long a standstill lasts."""
CUT_OFF_S = 1.5
GROUP_PAUSES_S = (0.5, 4.0, 9.0, 13.0)
"""Shorter and longer than a member or the standbys wait."""
GROUP_REST_S = 5.0
AT_A_TIME = 2
ZOMBIE = "in-write.zombie"
FUSE_S_MAX = 300.0
POINTS = ("planning", "in-write", "staged", "before-commit", "after-commit")
SURVIVED = (
    *(f"{point}.{fate}" for point in ("in-write", "staged") for fate in ("raise", "kill")),
    "staged.twice",
    *(f"{point}.node" for point in POINTS),
)
"""Where a batch of Spark fails, and how: a task raises, is killed, or stages twice; the node is killed."""
DEADLY = (ZOMBIE, *(f"{point}.driver" for point in POINTS), *(f"{p}.both" for p in POINTS if p != "in-write"))
"""A task outlives its driver; the driver, or driver and node, are killed."""

One = TypeVar("One")


def _some(troupe: Troupe, running: list[One]) -> One:
    return troupe.chance.choice(running)


async def _pause(troupe: Troupe) -> None:
    await asyncio.sleep(troupe.chance.choice(PAUSES_S))


async def _kill(victim: Victim) -> bool:
    was_up = victim.up
    await asyncio.to_thread(victim.kill)
    return was_up


async def kill_node(troupe: Troupe) -> bool:
    return await _kill(_some(troupe, [*troupe.hosts.values()]))


async def kill_program(troupe: Troupe) -> bool:
    return await _kill(_some(troupe, troupe.workers))


async def kill_cut_off(troupe: Troupe) -> bool:
    """A program that reaches no node for a while, so that a producer spills, is killed."""
    worker = _some(troupe, troupe.workers)
    proxies = [proxy for proxy in troupe.proxies if proxy.user == worker.name]
    for proxy in proxies:
        proxy.hold(there=True, back=True)
    try:
        await asyncio.sleep(CUT_OFF_S)
        return await _kill(worker)
    finally:
        for proxy in proxies:
            proxy.release()


async def _stop(troupe: Troupe, victim: Victim, pauses_s: Sequence[float] = PAUSES_S) -> bool:
    process = victim.process
    if process is None or not victim.up:
        return False
    process.send_signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(troupe.chance.choice(pauses_s))
    finally:
        process.send_signal(signal.SIGCONT)
    return True


async def stop_node(troupe: Troupe) -> bool:
    return await _stop(troupe, _some(troupe, [*troupe.hosts.values()]))


async def stop_program(troupe: Troupe) -> bool:
    return await _stop(troupe, _some(troupe, troupe.workers))


async def cut(troupe: Troupe) -> bool:
    _some(troupe, troupe.proxies).cut()
    return True


async def stall(troupe: Troupe) -> bool:
    return await _hold(troupe, there=True, back=True)


async def one_way(troupe: Troupe) -> bool:
    there = troupe.chance.random() < 0.5
    return await _hold(troupe, there=there, back=not there)


async def _hold(troupe: Troupe, *, there: bool, back: bool) -> bool:
    proxy = _some(troupe, troupe.proxies)
    proxy.hold(there=there, back=back)
    try:
        await _pause(troupe)
    finally:
        proxy.release()
    return True


async def full_disk(troupe: Troupe) -> bool:
    victim = _some(troupe, [each for each in troupe.victims if each.disk is not None])
    disk, process = victim.disk, victim.process
    if disk is None or process is None or not victim.up:
        return False
    try:
        disk.fill(process.pid, troupe.chance)
        await _pause(troupe)
    finally:
        with contextlib.suppress(ProcessLookupError):
            disk.free(process.pid)
    return True


FAULTS: dict[str, Callable[[Troupe], Awaitable[bool]]] = {
    "nodes killed": kill_node,
    "programs killed": kill_program,
    "programs killed while cut off": kill_cut_off,
    "nodes stopped": stop_node,
    "programs stopped": stop_program,
    "connections cut": cut,
    "connections stalled": stall,
    "connections stalled one way": one_way,
    "disks full": full_disk,
}


# --- of a group ---------------------------------------------------------------------------------------


def _of_group(fault: Callable[[Troupe, Group], Awaitable[bool]]) -> Callable[[Troupe], Awaitable[bool]]:
    """A fault that may cause a takeover."""

    async def happen(troupe: Troupe) -> bool:
        (group,) = troupe.groups.values()
        group.happening += 1
        try:
            return await fault(troupe, group)
        finally:
            group.happening -= 1
            group.healed_s = time.monotonic()

    return happen


async def _active(group: Group) -> Victim:
    """A member that was active a moment ago, if none is."""
    try:
        return group.member(await group.real.active())
    except (TimeoutError, Unreachable):
        return group.members[0]


async def kill_active(troupe: Troupe, group: Group) -> bool:
    return await _kill(await _active(group))


async def kill_member(troupe: Troupe, group: Group) -> bool:
    return await _kill(_some(troupe, group.members))


async def stop_active(troupe: Troupe, group: Group) -> bool:
    return await _stop(troupe, await _active(group), GROUP_PAUSES_S)


async def stop_member(troupe: Troupe, group: Group) -> bool:
    return await _stop(troupe, _some(troupe, group.members), GROUP_PAUSES_S)


async def kill_server(troupe: Troupe, group: Group) -> bool:
    return await _kill(_some(troupe, group.servers))


async def stop_server(troupe: Troupe, group: Group) -> bool:
    return await _stop(troupe, _some(troupe, group.servers), GROUP_PAUSES_S)


async def kill_both(troupe: Troupe, group: Group) -> bool:
    active, server = await _active(group), _some(troupe, group.servers)
    return all(await asyncio.gather(_kill(active), _kill(server)))


async def cut_off_active(troupe: Troupe, group: Group) -> bool:
    return await _cut_off(troupe, group, (await _active(group)).name, there=True, back=True)


async def cut_off_one_way(troupe: Troupe, group: Group) -> bool:
    there = troupe.chance.random() < 0.5
    return await _cut_off(troupe, group, (await _active(group)).name, there=there, back=not there)


async def cut_off_member(troupe: Troupe, group: Group) -> bool:
    return await _cut_off(troupe, group, _some(troupe, group.members).name, there=True, back=True)


async def _cut_off(troupe: Troupe, group: Group, member: str, *, there: bool, back: bool) -> bool:
    group.real.cut_off(member, there=there, back=back)
    try:
        await asyncio.sleep(troupe.chance.choice(GROUP_PAUSES_S))
    finally:
        group.real.reconnect(member)
    return True


async def switch(troupe: Troupe, group: Group) -> bool:
    try:
        await group.real.switch()
    except (TimeoutError, Unreachable):
        return False
    return True


GROUP_FAULTS = {
    "active members killed": _of_group(kill_active),
    "members killed": _of_group(kill_member),
    "active members stopped": _of_group(stop_active),
    "members stopped": _of_group(stop_member),
    "servers killed": _of_group(kill_server),
    "servers stopped": _of_group(stop_server),
    "active members and servers killed": _of_group(kill_both),
    "active members cut off": _of_group(cut_off_active),
    "active members cut off one way": _of_group(cut_off_one_way),
    "members cut off": _of_group(cut_off_member),
    "switches": _of_group(switch),
}
BESIDE_GROUP_FAULTS = ("programs killed", "programs stopped", "connections cut", "connections stalled one way")

Faults = Mapping[str, Callable[[Troupe], Awaitable[bool]]]


async def trouble(
    troupe: Troupe, rest_s: float = 1.5, faults: Faults = FAULTS, enough: Callable[[], bool] = lambda: False
) -> None:
    """Random faults, some at a time, each class in turn; when cancelled, those that happen end first."""
    happening: set[asyncio.Task[None]] = set()
    try:
        while True:
            for name in troupe.chance.sample(sorted(faults), len(faults)):
                if enough():
                    return
                await asyncio.sleep(troupe.chance.uniform(0.1, rest_s))
                while len(happening) >= AT_A_TIME:
                    await asyncio.wait(happening, return_when=asyncio.FIRST_COMPLETED)
                task = asyncio.create_task(_happen(troupe, name, faults[name]))
                happening.add(task)
                task.add_done_callback(happening.discard)
    finally:
        if happening:
            await asyncio.wait(happening)


async def _happen(troupe: Troupe, name: str, fault: Callable[[Troupe], Awaitable[bool]]) -> None:
    if await fault(troupe):
        troupe.faults[name] += 1


# --- the course of a part -----------------------------------------------------------------------------


async def live(troupe: Troupe, seconds: float, failures: int | None = None) -> None:
    """The time with faults; a part with links is also put back to an old copy, and its consumer moves.

    A group has ``failures``, however long they take, if that is not None.
    """
    if troupe.groups:
        await _for(seconds, asyncio.sleep(seconds) if failures == 0 else _fail(troupe, failures))
    elif troupe.part.links:
        copy = await _copy(troupe)
        steps: list[Callable[[], Awaitable[None]]] = [lambda: _restore(troupe, copy), lambda: _move(troupe)]
        steps += [steps[0]] * int(seconds // 180)
        for step in steps:
            await _for(seconds / (len(steps) + 1), trouble(troupe))
            await step()
        await _for(seconds / (len(steps) + 1), trouble(troupe))
    elif troupe.part.spark is not None:
        await _burn(troupe, troupe.chance.choice(SURVIVED))  # a driver may take a minute to start
        await _for(seconds, trouble(troupe, rest_s=15.0), _burn_fuses(troupe))
    else:
        await _for(seconds, trouble(troupe))


async def _for(seconds: float, *works: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.create_task(work) for work in works]
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


async def _fail(troupe: Troupe, failures: int | None) -> None:
    def enough() -> bool:
        return failures is not None and sum(troupe.faults[name] for name in GROUP_FAULTS) >= failures

    others = {name: FAULTS[name] for name in BESIDE_GROUP_FAULTS}
    await trouble(troupe, rest_s=GROUP_REST_S, faults={**GROUP_FAULTS, **others}, enough=enough)


async def _copy(troupe: Troupe) -> Path:
    """An early copy of a node's data: its topic and its links."""
    node = troupe.hosts[troupe.part.restored]
    async with node.held:
        await asyncio.to_thread(node.kill)
        copy = troupe.folder / f"copy-{node.name}"
        shutil.copytree(node.real.data, copy)
    return copy


async def _restore(troupe: Troupe, copy: Path) -> None:
    """Puts a node back to the old copy, when its peers have all of its messages; they send them back."""
    node = troupe.hosts[troupe.part.restored]
    senders = [worker for worker in troupe.workers if isinstance(worker.plan, Sender)]
    for sender in senders:
        sender.end()
    await wait_until("senders ended", lambda: [sender.name for sender in senders if sender.up])
    for topic in troupe.part.topics:
        await alike(troupe, topic)
    async with node.held:
        await asyncio.to_thread(node.kill)
        shutil.rmtree(node.real.data)
        shutil.copytree(copy, node.real.data)
        troupe.faults["nodes put back to an old copy"] += 1
    for sender in senders:
        sender.ending = False


async def _move(troupe: Troupe) -> None:
    """Kills a node under its consumer; the consumer continues at the follower, which has a copy."""
    (worker,) = [each for each in troupe.workers if isinstance(each.plan, Taker)]
    assert isinstance(worker.plan, Taker)
    subscription = (worker.plan.plan.topic, worker.plan.plan.name)
    before, after = (troupe.hosts[name] for name in worker.plan.nodes)

    async def nothing_copied() -> bool:
        async with after.connect() as client:
            return not (await client.admin.show_subscription(*subscription)).settled

    await wait_until("settlements copied", nothing_copied)
    async with before.held, worker.held:
        await asyncio.to_thread(before.kill)
        await asyncio.to_thread(worker.kill)
        async with after.connect() as client:
            copy = await client.admin.show_subscription(*subscription)
            assert copy.passive, copy
            await client.admin.promote(*subscription)
        plan = replace(worker.plan.plan, node=after.name)
        worker.plan, worker.urls = replace(worker.plan, plan=plan), worker.urls[1:]
        troupe.settled_before_move = copy.settled
        troupe.faults["consumers moved"] += 1
        await asyncio.sleep(1.0)  # for a while there is the follower alone


async def _burn_fuses(troupe: Troupe) -> None:
    """Batches of Spark fail, each point and fate in turn, with a batch that succeeds after each."""
    go, done = troupe.folder / "zombie.go", troupe.folder / "zombie.done"
    try:
        while True:
            fuses = [troupe.chance.sample(each, len(each)) for each in (SURVIVED, DEADLY)]
            for fuse in (fuse for pair in zip(*fuses, strict=True) for fuse in pair):
                await _burn(troupe, fuse)
                if fuse == ZOMBIE:  # the next driver has written the rows
                    go.touch()
                    await wait_until("zombie done", lambda: not done.exists(), FUSE_S_MAX)
                    go.unlink()
                    done.unlink()
    finally:
        for path in (troupe.folder / "fuses").iterdir():
            path.unlink()
        go.touch()


async def _burn(troupe: Troupe, fuse: str) -> None:
    def committed() -> int:
        return sum(path.read_bytes().count(b"\n") > 1 for path in (troupe.folder / "journals").glob("spark.*"))

    before, path = committed(), troupe.folder / "fuses" / fuse
    path.touch()
    await wait_until(f"{fuse} burnt", path.exists, FUSE_S_MAX)
    troupe.faults[f"Spark: {fuse}"] += 1
    await wait_until(f"a batch after {fuse}", lambda: committed() == before, FUSE_S_MAX)
