"""A device that measures whether its node is reachable or not: ``python examples/device.py [NAME]``.

    python examples/device.py boiler-1   # no node runs yet: the readings are written to this disk
    headpond agent &                     # delivers them once the node answers, also if the device has ended
    headpond node &
    headpond consume readings --subscription tour --count 3

HEADPOND_URL names the node, and HEADPOND_STATE the folder for what waits.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import msgspec

import headpond.sync


class Reading(msgspec.Struct):
    device: str
    at: datetime
    degrees: float


def main(name: str) -> None:
    with (
        headpond.sync.connect(wait=False) as client,
        client.producer("readings", name=name, value=Reading) as producer,
    ):
        for degrees in (60.5, 61.0, 61.5):
            receipt = producer.send(Reading(name, datetime.now(UTC), degrees), key=name)
            print(degrees, receipt.outcome)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "boiler-1")
