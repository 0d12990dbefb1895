"""Messages in, receipts out.

In reading order::

    values        The values of a typed topic: mappings of its columns, checked one by one
    tables        A user's table, cut into pieces that are each one segment of one shard
    promise       The fate of a sent message, known when its segment is answered
    batcher       Rows gather here until their segment is cut
    encoding      A batcher of values of one type
    slot          A producer's place in the refill: a folder that its process holds
    registration  A named producer at its destinations, and with single access the holder of a lease
    destination   The link to a node, the topic at that node, and the writing of segments to it
    run           The shell around the keeper: feeds it inputs and carries out its effects
    producer      The producer: post, send, tables, flush, close
    refill_send   Sends the files that producers left in a refill folder
"""
