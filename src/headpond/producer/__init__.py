"""The way of rows out of a program, without IO: to segments that every destination has confirmed.

In reading order::

    encoder        From rows to numbered segments: the shard of a row, and the encoder of a shard
    numbers        The numbers of a block that all runs share, reserved on disk before they are used
    exchange       Segments between the encoder and the destinations, each with a promise
    sender         One shard to one destination: sent and unconfirmed segments, in order
    refill         Segments on disk until their destinations take them
    spills         A block's segments in the refill, and the work for the thread of the disk
    outlet         The way of one block to one destination, and the destination's state that all blocks share
    manager        One block: encoders, exchange, refill, and an outlet for each destination
    assign         Rows in the refill get shard, block and number once the number of shards is known
    refill_sender  Files of earlier runs and ended blocks, brought to their destinations, oldest first
    keeper         The present block, earlier ones that drain, and the files: what is sent when
    blocks         How a run begins: a new block, a continued one, one that all runs share, files left behind
"""
