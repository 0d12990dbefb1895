"""One conversation with a service, kept over lost connections.

In reading order::

    tls         TLS on the client's side: whom to trust, and what to show
    dialling    Which addresses a link tries, in which order: those it was given, and where nodes send it
    connection  One TCP connection to a node: bytes in and out of the connection machine, and nothing that out
    link        The link: a client's one conversation with a service, kept up over lost connections
"""
