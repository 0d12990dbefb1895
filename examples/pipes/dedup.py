"""dedup: each message once, whichever way and however often it comes."""

from __future__ import annotations

from headpond.pipes import Arrive, Submit
from headpond.pipes.machines.bare import BareSender
from headpond.pipes.machines.dedup import DedupReceiver

receiver = DedupReceiver(epoch=1)
till_1, till_2 = BareSender(epoch=101), BareSender(epoch=102)
packets = till_1.step(Submit([b"a", b"b"]), now=0.0).packets + till_2.step(Submit([b"c"]), now=0.0).packets

for _ in range(3):
    effects = receiver.step(Arrive(packets), now=0.0)
    print([payload for run in effects.delivered for payload in run.payloads])
print("copies dropped", receiver.counts.duplicate)
