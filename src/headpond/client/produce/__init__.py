"""Messages in, receipts out.

In reading order::

    values        A typed topic's values one by one: mappings of its columns, checked as they come
    tables        A user's table, cut into pieces that are each one segment of one shard
    batcher       Rows gather here until their segment is cut. Nothing is encoded a message at a time
    promise       Promises: what a sent message becomes, known when its segment's answer comes
    slot          A producer's place in the refill: a folder that its process holds, and what is noted beside
    registration  A named producer at its destinations: registered by name, and with single access the holder
    destination   A destination: the link to a node, the topic as that node has it, and what a courier writes
    courier       The courier: the shell around the keeper. It takes encoded segments to every destination, an
    run           One run of a producer: its topic, its refill folder, its blocks, put together
    producer      The producer: messages in, receipts out
    refill_send   Sends what producers left in a refill folder, as the next producer of the same name would
"""
