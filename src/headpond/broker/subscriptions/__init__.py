"""Subscriptions: which consumer gets which message, when it is redelivered, and how it was settled.

A new kind of subscription is a subclass of ``Subscription`` and one line in ``KINDS`` (journal.py).
ARCHITECTURE.md lists what else names the kinds.

In reading order::

    records          The records of the settlement journal, the tally of a shard, the history of losses
    unacked_log      Refused entries of one shard, and what each waits for before its redelivery
    refusal_reasons  Why consumers refused entries of one shard
    cursor           A subscription's position in one shard: the state of each entry
    attachment       A consumer of a subscription: its credit, what it holds, its lease, its deadlines
    subscription     The machine: consumers, offers, settlements and time, without clock or IO
    kinds            Who gets what: unique, failover, shared
    key_shared       Who gets what: shared, with one consumer per key at a time
    journal          All subscriptions of a node, restored from the settlement journal
    dead_letters     Messages that reached max_attempts: copied to the dead-letter topic, then settled
    stopwatch        How long messages take to a consumer, and to its acknowledgement
    subscribe        Opening a subscription and attaching a consumer: where it starts, checks
    consume          The shell: frames and journal records in and out
    requests         Administration: create, show, seek, pause, delete, redrive, browse
"""
