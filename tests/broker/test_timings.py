"""The histograms of a node, by a clock of the test; and how old the oldest unsettled message is."""

from __future__ import annotations

import re

from headpond.broker.events import EVENTS, REFUSALS
from headpond.broker.steps import run
from headpond.broker.subscriptions.stopwatch import SAMPLE_US
from headpond.model.errors import HeadpondError
from headpond.model.histogram import Histogram
from headpond.model.policy import Policy
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.catalog import CreateTopic, ListTopics
from headpond.wire.control.codec import read_result
from headpond.wire.control.consuming import CreateSubscription, Unsubscribe
from headpond.wire.control.status import ShowTop, TopInfo, TopSubscription
from tests.broker.subscriptions.core_readers import PLAIN, KindReader, Writer
from tests.fire.core_shell import CoreShell
from tests.root import ROOT

SECOND_US = 1_000_000


def world() -> tuple[CoreShell, Writer]:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    return it, Writer(it)


def seconds(histogram: Histogram) -> tuple[int, float]:
    """How many durations, and their sum."""
    return histogram.buckets[-1][1], histogram.sum_s


def write_in(it: CoreShell, writer: Writer, sync_us: int) -> None:
    """A segment whose sync takes so long."""
    work_all = it.work_all
    it.work_all = lambda: None  # type: ignore[method-assign]
    writer.write(2)
    it.work_all = work_all  # type: ignore[method-assign]
    it.now_us += sync_us
    it.work_all()


def test_publish_is_from_the_arrival_of_a_segment_to_its_acknowledgement() -> None:
    it, writer = world()
    write_in(it, writer, 3 * SECOND_US)
    write_in(it, writer, SECOND_US)
    assert seconds(it.core.context.timings.publish) == (2, 4.0)


def test_delivery_is_from_the_arrival_of_a_segment_to_the_first_consumer_that_gets_it() -> None:
    it, writer = world()
    reader = KindReader(it, "shared", "non_resilient", policy=Policy(backoff=0.0))
    write_in(it, writer, 2 * SECOND_US)
    delivery = it.core.context.timings.delivery
    assert seconds(delivery) == (1, 2.0)
    reader.settle(nacked=[(0, 0.0)])
    reader.seconds(5.0)
    assert (0, 2) in reader.got() and seconds(delivery) == (1, 2.0), "a redelivery is not timed"


def test_end_to_end_is_from_sent_at_to_the_acknowledgement_of_a_sample() -> None:
    it, writer = world()
    end_to_end = it.core.context.timings.end_to_end
    reader = KindReader(it, "shared", "non_resilient")
    it.now_us = 10 * SECOND_US
    writer.write(3)  # sent at 1 µs; entry 0 is timed
    it.now_us = 12 * SECOND_US
    reader.settle(acked=[(1, 3)])
    assert seconds(end_to_end)[0] == 0, "another message was acknowledged"
    reader.settle(acked=[(0, 1)])
    assert seconds(end_to_end) == (1, 11.999999)
    it.now_us += SAMPLE_US
    writer.write(1)
    writer.write(1)
    reader.settle(acked=[(3, 5)])
    assert seconds(end_to_end)[0] == 2, "one message of a consumer at a time"


def test_a_message_that_is_not_acknowledged_is_not_timed_and_the_next_one_is() -> None:
    it, writer = world()
    end_to_end = it.core.context.timings.end_to_end
    reader = KindReader(it, "shared", "non_resilient", policy=Policy(backoff=100.0))
    writer.write(1)
    reader.settle(nacked=[(0, 100.0)])
    it.now_us += SAMPLE_US
    writer.write(1)
    reader.settle(acked=[(1, 2)])
    assert seconds(end_to_end)[0] == 1


def top(it: CoreShell) -> TopSubscription:
    (found,) = read_result(it.connect().request(ShowTop()), TopInfo).subscriptions
    return found


def test_the_age_of_a_subscription_is_that_of_its_oldest_unsettled_message() -> None:
    it, writer = world()
    reader = KindReader(it, "shared", "non_resilient")
    assert top(it).oldest_age_us == 0
    writer.write(1)
    it.now_us += 7 * SECOND_US
    writer.write(1)
    it.now_us += 2 * SECOND_US
    assert top(it).oldest_age_us == 9 * SECOND_US
    reader.settle(acked=[(1, 2)])
    assert top(it).oldest_age_us == 9 * SECOND_US, "the older one is unsettled"
    reader.settle(acked=[(0, 1)])
    assert top(it).oldest_age_us == 0
    reader.client.send(Unsubscribe(1))


def test_after_a_restart_the_log_tells_the_age() -> None:
    it, writer = world()
    KindReader(it, "shared", "non_resilient")
    writer.write(1)
    it.core.close()
    again = CoreShell(it.disk, seed=2, settings=PLAIN, now_us=it.now_us + 30 * SECOND_US)
    assert top(again).oldest_age_us == 30 * SECOND_US


def test_a_reading_of_many_topics_takes_turns_with_other_requests() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=PLAIN)
    admin, other = it.connect(), it.connect()
    for number in range(600):
        admin.request(CreateTopic(f"t{number}"))
    admin.request(CreateSubscription("t599", "s"))
    it.work_all()
    answers: list[TopInfo] = []
    refused: list[HeadpondError] = []
    run(it.core.operations.steps(None, ShowTop("", 3)), answers.append, refused.append)
    assert answers == [] and len(other.request(ListTopics())) == 600
    turns = 0
    while not (answers or refused):
        it.wait(0)
        turns += 1
    assert turns == 1
    assert (len(answers[0].topics), answers[0].topics_left_out) == (3, 597)
    assert [one.subscription for one in answers[0].subscriptions] == ["s"]


def test_every_counter_is_known_before_its_first_event() -> None:
    found = set[str]()
    for path in (ROOT / "src" / "headpond").rglob("*.py"):
        found |= set(re.findall(r'counters\[f?"([^"]+)"\]', path.read_text()))
        found |= set(re.findall(r'counters\["(\w+)" if .* else f"(?:\w+_)\{', path.read_text()))
    assert len(found) > 50
    prefixes = tuple(REFUSALS.values())
    for name in found:
        stem, dynamic, _ = name.partition("{")
        known = name.startswith(prefixes) or (dynamic and any(each.startswith(stem) for each in EVENTS))
        assert known or name in EVENTS, name
    assert len(set(EVENTS)) == len(EVENTS)
