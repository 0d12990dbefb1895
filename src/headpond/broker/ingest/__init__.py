"""Producers' segments in, acknowledgements out.

In reading order::

    admission     Decides about a segment by its number, per (topic, block, shard)
    lookup        Old segments of a shard, found in its files by a worker thread
    typed_blocks  Typed blocks: encoder state in, self-contained records out
    watermark     The disk's watermark: below it the node refuses sends
    ingest        Titles and segments in, acknowledgements out
    producers     Producers registered at a topic: access, connections, lease
    requests      Producers registered, opened, closed, shown and removed
"""
