"""Accounts balance or report the difference; ratios state whether they are exact."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.model.ledger import (
    AT_LEAST,
    AT_MOST,
    EXACT,
    LogAccount,
    ProducerAccount,
    Ratio,
    SubscriptionAccount,
    balance,
    sum_producers,
    sum_shards,
)

counts = st.integers(0, 1000)
reasons = st.dictionaries(st.sampled_from(["bad-segment", "segment-too-large", "schema"]), counts, max_size=3)


@st.composite
def producers(draw: st.DrawFn) -> ProducerAccount:
    """An account that balances."""
    stored, refused, pending, holes = draw(counts), draw(reasons), draw(counts), draw(counts)
    return ProducerAccount(
        "till-1",
        blocks=1,
        unclosed=draw(st.integers(0, 1)),
        announced=stored + sum(refused.values()) + pending + holes,
        stored=stored,
        messages=draw(counts),
        refused=refused,
        pending=pending,
        holes=holes,
        duplicates=draw(counts),
        run=draw(st.integers(1, 5)),
        exact=draw(st.booleans()),
    )


@st.composite
def shards(draw: st.DrawFn) -> SubscriptionAccount:
    """An account of one shard that balances."""
    account = SubscriptionAccount(
        acknowledged=draw(counts),
        skipped=draw(counts),
        dead=draw(counts),
        retention=draw(counts),
        damaged=draw(counts),
        expired=draw(counts),
        compacted=draw(counts),
        passed=draw(counts),
        unknown=draw(counts),
        in_flight=draw(counts),
        available=draw(counts),
        unacked=draw(counts),
        dying=draw(counts),
        exact=draw(st.booleans()),
    )
    account.stored = account.settled + account.unsettled
    return account


@given(st.lists(producers(), max_size=5))
@settings(max_examples=50)
def test_a_sum_of_balanced_accounts_balances(accounts: list[ProducerAccount]) -> None:
    total = sum_producers("till-1", accounts)
    assert balance(total) == "balances"
    assert total.announced == sum(account.announced for account in accounts)
    assert sum(total.refused.values()) == sum(sum(account.refused.values()) for account in accounts)
    assert total.exact == all(account.exact for account in accounts)
    assert total.run == min((account.run for account in accounts), default=0)


@given(st.lists(shards(), max_size=5))
@settings(max_examples=50)
def test_shards_that_balance_make_a_subscription_that_does(accounts: list[SubscriptionAccount]) -> None:
    total = sum_shards("billing", accounts)
    assert total.difference == 0
    assert total.subscription == "billing"
    assert total.stored == sum(account.stored for account in accounts)


@given(shards(), st.sampled_from(["acknowledged", "dead", "retention", "compacted", "available", "in_flight"]))
@settings(max_examples=50)
def test_one_entry_too_many_or_too_few_is_named(account: SubscriptionAccount, field: str) -> None:
    setattr(account, field, getattr(account, field) + 1)
    assert balance(account) == "1 counted twice"
    setattr(account, field, getattr(account, field) - 3)
    assert balance(account) == "2 missing"


@given(producers())
@settings(max_examples=50)
def test_a_segment_that_nobody_accounts_for_is_missing(account: ProducerAccount) -> None:
    account.announced += 1
    assert balance(account) == "1 missing"


def test_a_log_with_more_entries_than_messages_does_not_balance() -> None:
    assert balance(LogAccount(entries=10, messages=7, lost=3)) == "balances"
    assert balance(LogAccount(entries=10, messages=7)) == "3 missing"


def test_a_ratio_prints_its_bound() -> None:
    account = ProducerAccount(announced=10, stored=8, pending=2, duplicates=2)
    assert (account.reliability, account.use_ratio) == (Ratio(8, 10, EXACT), Ratio(8, 10, EXACT))
    account.unclosed, account.exact = 1, False
    assert (account.reliability.bound, account.use_ratio.bound) == (AT_MOST, AT_MOST)
    assert str(account.reliability) == "≤0.800000"


def test_copies_that_nobody_opened_are_no_repeats() -> None:
    account = SubscriptionAccount(stored=1000, reached=400, reached_since=400, delivered=1000, unseen=600)
    assert str(account.use_ratio) == "1.000000"
    assert str(account.reliability) == "0.400000"
    account.exact = False
    assert account.reliability.bound == AT_LEAST


def test_a_share_close_to_one_does_not_look_like_one() -> None:
    assert str(Ratio(9_999_999, 10_000_000)) == "0.999999+"
    assert str(Ratio(7, 7)) == "1.000000"
    assert str(Ratio(0, 0)) == "-"
