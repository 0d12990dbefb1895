"""Producers' segments in, acknowledgements out.

In reading order::

    admission     What a segment\'s number says about it, per (topic, block, shard)
    lookup        Old segments of a shard, found in its files by a worker thread
    titles        Whether a block may be sent: what a TITLE says, against the token, the topic and its produce
    typed_blocks  Typed blocks at the door: encoder state in, self-contained records out
    watermark     The disk's watermark: below it sends are refused, for a while, so that acknowledgements and
    ingest        Segments in, acknowledgements out
    producers     Producers registered at a topic, by name: with which access, who is there, how the lease sta
    requests      Producers registered, opened, closed, shown and removed; the lease of single access granted
"""
