"""The connections of a node: their sessions by number; sending to them, and ending them."""

from __future__ import annotations

from collections.abc import Iterator

from headpond.broker.context import Context
from headpond.broker.effects import Close, Send
from headpond.broker.session import Session
from headpond.model.errors import HeadpondError
from headpond.wire.connection import ConnectionState
from headpond.wire.control.codec import encode_control
from headpond.wire.control.producing import Ack

STALL_US = 2_000_000
"""The shell calls the core every second. After a longer silence no client could be heard in it."""


class Sessions:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._by_number: dict[int, Session] = {}
        self._called_us = context.clock_us()
        self._deaf_until_us = 0

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_number.values()))

    def add(self, session: Session) -> None:
        self._by_number[session.connection] = session

    def get(self, connection: int) -> Session | None:
        return self._by_number.get(connection)

    def remove(self, connection: int) -> Session | None:
        return self._by_number.pop(connection, None)

    def is_connected(self, session: Session) -> bool:
        return self._by_number.get(session.connection) is session

    # --- sending ------------------------------------------------------------------------------------

    def send(self, connection: int, parts: list[bytes]) -> None:
        """Sends frames; a connection that has ended gets nothing."""
        if connection in self._by_number:
            self._context.effects.append(Send(connection, parts))

    def acknowledge(self, connection: int, acks: list[Ack]) -> None:
        """Answers segments."""
        session = self._by_number.get(connection)
        if session is None:
            return
        if session.take_ack is None:
            self._context.effects.append(Send(connection, list(map(encode_control, acks))))
        else:
            for ack in acks:
                session.take_ack(ack)

    def refuse(self, connection: int, error: HeadpondError) -> None:
        """Ends a connection with an error."""
        session = self._by_number.get(connection)
        if session is not None and session.side.state is not ConnectionState.CLOSED:
            self._context.counters[f"connections_refused_{error.code}"] += 1
            session.side.refuse(error)
            self.end(session)

    def end(self, session: Session) -> None:
        """Sends the last frames of the conversation, then closes the connection."""
        if out := session.side.data_to_send():
            self._context.effects.append(Send(session.connection, out))
        self._context.effects.append(Close(session.connection))

    # --- hearing ------------------------------------------------------------------------------------

    def note_call(self) -> int:
        """The shell called the core; returns the time."""
        now_us = self._context.clock_us()
        if now_us - self._called_us > STALL_US:
            self._deaf_until_us = now_us
        self._called_us = now_us
        return now_us

    def heard_us(self, session: Session) -> int:
        """When the node last heard from a client; times in which it could not hear do not count."""
        return self.note_call() if session.unread else max(session.heard_us, self._deaf_until_us)
