"""Dead letters sent again: a consumer gives up on payments, a pipeline repairs some and sends them back.

headpond node &
python examples/spark/redrive.py
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import headpond.spark
import headpond.sync
from headpond.spark.pipeline import Pipeline

HERE = Path(__file__).parent
GOOD, COMMAS, HOPELESS = 20, 7, 3


def feed(client: headpond.sync.Client) -> None:
    payments = [json.dumps({"amount": number + 0.5}) for number in range(GOOD)]
    payments += [f'{{"amount": "{number},50"}}' for number in range(1, COMMAS + 1)]
    payments += ["not a payment"] * HOPELESS
    with client.producer("payments", name="till") as producer:
        for payment in payments:
            producer.post(payment.encode())
        producer.flush()


def consume(client: headpond.sync.Client) -> int:
    """A consumer that books the payments it can read; others become dead letters after two attempts."""
    taken = 0
    policy = headpond.Policy(max_attempts=2, backoff=0.05)
    with client.consumer("payments", subscription="booking", policy=policy) as consumer:
        while (message := consumer.receive(timeout=2.0)) is not None:
            try:
                float(json.loads(message.value)["amount"])
            except ValueError:
                consumer.nack(message)
            else:
                consumer.ack(message)
                taken += 1
    return taken


def main() -> None:
    shutil.rmtree(HERE / "made", ignore_errors=True)
    with headpond.sync.connect() as client:
        feed(client)
        print(f"booked {consume(client)} of {GOOD + COMMAS + HOPELESS}")
        pipeline = Pipeline.load(HERE / "redrive.toml")
        pipeline.set_trigger(available_now=True)
        pipeline.start(headpond.spark.session("redrive example")).wait()
        print(f"booked {consume(client)} more after the pipeline")


if __name__ == "__main__":
    main()
