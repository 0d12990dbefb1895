"""``headpond up``: a node with a console and programs that keep it busy, to look at.

In reading order::

    up       ``headpond up``: the node, a second node, a lossy link, and the programs, until Ctrl-C
    traffic  The programs of a tea house: producers and consumers of every kind
    query    The streaming query of ``--spark``
"""
