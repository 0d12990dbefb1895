"""The streaming query of ``headpond up --spark``: ``python -m headpond.cli.up.query URL CHECKPOINT``.

It reads the orders, and writes each under its dish.
"""

from __future__ import annotations

import signal
import sys

SQL = "select get_json_object(cast(value as string), '$.dish') as key, value from orders"


def main(url: str, checkpoint: str) -> None:
    from headpond.spark.pipeline import Pipeline
    from headpond.spark.start.session import session

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    pipeline = (
        Pipeline("dishes", checkpoint=checkpoint, url=url, trigger={"every": "5s"})
        .source("orders", topic="orders", subscription="spark-dishes")
        .step("by_dish", sql=SQL)
        .sink("dishes", from_="by_dish", topic="dishes")
    )
    running = pipeline.start(session("headpond up", master="local[2]"))
    try:
        running.wait()
    except KeyboardInterrupt:
        running.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
