"""Lists of refused and skipped messages: their positions, and what refused ones wait for."""

from __future__ import annotations

from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.codec import read_result
from headpond.wire.control.consuming import ListSkipped, ListUnacked, SeekSubscription, SkippedPage, UnackedPage
from tests.broker.subscriptions.core_readers import KindReader, Writer, shell
from tests.fire.core_shell import SMALL_FILES, CoreShell


def unacked(it: CoreShell, start: tuple[int, int] = (0, 0), limit: int = 1000) -> UnackedPage:
    return read_result(it.connect().request(ListUnacked("orders", "s", *start, limit)), UnackedPage)


def skipped(it: CoreShell, start: tuple[int, int] = (0, 0), limit: int = 1000) -> SkippedPage:
    return read_result(it.connect().request(ListSkipped("orders", "s", *start, limit)), SkippedPage)


def test_each_unacked_entry_is_listed_with_its_attempts_and_what_it_waits_for() -> None:
    it = shell(6)
    reader = KindReader(it, "unique", "non_resilient")
    (attachment,) = next(it.core.stores.subscriptions.all()).attachments
    assert reader.entries() == list(range(6))
    attachment.credit_bytes = 0  # from here on no consumer has room
    reader.settle(nacked=[(0, 60.0), (2, 0.0)])
    reader.seconds(1)
    first, second = unacked(it).entries
    assert (first.entry, first.attempts, first.waits_for, first.bound) == (0, 1, "time", 6)
    assert 59_000_000 < first.due_at_us - it.now_us < 60_000_000
    assert (second.entry, second.attempts, second.waits_for, second.due_at_us) == (2, 1, "backlog", 0)
    reader.vanish()
    lost = [each for each in unacked(it).entries if each.entry not in (0, 2)]
    assert [(each.entry, each.attempts, each.waits_for) for each in lost] == [
        (entry, 1, "consumer") for entry in (1, 3, 4, 5)
    ]
    again = CoreShell(it.disk, seed=2, now_us=it.now_us)
    assert unacked(again) == unacked(it), "and so it is after a restart"


def test_a_page_names_the_start_of_the_next_one() -> None:
    it = shell(10)
    reader = KindReader(it, "unique", "non_resilient")
    reader.settle(nacked=[(entry, 60.0) for entry in range(10)])
    page, found, pages = unacked(it, limit=3), [], 1
    while page.next is not None:
        found += page.entries
        page, pages = unacked(it, page.next, 3), pages + 1
    assert [each.entry for each in [*found, *page.entries]] == list(range(10))
    assert pages == 4


def test_skipped_ranges_are_listed_also_after_a_restart_and_a_compaction_of_the_journal() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=SMALL_FILES)
    writer = Writer(it)
    writer.write(100)
    reader = KindReader(it, "unique", "non_resilient")
    reader.settle(acked=[(0, 5)])
    reader.settle(skipped=[(3, 8), (10, 12)])
    expected = [(0, 5, 8), (0, 10, 12)]
    assert skipped(it).ranges == expected, "what was acknowledged before is not among them"
    assert skipped(it, limit=1) == SkippedPage(expected[:1], (0, 10))
    assert skipped(it, (0, 10)).ranges == expected[1:]
    for entry in range(12, 100):  # so much is journaled that it is compacted
        reader.settle(acked=[(entry, entry + 1)])
    again = CoreShell(it.disk, seed=2, settings=SMALL_FILES, now_us=it.now_us)
    assert skipped(again).ranges == expected
    again.connect().request(SeekSubscription("orders", "s", 6))
    assert skipped(again).ranges == [(0, 5, 6)], "the others come again"


def test_the_time_of_a_refused_entry_outlives_a_compaction_of_the_journal() -> None:
    it = CoreShell(MemoryDisk(), seed=1, settings=SMALL_FILES)
    Writer(it).write(100)
    reader = KindReader(it, "unique", "non_resilient")
    reader.settle(nacked=[(0, 3600.0)])
    for entry in range(1, 100):  # so much is journaled that it is compacted
        reader.settle(acked=[(entry, entry + 1)])
    again = CoreShell(it.disk, seed=2, settings=SMALL_FILES, now_us=it.now_us)
    (waiting,) = unacked(again).entries
    assert (waiting.entry, waiting.attempts, waiting.waits_for) == (0, 1, "time")
    assert waiting.due_at_us - again.now_us >= 3_500_000_000
