"""docs/metrics.md, from the metrics and the alert rules: ``python -m tests.metrics_page`` writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml
from msgspec import structs

from headpond.broker.settings import Settings
from headpond.broker.steps import run
from headpond.cluster.journal import StreamState
from headpond.cluster.member import MemberStatus
from headpond.model.errors import HeadpondError
from headpond.node.http.cluster import MemberReadings
from headpond.node.http.metrics import HTTP, HTTP_COUNTERS, NodeReadings, render
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.status import ShowTop, TopInfo
from tests.fire.core_shell import CoreShell
from tests.root import ROOT

PAGE = ROOT / "docs" / "metrics.md"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
GENERATED = "<!-- Generated: python -m tests.metrics_page -->"
STATUS = MemberStatus("a", "standby", "headpond://a", "", 3, 7, 5, lag_s=0.5)
STREAM = StreamState(1, 9, 100, 1000, "n1", {"n1": "leader", "n2": "current", "n3": "3 behind"})

# ruff: noqa: E501  (rows of tables)

START = f"""\
# Metrics and alerts

{GENERATED}

A node with `--http` serves `/metrics` for Prometheus, without further settings. In a clone of this
repository,

<!-- not run: needs Docker -->

```sh
docker compose --file deploy/compose.yaml --profile monitoring up --detach
```

starts a node, Prometheus with the alerts below, and Grafana with a dashboard at
http://127.0.0.1:3000. For your own Prometheus and Grafana, use `deploy/prometheus/alerts.yml`, import
`deploy/grafana/dashboards/headpond.json`, and add the node to the job `headpond`, as
`deploy/prometheus/prometheus.yml` does. If the node has tokens, Prometheus needs one of an admin of
everything.

## What do I watch?

| question | metric |
|---|---|
| Does the node serve? | `up`, `headpond_node_disk_full`; `/readyz` for a load balancer |
| Do consumers keep up? | `headpond_subscription_oldest_age_seconds`: the age of the oldest message that is not settled. `headpond_subscription_lag` counts the messages |
| How long does a message take? | `headpond_publish_seconds`, `headpond_delivery_seconds`, `headpond_end_to_end_seconds` |
| Is the disk fast, and large enough? | `headpond_sync_seconds`, `headpond_node_disk_free_bytes` |
| Did everything arrive, and once? | `…_reliability` (R) and `…_uniqueness` (UR) of each hop: `headpond_topic_…` producer to node, `headpond_subscription_…` node to consumer, `headpond_link_…` node to node ([ledger](ledger.md)) |
| Does something fail? | `headpond_node_refusals_total`, `headpond_node_events_total` |
| Could a standby take over? | `headpond_cluster_role`, `headpond_cluster_lag_seconds` ([clusters](cluster.md)) |

## What do the durations mean?

They are histograms of the whole node. Histograms of each topic would be 84 series per topic.

- **sync**: one write and its sync, which every acknowledgement waits for. Many logs share one.
- **publish**: from the arrival of a whole segment to its acknowledgement. A segment counts once,
  with any number of messages. The time on the network is not included.
- **delivery**: from the arrival of a segment to its first delivery to a consumer, for each
  subscription. It includes the time in which no consumer was connected or had room.
- **end to end**: from the `sent_at` of a message to its acknowledgement by a consumer, for a sample:
  at most 20 messages a second, and one of a consumer at a time. **It compares two clocks.** If the
  producer's clock is 2 s behind the node's, the time is 2 s too long; if it is ahead, 2 s too short,
  and a negative time counts as 0. Use it only where clocks are synchronized. A message that was sent
  over HTTP with an `Idempotency-Key` has no `sent_at`; its time begins with its arrival.

A Prometheus histogram has only the bounds of buckets: a quantile is exact to its bucket.

## Which metrics are there?

Every metric exists from the start of the node; a row of a topic, subscription or link exists while
its object does. Metrics that end in `_total` only grow; most begin at 0 with each run of the node. The
page has the 1,000 busiest topics and the 1,000 subscriptions that are furthest behind;
`headpond_topics_left_out` counts the other topics.

"""
CLUSTER = """
A member of a [cluster](cluster.md) has these too, also as a standby. While the stream does not
answer, `headpond_cluster_lag` and `headpond_cluster_stream_…` are missing. A process that is no
longer active replaces itself, so its counters restart at 0.

"""
ALARMS = """
## Which alerts are there?

They are in `deploy/prometheus/alerts.yml`. Change their limits to the delays that your programs may
have.

"""


class Shown(NamedTuple):
    """One metric, as a page of ``/metrics`` has it."""

    name: str
    kind: str
    text: str


def shown(page: str) -> list[Shown]:
    texts = dict(re.findall(r"^# HELP (\w+) (.*)$", page, re.MULTILINE))
    kinds = re.findall(r"^# TYPE (\w+) (\w+)$", page, re.MULTILINE)
    return [Shown(name, kind, texts[name]) for name, kind in kinds]


def sample_names(page: str) -> set[str]:
    """The names that a query can use."""
    parts = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
    return {each.name + part for each in shown(page) for part in parts.get(each.kind, ("",))}


def node_page() -> str:
    """Of a node without topics, subscriptions and links."""
    core = CoreShell(MemoryDisk(), seed=1, settings=Settings(data="memory")).core
    found: list[TopInfo] = []
    refused: list[HeadpondError] = []
    run(core.operations.steps(None, ShowTop()), found.append, refused.append)
    assert not refused
    top = structs.replace(found[0], node=structs.replace(found[0].node, cpu_us=0, rss_bytes=0))
    http = dict.fromkeys((*HTTP, *HTTP_COUNTERS), 0)
    return render(NodeReadings(top, core.context.counters, http, core.context.timings)).decode()


def member_page() -> str:
    return render(MemberReadings("main", STATUS, STREAM)).decode()


class Alert(NamedTuple):
    name: str
    expression: str
    wait: str
    todo: str


def alerts() -> Iterator[Alert]:
    rules: dict[str, Any] = yaml.safe_load(ALERTS.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            todo = rule["annotations"]["description"]
            yield Alert(rule["alert"], rule["expr"], rule.get("for", "at once"), todo)


def page() -> str:
    node = shown(node_page())
    more = [each for each in shown(member_page()) if each not in node]
    rows = [
        f"| `{each.name}` | `{each.expression.replace('|', chr(92) + '|')}` | {each.wait} | {each.todo} |"
        for each in alerts()
    ]
    alarms = "\n".join(["| alert | expression | for | what to do |", "|---|---|---|---|", *rows]) + "\n"
    return f"{START}{_table(node)}{CLUSTER}{_table(more)}{ALARMS}{alarms}"


def _table(metrics: list[Shown]) -> str:
    rows = [f"| `{each.name}` | {each.kind} | {each.text} |" for each in metrics]
    return "\n".join(["| metric | type | meaning |", "|---|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
