"""What became of every message, and how busy the node is.

In reading order::

    runs      Runs of the node, numbered: which one this is, and which was the last that did not end in good o
    ledger    The ledger of a topic, drawn up from its marks, its logs and its subscriptions' places. Nothing
    top       One reading for ``headpond top``: how far every subscription is behind, and all of those that ar
    requests  Questions about what became of everything, and about how busy the node is
"""
