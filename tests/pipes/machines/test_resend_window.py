"""The window is bounded, however long a message stays unconfirmed."""

from __future__ import annotations

from headpond.pipes.machines.resend import Window
from headpond.pipes.machines.timeout import Timeout


def test_one_message_that_is_never_confirmed_does_not_make_it_keep_the_others() -> None:
    window = Window(1024, Timeout())
    window.enter([b"stuck"], 0.0)
    for _ in range(10_000):
        numbers = window.enter([b"x"], 0.0)
        assert window.confirm(numbers, 0.0) == list(numbers)
    assert len(window) == 1
    assert len(window._flights) <= 2 * 1024 + 17
    assert window.due(1000.0) == ([([0], [b"stuck"])], [])


def test_messages_that_are_due_together_are_sent_together_in_order() -> None:
    window = Window(8, Timeout())
    for payload in (b"a", b"b", b"c"):
        window.enter([payload], 0.0)
    window.confirm([1], 0.5)
    assert window.due(100.0) == ([([0, 2], [b"a", b"c"])], [])


def test_nothing_is_due_before_its_time() -> None:
    window = Window(8, Timeout())
    window.enter([b"a"], 0.0)
    assert window.wake_at == 1.0
    assert window.due(0.999) == ([], [])
