"""Messages out, settlements in.

In reading order::

    batch     A batch: the rows of one stored segment that a consumer was offered, as Arrow columns and as mes
    gate      The gate: whether the next message may be handed out. No IO
    settler   What became of messages, on its way to the node: per message on the API, ranges on the wire. No
    intake    The intake: keeps a consumer subscribed, and turns deliveries into batches
    consumer  The consumer: messages or batches out, settlements in
    seen      What a reader of several nodes has seen: each message once, whichever node brings it first. No I
    source    A source: one of the services that a consumer of several nodes reads, and its consumer at the no
    several   The consumer of several nodes: each message once, from whichever node brings it first
"""
