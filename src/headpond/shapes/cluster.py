"""A group of a cluster: its members and its stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headpond.cluster.inquiry import GroupStatus
    from headpond.cluster.journal import StreamState
    from headpond.cluster.member import MemberStatus


def group_object(group: str, status: GroupStatus) -> dict[str, Any]:
    return {
        "group": group,
        "active": status.active.member if status.active is not None else None,
        "stream": stream_object(status.stream),
        "members": [_member_object(each, status) for each in status.members],
    }


def stream_object(stream: StreamState) -> dict[str, Any]:
    return {
        "leader": stream.leader or None,
        "replicas": stream.replicas,
        "bytes": stream.bytes,
        "bytes_max": stream.bytes_max,
        "first_seq": stream.first_seq,
        "last_seq": stream.last_seq,
    }


def _member_object(member: MemberStatus, status: GroupStatus) -> dict[str, Any]:
    return {
        "member": member.member,
        "role": member.role,
        "epoch": member.epoch,
        "seq": member.seq,
        "durable_seq": member.durable_seq,
        "lag": status.lag(member),
        "lag_s": member.lag_s,
        "url": member.url,
        "http": member.http or None,
        "version": member.version or None,
        "doubts": member.doubts,
        "void": member.void,
    }
