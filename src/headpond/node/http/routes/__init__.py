"""The routes of the HTTP server.

In reading order::

    resources      Topics, places, producers, writers, tokens and peers: one operation of the node per route
    messages       Messages of a topic: publish them, and read them by position without a subscription
    subscriptions  Subscriptions: create, show, seek, pause, promote, delete; unacked, skipped and dead messages
    consuming      A subscription read over several requests: fetch, ack, skip, nack, extend
    events         Messages as server-sent events, with and without a subscription
    monitoring     Health, the node's counters, Prometheus, and the catalogue of errors
    lossy_link     The lossy link of ``headpond up``, which no other node has
"""
