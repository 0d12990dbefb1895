"""The connections of links: each is dialled, fed, and dialled again when it is lost.

In reading order::

    ends    The two ends of a link, as whoever carries records between them asks: this node and the other one
    flow    One direction of a link while it is connected: topics are met as the source tells of them, and fed
    follow  The subscriptions of one direction of a link: what is settled at the source is told to the sink, b
    links   The node's links to other nodes: each is dialled, carried and dialled again, for as long as it is
"""
