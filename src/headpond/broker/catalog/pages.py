"""Pages of a list: the items that a search finds, in the order of their names, a limited number at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nsmallest
from itertools import islice
from operator import itemgetter
from typing import TypeVar

from headpond.broker.access.rights import Checked, keeps
from headpond.broker.catalog.topics import Topic
from headpond.broker.session import Session
from headpond.model.grant import ALL
from headpond.wire.control.operation import Page

Item = TypeVar("Item")
Info = TypeVar("Info")


def page_of(
    session: Session,
    ask: Checked,
    page: Page,
    items: Iterable[tuple[str, Topic, Item]],
    info: Callable[[Topic, Item], Info],
) -> list[Info]:
    """The items (full name, topic, item) of a page that the session's token reaches.

    Every name is compared; ``info`` is called for those of the page alone.
    """
    wanted = (item for item in items if page.match in item[0] and item[0] > page.after)
    grant = session.grant
    if grant is ALL:  # no list of all is made, for the reason that Ranking has (ledger/top.py)
        return [info(topic, item) for _, topic, item in nsmallest(page.limit, wanted, key=itemgetter(0))]
    reached = sorted((item for item in wanted if grant.reaches(item[1].place)), key=itemgetter(0))
    made = (info(topic, item) for _, topic, item in reached)
    return list(islice((each for each in made if keeps(grant, ask, each)), page.limit))
