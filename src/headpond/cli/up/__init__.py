"""``headpond up``: a node with a console and programs that keep it busy, to look at.

In reading order::

    up       ``headpond up``: the node or a cluster, a second node, a lossy link, and the programs
    traffic  The programs of a tea house: producers and consumers of every kind
    query    The streaming query of ``--spark``
"""
