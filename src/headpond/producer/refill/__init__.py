"""The refill: segments on disk until their destinations take them.

In reading order::

    form    The bytes of a refill file. Version 1: the transport document's frames, each with its checksum
    file    The file on disk: appended to, synced, cut back after a failure, read with every checksum
    index   The places of segments and snapshots in a file, at 20 bytes of memory per segment
    claims  The state of each segment per destination: confirmed, refused for good, or to be sent
    scan    Reads a file through: its content, torn writes, damage, lost segments
    refill  A file that keeps the segments of one block that a destination did not take
    folder  The folders of producers, with one file per block
"""
