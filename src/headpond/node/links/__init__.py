"""The links of a node to other nodes, while they are connected.

In reading order::

    links   Every link is dialled, runs, and is dialled again when its connection is lost
    flow    One direction of a link: topics that match are copied from the source to the sink
    follow  Subscriptions of one direction: settlements at the source are applied at the sink
    ends    The two ends of a link, this node and the other one, which answer the same operations
"""
