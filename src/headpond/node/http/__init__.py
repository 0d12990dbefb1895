"""HTTP: the same operations for programs without the client library.

In reading order::

    gate      What stands before every route: bounds on bodies and requests, and no way in for web pages
    answers   Room for answers: they take memory until their clients have read them, and a client may never do
    status    The HTTP status of every error of the catalogue
    protocol  One HTTP connection, as uvicorn serves it, with a clock: slow, idle and surplus connections are
    callers   Callers: for each token a connection to the node, kept for a while, and what is open through it
    openapi   An operation in the OpenAPI schema: its errors are those of the catalogue, not the framework's
    asking    What routes share: who asks, names in paths, waiting until there is something or nobody waits an
    bodies    Messages out of a request's body: JSON, a message a line of it, an Arrow stream, or one value as
    lane      A caller's way into a topic, without a key: requests that come together share a segment
    publish   Messages of a request brought to the node: once under a key, through a lane, or under a producer
    held      A consumer that is held for a caller between its requests: what it handed out, until that is set
    app       All routes, and the OpenAPI schema of them
    door      The door itself: a listener of its own beside the node's, with the node's certificates
"""
