"""The refill: segments on disk until their destinations take them.

In reading order::

    form    The bytes of a refill file. Version 1: the transport document's frames, each with its checksum
    file    The file under a refill: appended to, synced, cut back where that failed, read with every checksum
    index   Where each segment and snapshot stands in a refill file, at 20 bytes of memory a segment
    claims  What each destination has of a refill's segments: confirmed, refused for good, or still to be sent
    losses  Which segments a refill file lost with its bad bytes, as exactly as what is left can tell
    scan    Reading a refill file through: what stands in it, what was torn, what is damaged
    refill  The refill: a file that keeps the segments of one block which a destination did not take
    folder  Where refill files live: a folder a producer, a file a block
    sender  The refill sender: brings what earlier runs left on the disk to its destinations, oldest file firs
"""
