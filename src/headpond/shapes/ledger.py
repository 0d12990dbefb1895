"""The ledger of a topic: what became of everything, as accounts that balance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headpond.shapes.times import iso_time

if TYPE_CHECKING:
    from headpond.model.ledger import ProducerAccount, Ratio, SubscriptionAccount
    from headpond.wire.control.ledger import LedgerInfo


def ledger_object(info: LedgerInfo) -> dict[str, Any]:
    import msgspec

    from headpond.model.ledger import balance

    return {
        "topic": info.topic,
        "at": iso_time(info.at_us),
        "run": info.run,
        "crashed": info.crashed,
        "balanced": info.balanced,
        "log": msgspec.structs.asdict(info.log) | {"balance": balance(info.log)},
        "producers": [_account(account) for account in info.producers],
        "subscriptions": [
            _account(one.account)
            | {"kind": one.kind, "mode": one.mode, "consumers": one.consumers}
            | {"lost_ranges": [_range(lost) for lost in one.lost_ranges]}
            for one in info.subscriptions
        ],
        "blocks": [
            {"block": block.block.hex(), "closed": block.closed, "last": iso_time(block.touched_at_us)}
            | _account(block.account)
            for block in info.blocks
        ],
        "blocks_left_out": info.blocks_left_out,
    }


def _account(account: ProducerAccount | SubscriptionAccount) -> dict[str, Any]:
    import msgspec

    from headpond.model.ledger import balance

    return msgspec.structs.asdict(account) | {
        "balance": balance(account),
        "difference": account.difference,
        "r": _ratio(account.reliability),
        "ur": _ratio(account.use_ratio),
    }


def _ratio(ratio: Ratio) -> dict[str, Any]:
    return {"value": ratio.value, "part": ratio.part, "whole": ratio.whole, "bound": ratio.bound}


def _range(lost: tuple[int, int, int, str, int]) -> dict[str, Any]:
    shard, start, end, reason, at_us = lost
    return {"shard": shard, "start": start, "end": end, "reason": reason, "at": iso_time(at_us)}
