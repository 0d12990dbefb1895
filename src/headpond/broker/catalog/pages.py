"""Pages of a list: the items that a search finds, in the order of their names, a limited number at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    wanted = [item for item in items if page.match in item[0] and item[0] > page.after]
    wanted.sort(key=itemgetter(0))
    found: list[Info] = []
    for _, topic, item in wanted:
        if session.grant is ALL or session.grant.reaches(topic.place):
            made = info(topic, item)
            if session.grant is ALL or keeps(session.grant, ask, made):
                found.append(made)
                if len(found) == page.limit:
                    break
    return found
