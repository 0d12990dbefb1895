"""Registered producers in the node's core: access, leases, epochs, and fenced producers."""

from __future__ import annotations

from typing import Any

import pytest

from headpond.broker.settings import Limits, LogSettings, Settings
from headpond.model.errors import (
    BadRequest,
    Fenced,
    HeadpondError,
    ProducerBusy,
    ProducerExists,
    ProducerMismatch,
    ProducerNotFound,
)
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.catalog import ChangeSettings, CreateTopic, TopicInfo
from headpond.wire.control.codec import Request, Response, read_result
from headpond.wire.control.greeting import Error, Ping
from headpond.wire.control.producing import (
    Ack,
    CloseProducer,
    CreateProducer,
    DeleteProducer,
    ListProducers,
    OpenProducer,
    ProducerInfo,
    ProducerOpened,
    ShowProducer,
)
from tests.fire.core_shell import CoreClient, CoreShell
from tests.fire.raw_client import segment_frame, title_frame

TILL = "till-1"
ONE, TWO, THREE = (bytes([number]) * 16 for number in (1, 2, 3))
LEASE_US = 10_000_000
SECOND_US = 1_000_000


class Shop:
    """A node with one topic; each instance has its own connection."""

    def __init__(self, disk: MemoryDisk | None = None, *, settings: Settings | None = None) -> None:
        self.disk = disk or MemoryDisk()
        plain = settings or Settings(data="memory", log=LogSettings(preallocate_bytes=1024))
        self.shell = CoreShell(self.disk, seed=7, settings=plain, now_us=1_000_000)
        self.admin = self.shell.connect()
        made = self.admin.request(CreateTopic("t", exist_ok=True))
        self.uuid = read_result(made, TopicInfo).uuid

    def open(
        self,
        instance: bytes,
        access: str = "single",
        epoch: int = 0,
        *,
        client: CoreClient | None = None,
        **more: Any,
    ) -> tuple[CoreClient, ProducerOpened]:
        client = client or self.shell.connect()
        ask = OpenProducer("t", TILL, instance, access, epoch, **more)
        return client, read_result(client.request(ask), ProducerOpened)

    def send(self, client: CoreClient, block: bytes, segment: int, **title: Any) -> tuple[str, str]:
        frame = segment_frame([b"%d" % segment], segment=segment)
        client.send(title_frame(block, self.uuid, **{"producer": TILL, **title}), frame)
        self.shell.work_all()
        (ack,) = client.take(Ack)
        return ack.items[0].outcome, ack.items[0].code

    def lose(self, client: CoreClient) -> None:
        number = next(number for number, each in self.shell.clients.items() if each is client)
        self.shell.core.disconnected(number)
        self.shell.drain()
        self.shell.work_all()

    def show(self) -> ProducerInfo:
        return read_result(self.admin.request(ShowProducer("t", TILL)), ProducerInfo)

    def restart(self) -> Shop:
        self.disk.crash(keep="none")
        return Shop(self.disk)


def test_a_second_instance_is_refused_with_the_holders_name() -> None:
    shop = Shop()
    _, opened = shop.open(ONE)
    assert (opened.access, opened.epoch, opened.registered) == ("single", 1, True)
    with pytest.raises(ProducerBusy, match="held by twin"):
        shop.open(TWO)
    assert (shop.show().holder, shop.show().epoch) == ("twin", 1)


def test_a_lease_lapses_some_time_after_its_connection_was_lost() -> None:
    shop = Shop()
    shop.admin.request(ChangeSettings("topic", "t", {"producer_lease": "30s"}))
    client, _ = shop.open(ONE)
    shop.lose(client)
    shop.shell.wait(29_000_000)
    with pytest.raises(ProducerBusy, match=r"lapses in 1\.0 s"):
        shop.open(TWO)
    assert shop.show().lapses_in_s == 1.0
    shop.shell.wait(1_000_000)
    assert shop.open(TWO)[1].epoch == 2


