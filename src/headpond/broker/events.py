"""The counters of what happens in a node (``Context.counters``), by name.

A metric begins with 0 and not with its first event: else Prometheus cannot see that the first one happened.
Refusals are counted by the code of their error too, and those counters begin with their first event.
"""

from __future__ import annotations

EVENTS = (
    *("connections_opened", "connections_closed", "requests", "operations_not_allowed", "quota_slowed"),
    *("leases_granted", "faults_internal", "writes_failed", "writes_on_loop", "reads_failed", "fetches"),
    *("segments_stored", "segments_duplicate", "segments_late", "segments_refused", "segments_failed"),
    *("segments_in_holes", "snapshots", "snapshots_ignored", "decoders_dropped", "blocks_forgotten"),
    *("messages_stored", "messages_delivered", "settlements", "messages_dead", "messages_dead_without_copy"),
    *("burials_failed", "messages_expired", "messages_lost_retention", "messages_lost_damaged"),
    *("messages_lost_staged", "messages_expired_staged", "messages_dropped_topic_deleted"),
    *(f"{what}_dropped_{why}" for what in ("files", "bytes", "messages") for why in ("ttl", "hard_ttl")),
    *(f"{what}_dropped_{why}" for what in ("files", "bytes", "messages") for why in ("soft_ttl", "max_bytes")),
    *("compactions", "compactions_failed", "compactions_unsound", "messages_compacted", "files_compacted"),
    *("bytes_compacted", "packs_failed", "packs_unsound", "files_packed", "segments_packed"),
    *("subscriptions_expired", "subscriptions_promoted", "publications_failed"),
    *("stages_opened", "stages_aborted", "stages_duplicate", "stages_expired", "stage_chunks"),
    *("stage_chunks_ignored", "batches_committed", "batches_duplicate"),
    *("peer_records_in", "peer_bytes_in", "peer_records_unreadable", "peer_conflicts", "peer_settlements_in"),
    *("peer_settlements_ignored", "peer_settlements_unknown"),
)
REFUSALS = {
    "greetings": "greetings_refused_",
    "connections": "connections_refused_",
    "segments": "segments_rejected_",
    "snapshots": "snapshots_refused_",
    "stage_chunks": "stage_chunks_refused_",
    "consumers": "consumers_refused_",
    "quotas": "quota_refused_",
    "frames": "faults_",
}
"""What the node refuses: the beginning of the names of its counters, which the error's code follows."""
