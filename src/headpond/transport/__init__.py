"""The producer's side of the transport: from rows to segments that a node has confirmed.

Reading order: sharder (which shard a row goes to), outbox (numbering, order and re-sending of what is not
confirmed yet).
"""
