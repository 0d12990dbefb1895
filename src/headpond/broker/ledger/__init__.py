"""What became of every message, and how busy the node is.

In reading order::

    runs    Runs of the node, numbered, and the last one that was cut short
    ledger  The ledger of a topic, from its marks, logs and cursors
    top     One reading for ``headpond top``: how far subscriptions are behind
"""
