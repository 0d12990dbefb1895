"""Messages out, settlements in.

In reading order::

    batch         rows of stored segments, as Arrow columns and as messages; entries at a node
    packed_origins  the origins of the segments of a packed record
    shelf         batches whose messages the program does not have yet
    gate          whether the next message may be handed out, and which ones the program has
    deliveries    what a node sent and nobody took yet
    settler       settlements on their way to the node
    intake        one node's part: subscribes, takes deliveries, sends settlements
    copy_tracker  which messages of several nodes to hand out, hold and settle
    spread        several nodes' part: the intakes at each of them, joined by the tracker
    consumer      the program's part: messages and batches in order, and what a settlement means
    decoding      a consumer of values of one type
"""
