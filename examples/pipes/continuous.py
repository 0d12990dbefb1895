"""continuous: everything once and in order; a gap that does not close is asked for."""

from __future__ import annotations

from headpond.pipes import WAKE, Arrive, Kind, Submit
from headpond.pipes.machines.continuous import ContinuousReceiver, ContinuousSender

sender, receiver = ContinuousSender(epoch=1), ContinuousReceiver(epoch=1)
packets = [sender.step(Submit([b"%d" % number]), now=0.0).packets[0] for number in range(4)]

# Number 1 is lost; 2 and 3 wait for it.
for place in (0, 3, 2):
    effects = receiver.step(Arrive([packets[place]]), now=0.01)
    print(place, "arrives, passed on:", [list(run.payloads) for run in effects.delivered])

assert receiver.wake_at is not None
question = receiver.step(WAKE, now=receiver.wake_at).packets
print("missing", [list(packet.numbers) for packet in question if packet.kind == Kind.GAP])
# It is sent again when the first copy must have arrived if it still were on its way.
sender.step(Arrive(question), now=0.1)
assert sender.wake_at is not None
answer = sender.step(WAKE, now=sender.wake_at).packets
effects = receiver.step(Arrive(answer), now=1.0)
print("passed on:", [list(run.payloads) for run in effects.delivered])
