"""The producer's way out, without IO: rows to segments that every destination has confirmed.

``refill`` is the file that keeps what a destination did not take.

In reading order::

    policy    How long a producer waits for its destinations, and how much it sends ahead
    sharder   Which shard a row goes to
    encoder   The encoder of one shard: rows in, numbered segments out
    exchange  The exchange: segments between the encoder and the destinations, with a promise each
    outlet    An outlet: what a manager knows of one destination, and what it has read from the refill for it
    supply    The supply: a block's segments, wherever they are, and what a sender is given next
    spills    Spills: a block's segments in the refill, as its manager knows them, and what the file is to be
    sender    The sender of one shard to one destination: what was sent and is not confirmed, in order
    jobs      What a manager wants done on the disk: small pieces of work for one thread, in order
    recut     A refill file that was cut for another number of shards than its topic turned out to have, encod
    numbers   The numbers of a block that is kept over runs: reserved on disk ahead of use, so that none is us
    manager   The manager of one block: encoders, exchange, refill, and a sender for each destination and shar
    blocks    Where managers come from: a new block, one that goes on, one that is kept over runs, a file left
    keeper    The keeper: one manager that takes what is sent, perhaps an old one that drains, and the files l
"""
