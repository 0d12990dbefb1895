"""How busy a node is: rates beside the totals they were made from."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec

from headpond.shapes.top_rates import Sample


def top_object(sample: Sample) -> dict[str, Any]:
    """A sample of two readings."""

    def flat(rows: list[Any]) -> list[dict[str, Any]]:
        return [
            msgspec.structs.asdict(row.now)
            | {name: value for name, value in asdict(row).items() if name != "now"}
            for row in rows
        ]

    rates = {"stored_s": sample.stored_s, "delivered_s": sample.delivered_s, "cpu": sample.cpu}
    return {
        "seconds": sample.seconds,
        "node": msgspec.structs.asdict(sample.node) | rates,
        "topics": flat(sample.topics),
        "subscriptions": flat(sample.subscriptions),
        "topics_left_out": sample.topics_left_out,
        "subscriptions_left_out": sample.subscriptions_left_out,
        "links": [msgspec.structs.asdict(link) for link in sample.links],
    }
