"""resend_many: a window of messages on their way, over a route that loses a third of everything."""

from __future__ import annotations

from random import Random

from headpond.pipes import WAKE, Arrive, Packet, Submit
from headpond.pipes.machines.resend import ResendReceiver, ResendSender

chance = Random(1)
sender = ResendSender(epoch=1, window=8, jitter=chance.random)
receiver = ResendReceiver(epoch=1)


def survivors(packets: list[Packet]) -> list[Packet]:
    return [packet for packet in packets if chance.random() > 1 / 3]


waiting = [b"message %d" % number for number in range(100)]
arrived: list[bytes] = []
now = 0.0
while waiting or sender.unconfirmed:
    # The sender says how many it took; the rest is kept for later.
    effects = sender.step(Submit(waiting[:5]), now)
    del waiting[: len(effects.accepted)]
    packets = effects.packets + sender.step(WAKE, now).packets
    answer = receiver.step(Arrive(survivors(packets)), now + 0.01)
    arrived += [payload for run in answer.delivered for payload in run.payloads]
    sender.step(Arrive(survivors(answer.packets)), now + 0.02)
    now += 0.1

print(f"{len(set(arrived))} different messages in {len(arrived)} copies, {sender.counts.resent} sent again")
assert len(set(arrived)) == 100
