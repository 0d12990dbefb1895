"""The client: connect, produce, consume, read, write, administer.

``link`` keeps the conversation with a service, ``produce`` and ``consume`` hold the two directions.

In reading order::

    arguments  checks of the arguments of public calls against their annotations
    options    the options of producers and consumers
    contexts   the file of contexts: nodes by name, with URL, token and certificates
    codecs     how values become bytes, and bytes values
    scope      ``async with`` for everything that opens and closes
    tracing    what makes spans, if something does
    heap       how much freed memory a process keeps
    connect    the client: a connection to one service, and what uses it
    reader     any range of a topic by position, without a subscription
    writer     staged rows, published as one batch, all or none, exactly once
    admin      requests that show or change what a node keeps
    checkup    what each address of a service answers, and advice
"""
