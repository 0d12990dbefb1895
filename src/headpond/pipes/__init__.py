"""Pipes: reliable, ordered and unique delivery between two workers, as machines without IO.

``sender_of("resend_many | dedup", epoch=...)`` makes the sending side of a route from its text,
``receiver_of`` the receiving side, ``inject`` both. The pipes are ``resend``, ``resend_many``, ``stream``,
``sequential``, ``index``, ``continuous``, ``dedup`` and ``bare``.

A machine is stepped with an input and the time, and answers with effects::

    sender, receiver = inject("resend_many | dedup")
    effects = sender.step(Submit([b"hello"]), now)
    for packet in effects.packets:        # carry these to the other side, as encode_packet(packet)
        ...
    effects = receiver.step(Arrive([packet]), now)
    effects.delivered                     # runs of messages for the worker behind the pipe
    effects.packets                       # confirms: carry these back
    sender.wake_at                        # step it with WAKE then

In reading order::

    machines    the pipes, without IO
    calculus    R, UR and orders of a route, computed
    lab         a route under faults, from a seed
    drivers     the machines over memory, TCP and topics, for programs
"""

from headpond.pipes.machines.compose import ReceiverStack, Relay, SenderStack, inject, receiver_of, sender_of
from headpond.pipes.machines.machine import (
    WAKE,
    Arrive,
    Counts,
    Effects,
    Fail,
    Input,
    Machine,
    Notice,
    Settle,
    Submit,
    Token,
    Wake,
)
from headpond.pipes.machines.packet import Kind, Packet, Run, decode_packet, encode_packet
from headpond.pipes.machines.timeout import TimeoutSettings

__all__ = [
    "WAKE",
    "Arrive",
    "Counts",
    "Effects",
    "Fail",
    "Input",
    "Kind",
    "Machine",
    "Notice",
    "Packet",
    "ReceiverStack",
    "Relay",
    "Run",
    "SenderStack",
    "Settle",
    "Submit",
    "TimeoutSettings",
    "Token",
    "Wake",
    "decode_packet",
    "encode_packet",
    "inject",
    "receiver_of",
    "sender_of",
]
