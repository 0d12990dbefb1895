"""resend: a message is sent again, under the same number, until it is confirmed."""

from __future__ import annotations

from headpond.pipes import WAKE, Arrive, Submit
from headpond.pipes.machines.resend import ResendReceiver, ResendSender

sender = ResendSender(epoch=1, window=1, buffer=1024)
receiver = ResendReceiver(epoch=1)

# Two messages are taken; one is on its way at a time, the other waits behind it.
effects = sender.step(Submit([b"first", b"second"]), now=0.0)
print("sent", [list(packet.payloads or ()) for packet in effects.packets])

# That packet is lost. When its time is up the sender sends it again.
assert sender.wake_at is not None
effects = sender.step(WAKE, now=sender.wake_at)
print("sent again", [list(packet.numbers) for packet in effects.packets])

# This one arrives. Its confirm lets the next message go.
effects = receiver.step(Arrive(effects.packets), now=1.01)
print("delivered", [list(run.payloads) for run in effects.delivered])
effects = sender.step(Arrive(effects.packets), now=1.02)
print("sent", [list(packet.payloads or ()) for packet in effects.packets])
