"""A member of a cluster as HTTP shows it, active or not: its metrics, and what ``cluster show`` prints.

Every reading of the metrics asks the stream's leader. Without an answer ``headpond_cluster_stream_up`` is 0,
and what only the stream knows is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from headpond.broker.access.tokens import Tokens
from headpond.cluster.inquiry import GroupStatus
from headpond.cluster.journal import StreamState, Unreachable
from headpond.cluster.member import STAYS, Member, MemberStatus
from headpond.model.errors import Unavailable
from headpond.node.server import now_us
from headpond.shapes.cluster import group_object
from headpond.storage.append import write_whole
from headpond.storage.disk import MeasuredDisk, read_whole
from headpond.storage.journal import JournalTable
from headpond.storage.memory_disk import MemoryDisk

LABELS = ("group", "member")
ANSWER_S = 1.0
TOKENS_FOLDER = "tokens"

COUNTERS = {
    "takeovers": "How often it became active in this run of its process.",
    "doubts": "How often it looked in the stream for records without an answer, in this run.",
    "void": "Records of replaced members that it passed over in this run.",
    "applied": "Records applied to its folder in this run.",
    "appended": "Records that the stream confirmed to it in this run.",
    "appended_bytes": "Bytes of these records.",
}
GAUGES = {
    "epoch": "How many members were active in turn, as far as its folder knows.",
    "seq": "The last record of the stream that its folder has.",
    "durable_seq": "The last record that its folder has synced.",
    "certain": "1 while it is active and no other member can be.",
}
STREAM_GAUGES = {
    "bytes": "Bytes of the records in the stream.",
    "bytes_max": "The room of the stream.",
    "first_seq": "The oldest record in the stream.",
    "last_seq": "The newest record in the stream.",
}


class MemberReadings(Collector):
    """One reading of a member, as Prometheus's families."""

    def __init__(self, group: str, status: MemberStatus, stream: StreamState | None) -> None:
        self._labels = (group, status.member)
        self._status = status
        self._stream = stream

    def collect(self) -> Iterator[Metric]:
        status = self._status
        roles = GaugeMetricFamily(
            "headpond_cluster_role",
            "1 at its role: active, standby, copying or starting.",
            labels=(*LABELS, "role"),
        )
        for role in STAYS:
            roles.add_metric((*self._labels, role), float(status.role == role))
        yield roles
        for name, text in COUNTERS.items():
            counter = CounterMetricFamily(f"headpond_cluster_{name}", text, labels=LABELS)
            counter.add_metric(self._labels, getattr(status, name))
            yield counter
        for name, text in GAUGES.items():
            yield self._gauge(name, text, getattr(status, name))
        appends = SummaryMetricFamily(
            "headpond_cluster_append_seconds", "From sending a record to its confirmation.", labels=LABELS
        )
        appends.add_metric(self._labels, status.appended, status.append_s)
        yield appends
        if status.lag_s is not None:
            text = "Of a standby: seconds since it had every record that the active member had."
            yield self._gauge("lag_seconds", text, status.lag_s)
        yield self._gauge("stream_up", "1 if the stream's leader answered.", self._stream is not None)
        if self._stream is not None:
            yield from self._of_stream(self._stream)

    def _of_stream(self, stream: StreamState) -> Iterator[Metric]:
        lag = max(0, stream.last_seq - self._status.seq)
        yield self._gauge("lag", "Records of the stream that its folder lacks.", lag)
        for name, text in STREAM_GAUGES.items():
            yield self._gauge(f"stream_{name}", text, getattr(stream, name))
        current = [state for state in stream.replicas.values() if state in ("leader", "current")]
        yield self._gauge("stream_replicas", "NATS servers that have the stream.", len(stream.replicas))
        yield self._gauge("stream_replicas_current", "Those of them that are up to date.", len(current))

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        gauge = GaugeMetricFamily(f"headpond_cluster_{name}", text, labels=LABELS)
        gauge.add_metric(self._labels, float(value))
        return gauge


class ClusterView:
    def __init__(self, member: Member, group: str) -> None:
        self.member = member
        self._group = group
        self._asking: asyncio.Task[GroupStatus] | None = None

    async def readings(self) -> MemberReadings:
        try:
            stream = await self.member.ask_stream()
        except Unreachable:
            stream = None
        return MemberReadings(self._group, self.member.status(), stream)

    async def group(self) -> dict[str, Any]:
        """The members that answer within a second. Requests at the same time share the answers."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        try:
            return group_object(self._group, await asyncio.shield(self._asking))
        except Unreachable as error:
            raise Unavailable(
                f"the stream of group {self._group} does not answer: {error}",
                hint="More than half of the NATS servers must run and reach each other.",
            ) from error

    async def _ask(self) -> GroupStatus:
        members, stream = await asyncio.gather(self.member.ask_status(ANSWER_S), self.member.ask_stream())
        return GroupStatus(sorted(members, key=lambda each: each.member), stream)


def read_tokens(disk: MeasuredDisk) -> Tokens:
    """The tokens in the folder of a member that is not active. Does IO, between two records.

    Recovery may change files, so it gets a copy of them.
    """
    copy, tokens = MemoryDisk(), Tokens(now_us)
    for path in disk.paths():
        if path.partition("/")[0] == TOKENS_FOLDER:
            write_whole(copy, path, read_whole(disk, path), sync=False)
    JournalTable(copy, TOKENS_FOLDER, tokens, {}, compact_bytes=0)
    return tokens
