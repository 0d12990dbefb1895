"""stream: storage in the middle, so the receiver may restart and continue where it was."""

from __future__ import annotations

from headpond.pipes import WAKE, Arrive, Submit
from headpond.pipes.machines.resend import ResendSender
from headpond.pipes.machines.stream import Entries, IndexStorage, ReaderPosition, StreamReceiver, StreamStorage

entries, position = Entries(), ReaderPosition()  # these would be on disk
storage, index = StreamStorage(entries), IndexStorage(position)

sender = ResendSender(epoch=1)
confirms = storage.step(Arrive(sender.step(Submit([b"a", b"b", b"c"]), now=0.0).packets), now=0.0)
sender.step(Arrive(confirms.packets), now=0.0)
print("stored", entries.payloads, "unconfirmed", sender.unconfirmed)


def read(receiver: StreamReceiver) -> list[bytes]:
    """Asks the two storages until there is nothing new."""
    got: list[bytes] = []
    asked = receiver.step(WAKE, now=0.0).packets
    while asked:
        answers = storage.step(Arrive(asked), 0.0).packets + index.step(Arrive(asked), 0.0).packets
        effects = receiver.step(Arrive(answers), now=0.0)
        got += [payload for run in effects.delivered for payload in run.payloads]
        asked = effects.packets
    return got


print("read", read(StreamReceiver(epoch=1)))
storage.step(Arrive(sender.step(Submit([b"d"]), now=1.0).packets), now=1.0)
print("a new receiver reads", read(StreamReceiver(epoch=2)))
