"""The blocking twin, with a real node."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

import headpond.sync
from headpond.client.consume.intake import NodeIntake
from headpond.model.errors import (
    BadRequest,
    BufferFull,
    Closed,
    TimedOut,
    TopicNotFound,
    Unavailable,
)
from headpond.model.policy import Policy
from tests.fire.real_node import RealNode, wait_until


def test_batches_continue_after_single_messages(shared_url: str, topic: str) -> None:
    with headpond.sync.connect(shared_url) as client:
        with client.producer(topic, batch_rows=10) as producer:
            for number in range(20):
                producer.post(b"%d" % number)
        with client.consumer(topic, "s") as consumer:
            messages = iter(consumer)
            assert [next(messages).entry for _ in range(3)] == [0, 1, 2]
            batches = consumer.batches()
            assert next(batches).entries.to_pylist() == [*range(3, 10)]
            assert next(messages).entry == 10
            message = consumer.receive(5)
            assert message is not None and message.entry == 11
            assert next(batches).entries.to_pylist() == [*range(12, 20)]


def test_messages_go_there_and_back(shared_url: str, topic: str) -> None:
    with headpond.sync.connect(shared_url) as client:
        with client.producer(topic, name="p") as producer:
            assert producer.send(b"0", key=b"k", id="i", headers={"a": "b"}).entry == 0
            promises = [producer.post(b"%d" % number) for number in range(1, 5000)]
            assert promises[-1].result(timeout=10).entry == 4999
            assert producer.send_batch(pa.table({"value": [b"5000", b"5001"]})).stored == 2
            producer.flush()
            assert producer.stats.stored == 5002
        with client.consumer(topic, "s") as consumer:
            found = []
            for message in consumer:
                found.append(int(message.value))
                consumer.ack(message)
                if len(found) == 5002:
                    break
            assert found == list(range(5002))
            consumer.flush()
            assert consumer.receive(timeout=0.05) is None
        [info] = client.admin.list_subscriptions(topic)
        assert info.settled == 5002


def test_batches_nack_and_skip(shared_url: str, topic: str) -> None:
    with headpond.sync.connect(shared_url) as client:
        with client.producer(topic) as producer:
            producer.send_batch(pa.table({"value": [b"a", b"b", b"c"]}))
        with client.consumer(topic, "s") as consumer:
            batch = next(consumer.batches())
            consumer.ack(batch, rows=[0])
            consumer.skip(batch, rows=[1])
            consumer.nack(batch, delay=0.01, rows=[2])
            again = consumer.receive(timeout=5)
            assert again is not None
            assert (again.value, again.attempt) == (b"c", 2)
            consumer.ack(again)
            consumer.flush()
            assert client.admin.list_subscriptions(topic)[0].settled == 3


def test_a_range_that_was_settled_is_not_handed_out_though_this_thread_has_it(
    shared_url: str, topic: str
) -> None:
    with headpond.sync.connect(shared_url) as client:
        with client.producer(topic) as producer:
            for first in (0, 4):
                producer.send_batch(pa.table({"value": [b"%d" % number for number in range(first, first + 4)]}))
        with client.consumer(topic, "s") as consumer:
            messages = iter(consumer)
            assert next(messages).entry == 0
            consumer.ack_range(0, 1, 2)
            consumer.skip_range(0, 4, 5)
            assert [next(messages).entry for _ in range(3)] == [3, 6, 7]


def test_a_message_that_another_consumer_settled_is_not_handed_out_though_this_thread_has_it(
    shared_url: str, topic: str
) -> None:
    with headpond.sync.connect(shared_url) as client, headpond.sync.connect(shared_url) as other:
        with client.producer(topic) as producer:
            producer.send_batch(pa.table({"value": [b"a", b"b"]}))
        options: dict[str, Any] = {"kind": "shared", "policy": Policy(deadline=0.3)}
        with client.consumer(topic, "s", **options) as slow:
            batch = next(slow.batches())
            with other.consumer(topic, "s", **options) as consumer:
                again = consumer.receive(10)
                assert again is not None and (again.entry, again.attempt) == (0, 2)
                slow.ack(batch, rows=[1])
                slow.flush()
                other.admin.list_topics()  # the answer comes behind what the node says of that
                consumer.ack(again)
                assert consumer.receive(0.05) is None


def test_many_threads_post_to_one_producer(shared_url: str, topic: str) -> None:
    with headpond.sync.connect(shared_url) as client:
        with client.producer(topic) as producer:

            def post(thread: int) -> None:
                for number in range(2000):
                    producer.post(b"%d/%d" % (thread, number))

            threads = [threading.Thread(target=post, args=(thread,)) for thread in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            producer.flush()
            assert producer.stats.stored == 8000
        with client.consumer(topic, "s") as consumer:
            last = dict.fromkeys((b"0", b"1", b"2", b"3"), -1)
            for _ in range(8000):
                message = consumer.receive(timeout=5)
                assert message is not None
                sender, number = message.value.split(b"/")
                assert int(number) == last[sender] + 1
                last[sender] = int(number)


def test_a_full_buffer_refuses_posts_and_makes_sends_wait(shared_url: str, topic: str) -> None:
    with headpond.sync.connect(shared_url) as client, client.producer(topic, memory_max=3000) as producer:

        def fill() -> None:
            for _ in range(10_000):
                producer.post(b"x" * 1000)

        with pytest.raises(BufferFull):
            fill()
        for _ in range(20):
            producer.send(b"x" * 1000)


def test_errors_are_those_of_the_client(shared_url: str, topic: str) -> None:
    with pytest.raises(Unavailable):
        headpond.sync.connect("headpond://127.0.0.1:1")
    with headpond.sync.connect(shared_url) as client:
        with pytest.raises(TopicNotFound):
            client.admin.show_topic("nowhere")
        with client.producer(topic) as producer, pytest.raises(BadRequest):
            producer.post("text")  # type: ignore[arg-type]
        with pytest.raises(Closed):
            producer.post(b"x")
        with client.consumer(topic, "s") as consumer:
            pass
        assert list(consumer) == []


def test_a_result_that_does_not_come_times_out(node: RealNode, topic: str) -> None:
    with headpond.sync.connect(node.url) as client:
        producer = client.producer(topic, close_timeout=0.01)
        node.kill()
        with pytest.raises(TimedOut):
            producer.post(b"x").result(timeout=0.05)
        node.start()
        producer.flush()
        producer.close()


def test_no_thread_is_left_behind(shared_url: str, topic: str) -> None:
    before = threading.active_count()
    with headpond.sync.connect(shared_url) as client, client.producer(topic) as producer:
        producer.send(b"x")
    assert threading.active_count() == before


def test_lingering_rows_wait_for_company_and_full_segments_do_not(shared_url: str, topic: str) -> None:
    with (
        headpond.sync.connect(shared_url) as client,
        client.producer(topic, linger_s=60.0, batch_rows=3) as producer,
    ):
        promises = [producer.post(b"x") for _ in range(4)]
        assert promises[2].result(timeout=10).identity.segment == 0
        assert not promises[3].done()
        producer.flush()
        assert promises[3].result().identity.segment == 1


@pytest.mark.parametrize("by_client", [False, True], ids=["consumer", "client"])
def test_messages_sent_ahead_and_not_read_do_not_count_as_an_attempt(
    shared_url: str, topic: str, by_client: bool
) -> None:
    """Whichever of the two is closed."""
    with headpond.sync.connect(shared_url) as client:
        with client.producer(topic, batch_rows=5) as producer:
            for number in range(20):
                producer.post(b"%d" % number)
        with headpond.sync.connect(shared_url) as reader:
            consumer = reader.consumer(topic, "s")
            core = consumer._twin.core
            assert isinstance(core, NodeIntake)
            wait_until(lambda: len(core._deliveries) == 4)
            message = consumer.receive(timeout=5)  # its hop brings all four batches
            assert message is not None
            consumer.ack(message)
            if not by_client:
                consumer.close()
        with client.consumer(topic, "s") as consumer:
            messages = [consumer.receive(timeout=5) for _ in range(19)]
            found = [(each.entry, each.attempt) for each in messages if each is not None]
            assert found == [(entry, 1) for entry in range(1, 20)]
        assert list(consumer) == []


def test_a_copy_goes_to_another_service(shared_url: str, topic: str) -> None:
    with headpond.sync.connect(shared_url) as client, pytest.raises(BadRequest):
        client.producer(topic, copies=[shared_url])


def test_a_row_that_comes_behind_the_last_segment_is_refused(shared_url: str, topic: str) -> None:
    with headpond.sync.connect(shared_url) as client:
        producer = client.producer(topic)
        producer.close()
        with pytest.raises(Closed):  # as by a thread that looked just before whether it was open
            producer._twin.batcher.add(b"x", None, None, None)


def test_a_row_posted_while_its_producer_is_closed_is_stored_or_refused(shared_url: str, topic: str) -> None:
    with headpond.sync.connect(shared_url) as client:
        for _ in range(5):
            producer = client.producer(topic)
            promises: list[headpond.sync.Promise] = []
            started = threading.Event()

            def post(
                producer: headpond.sync.Producer,
                promises: list[headpond.sync.Promise],
                started: threading.Event,
            ) -> None:
                while True:
                    try:
                        promises.append(producer.post(b"x"))
                    except BufferFull:
                        continue
                    except Closed:
                        return
                    started.set()

            thread = threading.Thread(target=post, args=(producer, promises, started))
            thread.start()
            started.wait()
            producer.close()
            thread.join()
            assert all(promise.result(timeout=10).stored for promise in promises)


def test_a_blocking_consumer_of_a_resilient_subscription_settles_one_after_the_other(
    shared_url: str, topic: str
) -> None:
    with headpond.sync.connect(shared_url) as client:
        with client.producer(topic) as producer:
            for number in range(5):
                producer.post(b"%d" % number)
            producer.flush()
        policy = headpond.Policy(backoff=0.01, max_attempts=3)
        with client.consumer(topic, "s", mode="resilient", policy=policy) as consumer:
            first = consumer.receive(5)
            assert first is not None
            assert consumer.receive(0.1) is None, "the first one is not settled yet"
            consumer.nack(first)
            again = consumer.receive(5)
            assert again is not None
            assert (again.entry, again.attempt) == (0, 2)
            consumer.ack(again)
            found = [again.entry]
            for message in consumer:
                found.append(message.entry)
                consumer.skip(message) if message.entry == 2 else consumer.ack(message)
                if message.entry == 4:
                    break
            consumer.flush()
            assert found == [0, 1, 2, 3, 4]
            assert consumer.policy.max_attempts == 3
        info = client.admin.show_subscription(topic, "s")
        assert (info.acked, info.skipped, info.nacked) == (4, 1, 1)
        assert client.admin.skipped(topic, "s") == [(0, 2, 3)]
        assert client.admin.unacked(topic, "s") == []
        assert client.admin.seek(topic, "s", 3).positions == [3]
        assert client.admin.pause(topic, "s").paused
        assert not client.admin.resume(topic, "s").paused
        assert client.admin.dead_letters(topic, "s") == []
        assert sum(len(batch) for batch in client.admin.browse(topic)) == 5
