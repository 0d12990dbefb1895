"""compose: pipes over pipes, as bytes, and a confirm that waits until the work is done."""

from __future__ import annotations

from headpond.pipes import WAKE, Arrive, Packet, Settle, Submit, decode_packet, encode_packet, inject


def over_a_wire(packets: list[Packet]) -> list[Packet]:
    """The packets in the bytes; bytes that are no packet are left out, and the packet will come again."""
    decoded = [decode_packet(encode_packet(packet)) for packet in packets]
    return [packet for packet in decoded if packet is not None]


# A -> sender … receiver -> B. dedup distinguishes "b" from its copies; resend_many brings it there.
sender, receiver = inject("resend_many(confirm=settled) | dedup", epoch=1)
packets = sender.step(Submit([b"a", b"b"]), now=0.0).packets
(run,) = receiver.step(Arrive(over_a_wire(packets)), now=0.01).delivered
print("B works on", list(run.payloads), "and nothing is confirmed:", sender.unconfirmed)

# B is done with the first. The second is sent again after a while; B has it already and does not get it twice.
confirms = receiver.step(Settle(run.epoch, run.numbers[:1]), now=0.5).packets
sender.step(Arrive(over_a_wire(confirms)), now=0.51)
assert sender.wake_at is not None
again = sender.step(WAKE, now=sender.wake_at).packets
print("sent again", [list(packet.numbers) for packet in again])
print("delivered again", receiver.step(Arrive(over_a_wire(again)), now=2.0).delivered)

confirms = receiver.step(Settle(run.epoch, run.numbers[1:]), now=2.1).packets
sender.step(Arrive(over_a_wire(confirms)), now=2.11)
print("unconfirmed", sender.unconfirmed)
