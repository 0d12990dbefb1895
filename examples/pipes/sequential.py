"""sequential: each message is confirmed before the next is sent; a lost confirm stops nothing."""

from __future__ import annotations

from headpond.pipes import WAKE, Arrive, Submit
from headpond.pipes.machines.resend import ResendSender
from headpond.pipes.machines.sequential import SequentialReceiver

sender, receiver = ResendSender(epoch=1, window=1, buffer=1024), SequentialReceiver(epoch=1)
packets = sender.step(Submit([b"one", b"two", b"three"]), now=0.0).packets
now, lose_the_next_confirm = 0.0, True

while packets:
    now += 0.01
    answer = receiver.step(Arrive(packets), now)
    print(f"{now:.2f} s", [list(run.payloads) for run in answer.delivered])
    if lose_the_next_confirm:
        lose_the_next_confirm = False
        assert sender.wake_at is not None
        now = sender.wake_at
        packets = sender.step(WAKE, now).packets
    else:
        packets = sender.step(Arrive(answer.packets), now).packets

print("copies dropped", receiver.counts.duplicate)
