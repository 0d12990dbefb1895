"""Audit: what was sent against what was received, message by message.

In reading order::

    sides    Both inputs of an audit in one form: a row a message, with what names it and what it is counted u
    orders   Which order held, from what was sent to what was received
    figures  The figures of an audit: sums and shares, in all and by producer, shard and time
    listing  The messages that did not arrive exactly once: missing, repeated, and strangers
    picture  The picture of an audit: R and UR over time, and below them how many messages were sent and missi
    audit    ``audit``: what was sent against what was received, message by message
    ledger   ``audit_ledger``: a producer's ledger as what was sent, against the identities that a topic or ar
    follow   ``follow``: an audit that goes on, over two topics as they grow
"""
