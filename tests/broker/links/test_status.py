"""The status of a link."""

from __future__ import annotations

from headpond.broker.links.link_table import LinkMade
from headpond.broker.links.status import LinkStatus, TopicStatus
from headpond.model.errors import SchemaMismatch, Unavailable

MADE = LinkMade("east", "headpond://east", ["*"], "pull", None, 0, "")


def a_link(**topics: TopicStatus) -> LinkStatus:
    status = LinkStatus(lambda: 0)
    status.connected("a1")
    status.topics.update({("pull", name): each for name, each in topics.items()})
    return status


def behind(entries: int) -> TopicStatus:
    topic = TopicStatus({0: entries})
    topic.follow()
    return topic


def test_a_refused_topic_is_named_and_nothing_is_said_to_catch_up_that_never_will() -> None:
    refused = behind(7)
    refused.refuse(SchemaMismatch("column 'a' is another"))
    link = a_link(orders=behind(0), bills=refused)
    info = link.info(MADE)
    assert (info.state, info.following, info.refused, info.lag) == ("connected", 1, 1, 7)
    assert (info.error, info.error_code) == ("topic bills: column 'a' is another", "schema-mismatch")
    link.topics["pull", "orders"].lags[0] = 3
    assert link.info(MADE).state == "catching up"
    link.wait(Unavailable("nobody there"))
    assert (link.info(MADE).state, link.info(MADE).error) == ("waiting", "nobody there")


def test_a_topic_that_another_link_carries_is_none_of_its_lag() -> None:
    elsewhere = behind(7)
    elsewhere.state = "elsewhere"
    info = a_link(orders=elsewhere).info(MADE)
    assert (info.state, info.lag, info.error) == ("connected", 0, "")


def test_a_link_lacks_something_since_its_oldest_lag_or_since_it_lost_its_connection() -> None:
    now_s = 0
    link = LinkStatus(lambda: now_s * 1_000_000)

    def lacking_s() -> float:
        return link.info(MADE).lacking_us / 1e6

    now_s = 5
    assert lacking_s() == 5, "it has never had a connection"
    link.connected("a1")
    orders, bills = behind(0), behind(0)
    link.topics.update({("pull", "orders"): orders, ("pull", "bills"): bills})
    assert lacking_s() == 0
    link.note_lag(orders, 0, 4)
    now_s = 7
    link.note_lag(bills, 0, 1)
    link.note_lag(orders, 0, 2)
    assert lacking_s() == 2, "less than before is not level"
    link.note_lag(orders, 0, 0)
    now_s = 8
    assert lacking_s() == 1
    link.note_lag(bills, 0, 0)
    assert lacking_s() == 0
    link.wait(Unavailable("nobody there"))
    now_s = 9
    link.connecting()
    link.wait(Unavailable("nobody there"))
    now_s = 11
    assert lacking_s() == 3, "a try is no connection"
