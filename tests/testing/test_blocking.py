"""A node in a thread, for blocking tests and for programs that connect themselves."""

from __future__ import annotations

import threading

import headpond.sync
from headpond import testing


def test_a_blocking_client_works_against_it_through_every_fault() -> None:
    with testing.blocking_node() as node, node.connect() as client:
        with client.producer("orders") as producer:
            assert producer.send(b"0").outcome == "stored"
            node.cut()
            assert producer.send(b"1").outcome == "stored"
            node.kill()
            node.restart()
            assert producer.send(b"2").outcome == "stored"
            node.slow_disk(0.01)
            node.full_disk()
            waiting = producer.post(b"3")
            node.slow_disk(0)
            node.full_disk(False)
            assert waiting.result(30).outcome == "stored"
        with client.consumer("orders", "test") as consumer:
            found = [consumer.receive(timeout=5) for _ in range(4)]
        assert [each.value for each in found if each] == [b"0", b"1", b"2", b"3"]
        assert node.disk.paths()


def test_the_clock_of_a_node_in_a_thread_advances() -> None:
    with testing.blocking_node() as node, headpond.sync.connect(node.url) as client:
        before = node.clock.now()
        with client.producer("orders") as producer:
            producer.send(b"one")
        with client.consumer("orders", "test") as consumer:
            first = consumer.receive(timeout=5)
            assert first is not None
            consumer.nack(first, delay=3600)
            consumer.flush()
            node.clock.advance(3700)
            again = consumer.receive(timeout=5)
            assert again is not None and again.attempt == 2
        assert (node.clock.now() - before).total_seconds() >= 3700


def test_its_thread_ends_with_it() -> None:
    before = threading.active_count()
    with testing.blocking_node():
        assert threading.active_count() > before
    assert threading.active_count() == before