def pass_time(shop: Shop, us: int, *alive: CoreClient) -> None:
    """Moves the clock second by second; the given instances send pings meanwhile."""
    for _ in range(us // SECOND_US):
        shop.shell.wait(SECOND_US)
        for client in alive:
            client.send(Ping(1))


def test_a_holder_that_says_nothing_loses_its_lease_though_its_connection_stands() -> None:
    shop = Shop()
    frozen, _ = shop.open(ONE)
    pass_time(shop, LEASE_US - SECOND_US)
    with pytest.raises(ProducerBusy, match=r"last heard from 9\.0 s ago, and its lease lapses in 1\.0 s"):
        shop.open(TWO)
    pass_time(shop, SECOND_US)
    assert shop.show().holder == ""
    assert shop.open(TWO)[1].epoch == 2
    assert shop.send(frozen, ONE, 0, epoch=1) == ("rejected", "fenced")


def test_a_holder_that_says_anything_keeps_its_lease() -> None:
    shop = Shop()
    client, _ = shop.open(ONE)
    pass_time(shop, 3 * LEASE_US, client)
    with pytest.raises(ProducerBusy):
        shop.open(TWO)


def test_a_holder_that_was_silent_for_long_before_its_connection_went_has_no_lease_left() -> None:
    shop = Shop()
    client, _ = shop.open(ONE)
    pass_time(shop, LEASE_US)
    shop.lose(client)
    assert shop.open(TWO)[1].epoch == 2


def test_a_holder_that_is_not_read_from_is_not_silent() -> None:
    shop = Shop()
    client, _ = shop.open(ONE)
    client.session.unread = True
    pass_time(shop, 3 * LEASE_US)
    with pytest.raises(ProducerBusy):
        shop.open(TWO)


def test_a_stalled_node_takes_no_lease_away() -> None:
    shop = Shop()
    shop.open(ONE)
    shop.shell.wait(2 * LEASE_US)
    with pytest.raises(ProducerBusy, match=r"lapses in 10\.0 s"):
        shop.open(TWO)
    pass_time(shop, LEASE_US)
    assert shop.open(TWO)[1].epoch == 2


def test_a_lease_is_free_at_once_after_a_clean_close() -> None:
    shop = Shop()
    client, _ = shop.open(ONE)
    client.request(CloseProducer("t", TILL, ONE))
    assert shop.show().holder == ""
    assert shop.open(TWO)[1].epoch == 2


def test_the_holder_comes_back_with_its_epoch_over_another_connection() -> None:
    shop = Shop()
    client, _ = shop.open(ONE)
    _, again = shop.open(ONE, epoch=1)
    assert again.epoch == 1
    shop.lose(client)  # the old connection is noticed late: it is not what the lease is held over
    assert len(shop.show().connections) == 1
    shop.shell.wait(2 * LEASE_US)
    with pytest.raises(ProducerBusy):
        shop.open(TWO)


def test_a_zombies_segments_are_rejected_and_leave_no_mark() -> None:
    shop = Shop()
    zombie, _ = shop.open(ONE)
    assert shop.send(zombie, ONE, 0, epoch=1) == ("stored", "")
    shop.lose(zombie)
    shop.shell.wait(LEASE_US)
    holder, opened = shop.open(TWO)
    assert opened.epoch == 2
    back = shop.shell.connect()
    assert shop.send(back, ONE, 1, epoch=1) == ("rejected", "fenced")
    assert shop.send(back, ONE, 1, epoch=3) == ("rejected", "fenced"), "an epoch that nobody granted"
    assert shop.send(back, ONE, 1) == ("rejected", "fenced"), "no lease at all"
    with pytest.raises(Fenced, match="taken over by twin"):
        shop.open(ONE, epoch=1)
    assert shop.send(holder, TWO, 0, epoch=2) == ("stored", "")
    assert shop.send(back, ONE, 1, epoch=1, late=True) == ("stored", ""), "sent late, on purpose"


def test_a_zombie_whose_connection_still_stands_is_fenced_by_the_grant() -> None:
    """Raises the epoch, as a copy does, while the old holder is still connected."""
    shop = Shop()
    old, _ = shop.open(ONE, epoch=1, elsewhere=True)
    assert shop.send(old, ONE, 0, epoch=1) == ("stored", "")
    shop.open(TWO, epoch=2, elsewhere=True)
    frame = segment_frame([b"x"], segment=1)
    old.send(frame)  # behind the title that was good
    shop.shell.work_all()
    (ack,) = old.take(Ack)
    assert (ack.items[0].outcome, ack.items[0].code) == ("rejected", "fenced")
    with pytest.raises(Fenced):
        shop.open(ONE, epoch=1, elsewhere=True)


def test_a_further_destination_grants_no_lease() -> None:
    shop = Shop()
    shop.admin.request(CreateProducer("t", TILL, "single"))
    with pytest.raises(ProducerBusy, match="first destination"):
        shop.open(ONE, access="", elsewhere=True)
    assert shop.open(ONE, epoch=5, elsewhere=True)[1].epoch == 5
    assert shop.show().epoch == 5


def test_the_epoch_is_on_the_disk_before_the_answer() -> None:
    shop = Shop()
    shop.admin.request(CreateProducer("t", TILL, "single"))
    client = shop.shell.connect()
    client.send(Request(1, OpenProducer("t", TILL, ONE, "single")))
    assert client.take(Response) == []
    other = shop.shell.connect()
    other.send(Request(1, OpenProducer("t", TILL, TWO, "single")))
    assert [error.code for error in other.take(Error)] == ["producer-busy"], "one is being granted"
    shop.shell.work_all()
    assert [response.result["epoch"] for response in client.take(Response)] == [1]
    shop = shop.restart()
    assert shop.show().epoch == 1


@pytest.mark.parametrize("compact", [False, True])
def test_over_a_restart_the_holder_keeps_its_lease_and_others_wait(compact: bool) -> None:
    tight = Settings(data="memory", journal_compact_bytes=256 if compact else 2**20)
    shop = Shop(settings=tight)
    shop.open(ONE)
    for number in range(20):
        shop.admin.request(CreateProducer("t", f"other-{number}"))
    shop = shop.restart()
    with pytest.raises(ProducerBusy, match="twin"):
        shop.open(TWO)
    assert shop.open(ONE, epoch=1)[1].epoch == 1
    shop = shop.restart()
    shop.shell.wait(LEASE_US)
    assert shop.open(TWO)[1].epoch == 2
    shop = shop.restart()
    with pytest.raises(Fenced):
        shop.open(ONE, epoch=1)
    assert len(read_result(shop.admin.request(ListProducers("t")), list[ProducerInfo])) == 21


def test_after_a_clean_close_the_lease_is_free_also_over_a_restart() -> None:
    shop = Shop()
    client, _ = shop.open(ONE)
    client.request(CloseProducer("t", TILL, ONE))
    shop = shop.restart()
    assert shop.open(TWO)[1].epoch == 2


def test_of_two_instances_at_once_one_gets_the_lease() -> None:
    shop = Shop()
    clients = [shop.shell.connect() for _ in range(2)]
    for client, instance in zip(clients, (ONE, TWO), strict=True):
        client.send(Request(1, OpenProducer("t", TILL, instance, "single")))
    shop.shell.work_all()
    answers = [(len(client.take(Response)), [e.code for e in client.take(Error)]) for client in clients]
    assert sorted(answers) == [(0, ["producer-busy"]), (1, [])]


def test_a_grant_that_could_not_be_written_is_none() -> None:
    shop = Shop()
    shop.admin.request(CreateProducer("t", TILL, "single"))
    shop.disk.fail_next("sync", 5, path_prefix="catalog/")
    with pytest.raises(HeadpondError) as caught:
        shop.open(ONE)
    assert caught.value.code == "storage-failed"
    shop.shell.wait(1_000_000)
    shop.shell.work_all()
    assert shop.open(TWO)[1].epoch == 1


# --- access -------------------------------------------------------------------------------------------


def test_a_name_is_registered_on_first_use_and_keeps_its_access() -> None:
    shop = Shop()
    _, opened = shop.open(ONE, access="")
    assert (opened.access, opened.epoch) == ("multiple", 0)
    _, second = shop.open(TWO, access="multiple")
    assert second.access == "multiple"
    assert (shop.show().access, len(shop.show().connections), shop.show().clients) == ("multiple", 2, ["twin"])
    with pytest.raises(ProducerMismatch):
        shop.open(THREE, access="single")
    client = shop.shell.connect()
    assert shop.send(client, ONE, 0) == ("stored", "")


def test_a_name_with_single_access_is_not_opened_as_multiple() -> None:
    shop = Shop()
    shop.admin.request(CreateProducer("t", TILL, "single"))
    with pytest.raises(ProducerMismatch):
        shop.open(ONE, access="multiple")
    assert shop.open(ONE, access="")[1].epoch == 1, "what is registered holds where nothing is said"


def test_a_producer_without_a_name_or_with_another_is_not_concerned() -> None:
    shop = Shop()
    shop.open(ONE)
    client = shop.shell.connect()
    assert shop.send(client, TWO, 0, producer="") == ("stored", "")
    assert shop.send(client, THREE, 0, producer="till-2") == ("stored", "")


def test_without_creation_on_first_use_single_access_has_to_be_registered() -> None:
    shop = Shop(settings=Settings(data="memory", create_on_first_use=False))
    assert shop.open(ONE, access="")[1] == ProducerOpened("multiple", 0, 0.0, False)
    with pytest.raises(ProducerNotFound):
        shop.open(ONE)
    shop.admin.request(CreateProducer("t", TILL, "single"))
    assert shop.open(ONE)[1].epoch == 1


def test_past_the_limit_names_are_let_in_unregistered_and_single_access_is_refused() -> None:
    shop = Shop(settings=Settings(data="memory", limits=Limits(producers=1)))
    shop.admin.request(CreateProducer("t", "other"))
    assert not shop.open(ONE, access="")[1].registered
    with pytest.raises(HeadpondError, match=r"limits\.producers"):
        shop.open(ONE)


def test_a_registration_that_is_used_is_not_deleted() -> None:
    shop = Shop()
    client, _ = shop.open(ONE)
    with pytest.raises(ProducerBusy, match="open at twin"):
        shop.admin.request(DeleteProducer("t", TILL))
    client.request(CloseProducer("t", TILL, ONE))
    shop.admin.request(DeleteProducer("t", TILL))
    with pytest.raises(ProducerNotFound):
        shop.show()


@pytest.mark.parametrize("compact", [False, True])
def test_a_name_that_is_registered_again_continues_above_its_old_epoch(compact: bool) -> None:
    tight = Settings(data="memory", journal_compact_bytes=256 if compact else 2**20)
    shop = Shop(settings=tight)
    client, _ = shop.open(ONE)
    client.request(CloseProducer("t", TILL, ONE))
    shop.admin.request(DeleteProducer("t", TILL))
    assert shop.send(client, ONE, 0, epoch=1) == ("rejected", "fenced"), "its registration is gone"
    for number in range(20):
        shop.admin.request(CreateProducer("t", f"other-{number}"))
    shop = shop.restart()
    assert shop.open(TWO)[1].epoch == 2


def test_an_epoch_that_was_never_granted_does_not_use_up_others() -> None:
    shop = Shop()
    shop.admin.request(CreateProducer("t", TILL, "single"))
    for elsewhere in (False, True):
        with pytest.raises(BadRequest, match="was never granted"):
            shop.open(ONE, epoch=2**53, elsewhere=elsewhere)
    _, opened = shop.open(TWO, epoch=1_000_000)  # granted before an older copy of the data was restored
    assert opened.epoch == 1_000_001


def test_invalid_requests_are_refused() -> None:
    shop = Shop()
    shop.admin.request(CreateProducer("t", TILL))
    wrong: list[tuple[Any, type[HeadpondError]]] = [
        (CreateProducer("t", TILL), ProducerExists),
        (CreateProducer("t", TILL, "single", exist_ok=True), ProducerMismatch),
        (CreateProducer("t", "x", "several"), BadRequest),
        (CreateProducer("t", "", "single"), BadRequest),
        (CreateProducer("t", "x" * 257), BadRequest),
        (ShowProducer("t", "nobody"), ProducerNotFound),
        (DeleteProducer("t", "nobody"), ProducerNotFound),
        (OpenProducer("t", TILL, b"short"), BadRequest),
        (OpenProducer("t", TILL, ONE, "several"), BadRequest),
        (OpenProducer("t", TILL, ONE, "", -1), BadRequest),
    ]
    for ask, error in wrong:
        with pytest.raises(error):
            shop.admin.request(ask)


def test_when_a_producer_was_seen_is_kept_over_a_restart() -> None:
    shop = Shop()
    assert shop.admin.request(CreateProducer("t", TILL))["seen_at_us"] == 0
    shop.shell.wait(5)
    client, _ = shop.open(ONE, access="")
    shop.shell.wait(10)
    shop.lose(client)
    seen_us = shop.show().seen_at_us
    assert seen_us == 1_000_015
    assert shop.restart().show().seen_at_us == seen_us
