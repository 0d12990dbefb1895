"""index: late messages and repeats are dropped; the numbers that pass only rise."""

from __future__ import annotations

from headpond.pipes import Arrive, Submit
from headpond.pipes.machines.bare import BareSender
from headpond.pipes.machines.index import IndexReceiver

sender, receiver = BareSender(epoch=1), IndexReceiver(epoch=1)
packets = [sender.step(Submit([b"%d" % number]), now=0.0).packets[0] for number in range(6)]

for place in (0, 2, 1, 2, 5, 4):
    effects = receiver.step(Arrive([packets[place]]), now=0.0)
    print(place, "passed" if effects.delivered else "dropped", [notice.what for notice in effects.notices])

# A sender that starts again counts from 0, in a new session, and is not taken for repeats.
again = BareSender(epoch=2).step(Submit([b"after the restart"]), now=1.0).packets
print([list(run.payloads) for run in receiver.step(Arrive(again), now=1.0).delivered])
