"""The client: connect, produce, consume, read, write, administer.

``link`` keeps the conversation with a service, ``produce`` and ``consume`` hold the two directions.

In reading order::

    arguments  Arguments of the public surface, held against their annotations: a ``BadRequest`` names one tha
    options    How producers and consumers behave: their settings, with defaults that suit most
    contexts   The file of contexts: nodes by name, with what it takes to reach them. Only its owner can read
    scope      What ``async with`` does for a client, a producer and a consumer alike
    connect    The client: one service, and what is open to it
    checkup    A checkup of a service: what each of its addresses answers, what the token may do there, and wh
    reader     A reader: any range of a topic by position, without a subscription. Nothing is settled by it
    writer     The writer: rows staged by anyone, anywhere, and committed as one batch, all or none, exactly o
    admin      Questions to a node, and changes to what it keeps
"""
