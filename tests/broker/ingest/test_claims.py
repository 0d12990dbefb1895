"""The claims of a sender about its blocks are bounded: none stops other writers of the topic."""

from __future__ import annotations

import pytest

from headpond.broker.ingest import ingest as producing
from headpond.model.identity import SEGMENT_NUMBER_MAX
from headpond.model.ledger import COUNT_MAX, REASONS_MAX, ProducerAccount, sum_producers
from headpond.storage.log.book import ALONE_MAX, Book
from headpond.storage.log.shard_log import TALLY_BYTES, ShardLog
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.connection import ConnectionFault
from headpond.wire.control.codec import read_result
from headpond.wire.control.ledger import LedgerInfo, ShowLedger
from headpond.wire.control.producing import Hole
from headpond.wire.frame import FrameType, encode
from headpond.wire.title import Predecessor, Title, encode_title
from tests.broker.ingest.test_ingest import Sender
from tests.fire.core_shell import CoreClient, CoreShell

ENDLESS = 2**64 - 1


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


def claim(client: CoreClient, sender: Sender, number: int, segments: int) -> None:
    """Another block, which claims this many segments for its predecessor."""
    title = Title(
        sender.info.topic, sender.info.uuid, "bad", predecessor=Predecessor(name(number), {0: segments})
    )
    client.send(encode(FrameType.TITLE, encode_title(name(10**9 + number), 0, title)))
    client.send(encode(FrameType.SEGMENT, b"x", segment=0))


def log_of(shell: CoreShell) -> ShardLog:
    (topic,) = shell.core.stores.catalog
    return topic.shards[0].log


def ledger(shell: CoreShell) -> LedgerInfo:
    return read_result(shell.connect().request(ShowLedger("orders")), LedgerInfo)


def test_a_title_that_claims_endless_segments_ends_its_connection_and_no_other() -> None:
    sender = Sender(CoreShell(MemoryDisk(), seed=1))
    bad = sender.shell.connect()
    claim(bad, sender, 1, ENDLESS)
    (fault,) = bad.take(ConnectionFault)
    assert fault.error.code == "bad-frame"
    assert sender.ask(0).outcome == "stored"


def test_thousands_of_titles_that_claim_every_segment_stop_no_other_producer() -> None:
    disk = MemoryDisk()
    sender = Sender(CoreShell(disk, seed=1))
    bad = sender.shell.connect()
    for number in range(2 * ALONE_MAX):
        claim(bad, sender, number, SEGMENT_NUMBER_MAX + 1)
    assert len(log_of(sender.shell).marks.book.tallies) <= ALONE_MAX + 1
    assert all(sender.ask(segment, rows=50).outcome == "stored" for segment in range(20))
    sender.shell.core.close()
    again = Sender(CoreShell(disk, seed=2))
    assert all(again.ask(segment, rows=50).outcome == "stored" for segment in range(20, 40))
    told = ledger(again.shell)
    assert told.balanced
    assert {each.producer: each.stored for each in told.producers} == {"bad": 0, "till": 40}


def test_a_folder_that_holds_endless_claims_is_opened_and_written_to() -> None:
    disk = MemoryDisk()
    sender = Sender(CoreShell(disk, seed=1))
    sender.ask(0)
    book = log_of(sender.shell).marks.book
    for number in range(ALONE_MAX):  # as it was written before claims had a bound
        book.tally(name(number), "bad", 1, 1).announced = ENDLESS
    for number in range(3):
        book.folded[f"gone-{number}"] = ProducerAccount(f"gone-{number}", announced=ENDLESS, holes=ENDLESS)
    log_of(sender.shell).rotate()
    sender.shell.drain()
    sender.shell.work_all()
    sender.shell.core.close()
    again = Sender(CoreShell(disk, seed=2))
    bad = again.shell.connect()
    for number in range(ALONE_MAX):
        claim(bad, again, 10**6 + number, SEGMENT_NUMBER_MAX + 1)
    assert all(again.ask(segment, rows=50).outcome == "stored" for segment in range(1, 20))
    assert ledger(again.shell).balanced


def test_a_sum_of_claims_can_be_encoded_and_balances() -> None:
    most = ProducerAccount("a", announced=COUNT_MAX, pending=COUNT_MAX - 5, stored=2, refused={"x": 3})
    total = sum_producers("a", [most, ProducerAccount("a", announced=COUNT_MAX, holes=COUNT_MAX), most])
    assert (total.announced, total.stored, total.difference) == (COUNT_MAX, 4, 0)


def test_unknown_reasons_are_counted_together_and_can_be_taken_back() -> None:
    book, codes = Book(), [f"reason-{number}" for number in range(1000)]
    for code in codes:
        book.admitted(name(1), 0, code, late=False, at_us=1)
    assert len(book.tallies[name(1)].refused) == REASONS_MAX + 1
    for number, code in enumerate(codes):
        book.withdrawn(name(1), number, 0, code, late=False)
    assert not any(book.tallies[name(1)].refused.values())


def test_segments_that_are_turned_away_take_a_bounded_room_on_the_disk() -> None:
    disk = MemoryDisk()
    sender = Sender(CoreShell(disk, seed=1))
    title = Title(sender.info.topic, sender.info.uuid, "x" * 256)
    sender.client.send(encode(FrameType.TITLE, encode_title(name(1), 0, title)))
    sender.client.send(*[encode(FrameType.SEGMENT, b"x", segment=7)] * 6000)
    sender.shell.work_all()
    assert {item.code for item in sender.answers()} == {"gap"}
    assert TALLY_BYTES < log_of(sender.shell).bytes < TALLY_BYTES + 64 * 1024
    sender.shell.core.close()
    (account,) = ledger(CoreShell(disk, seed=2)).producers
    assert account.gaps == 6000, "none is lost where the node is stopped in order"


def test_a_block_has_a_bounded_number_of_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "HOLES_MAX", 3)
    sender = Sender(CoreShell(MemoryDisk(), seed=1))
    for segment in (0, 2, 4):
        sender.client.send(Hole(sender.block, 0, segment))
        assert sender.ask(segment).outcome == "stored"
    sender.client.send(Hole(sender.block, 0, 5))  # what is expected is no hole
    assert sender.ask(5).outcome == "stored"
    sender.client.send(Hole(sender.block, 0, 9))
    (fault,) = sender.client.take(ConnectionFault)
    assert (fault.error.code, fault.error.hint) == ("limit", "Begin another block: open the producer again.")
