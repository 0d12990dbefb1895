"""One conversation with a service, kept over lost connections.

In reading order::

    tls         which authorities the client trusts, and which certificate it presents
    dialling    which addresses a link tries, and in which order
    spin        waiting without sleeping
    connection  one connection to a node
    link        one conversation with a service, over lost connections: requests, and events for handlers
    group_links  links to further groups of a cluster, opened when a node names one
"""
