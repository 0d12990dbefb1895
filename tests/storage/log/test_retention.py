"""The decision of retention, against a plain reading of its rules."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.storage.log.read import StoredFile
from headpond.storage.log.retention import Drop, Rules, decide

HOUR_US = 3_600_000_000
NOW_US = 100 * HOUR_US
ALL = 10**6


def files_of(*ages_h: float, bytes_each: int = 100, expires_us: int | None = None) -> list[StoredFile]:
    """Files of ten entries each, whose newest entries are so many hours old; the last is being written."""
    return [
        StoredFile(10 * number, 10 * number + 10, bytes_each, NOW_US - round(age * HOUR_US), expires_us)
        for number, age in enumerate(ages_h)
    ]


def kept_after(drops: list[Drop]) -> int:
    return drops[-1].end if drops else 0


def reasons(drops: list[Drop]) -> list[str]:
    return [drop.reason for drop in drops]


def test_without_rules_nothing_is_deleted() -> None:
    assert decide(files_of(50, 40, 30), Rules(), NOW_US, 30, ALL) == []


def test_soft_ttl_deletes_old_files_that_every_subscription_has_settled() -> None:
    files, rules = files_of(5, 4, 3, 0.5, 0), Rules(soft_us=HOUR_US)
    assert kept_after(decide(files, rules, NOW_US, 50, ALL)) == 30
    assert kept_after(decide(files, rules, NOW_US, 19, ALL)) == 10, "the second file holds an unsettled entry"
    assert decide(files, rules, NOW_US, 0, ALL) == []


def test_soft_ttl_deletes_nothing_where_there_is_no_subscription() -> None:
    assert decide(files_of(5, 4, 3), Rules(soft_us=1), NOW_US, None, ALL) == []


def test_hard_ttl_deletes_old_files_settled_or_not() -> None:
    drops = decide(files_of(5, 4, 0.5), Rules(hard_us=HOUR_US), NOW_US, 0, ALL)
    assert reasons(drops) == ["hard_ttl", "hard_ttl"]
    assert kept_after(decide(files_of(5, 4), Rules(hard_us=HOUR_US), NOW_US, None, ALL)) == 20, (
        "the last one too"
    )


def test_max_bytes_deletes_the_oldest_until_the_rest_fits_and_spares_the_file_being_written() -> None:
    drops = decide(files_of(3, 2, 1, 0), Rules(bytes_max=250), NOW_US, 0, ALL)
    assert (reasons(drops), kept_after(drops)) == (["max_bytes"] * 2, 20)
    assert kept_after(decide(files_of(3, 2, 1, 0), Rules(bytes_max=1), NOW_US, 0, ALL)) == 30


def test_a_file_is_deleted_when_all_its_messages_have_expired_and_not_before() -> None:
    assert reasons(decide(files_of(2, 1, expires_us=NOW_US), Rules(), NOW_US, 0, ALL)) == ["ttl", "ttl"]
    assert decide(files_of(2, 1, expires_us=NOW_US + 1), Rules(), NOW_US, 0, ALL) == []


def test_no_file_behind_one_that_stays_is_deleted() -> None:
    files = [*files_of(1), *files_of(5, 5)[1:]]
    assert decide(files, Rules(hard_us=2 * HOUR_US), NOW_US, 0, ALL) == []


def test_a_file_without_entries_that_is_being_written_stays() -> None:
    empty = StoredFile(7, 7, 50, 0, None)
    assert decide([empty], Rules(hard_us=1, soft_us=0, bytes_max=1), NOW_US, 7, ALL) == []


times = st.none() | st.integers(0, 20).map(lambda hours: hours * HOUR_US)


@st.composite
def shards(draw: st.DrawFn) -> list[StoredFile]:
    ages = sorted(draw(st.lists(st.integers(0, 20), max_size=8)), reverse=True)
    found: list[StoredFile] = []
    first = draw(st.integers(0, 50))
    for age in ages:
        end = first + draw(st.integers(1, 9))
        expires = draw(st.none() | st.integers(-3, 3))
        expires_us = None if expires is None else NOW_US + expires
        found.append(StoredFile(first, end, draw(st.integers(1, 99)), NOW_US - age * HOUR_US, expires_us))
        first = end
    return found


@settings(max_examples=300)
@given(
    shards(), times, times, st.none() | st.integers(1, 300), st.none() | st.integers(0, 120), st.integers(0, 9)
)
def test_retention_deletes_the_longest_prefix_of_deletable_files(
    files: list[StoredFile],
    soft_us: int | None,
    hard_us: int | None,
    bytes_max: int | None,
    settled: int | None,
    files_max: int,
) -> None:
    drops = decide(files, Rules(soft_us, hard_us, bytes_max), NOW_US, settled, files_max)
    assert [(drop.first, drop.end) for drop in drops] == [
        (file.first, file.end) for file in files[: len(drops)]
    ]

    def may_go(number: int) -> set[str]:
        file = files[number]
        age_us = NOW_US - file.newest_us
        left = sum(other.bytes for other in files[number:])
        return {
            reason
            for reason, holds in (
                ("ttl", file.expires_us is not None and file.expires_us <= NOW_US),
                ("hard_ttl", hard_us is not None and age_us >= hard_us),
                ("soft_ttl", soft_us is not None and age_us >= soft_us and (settled or 0) >= file.end),
                ("max_bytes", bytes_max is not None and left > bytes_max and number < len(files) - 1),
            )
            if holds
        }

    for number, drop in enumerate(drops):
        assert drop.reason in may_go(number)
    if len(drops) < min(len(files), files_max):
        assert may_go(len(drops)) == set()
