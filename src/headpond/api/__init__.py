"""The HTTP door: what clients and the command line do, for programs without the client.

A request meets the files in this order: ``protocol`` (one connection: slow and idle ones are cut), ``gate``
(bodies and requests are counted, web pages refused), ``answers`` (what is not read is counted, too), ``app``
(routes, and the OpenAPI schema of them), ``callers`` (a connection to the node for each token, through
``inside``), then one file a noun: ``health``, ``topics``, ``messages`` (with ``bodies``, ``publishing``,
``once``, ``lane``, ``flight``), ``subscriptions`` (with ``held``), ``events``, ``places``, ``producers``,
``writers``, ``tokens``, ``peers``, ``node``, ``metrics``. ``status`` and ``faults`` make an error an answer.

**The door is a client of its node, in the same process**, and comes in with the caller's token: every rule
(access, quotas, limits, the log of administration) is the node's, and is written once. See
docs/decisions/0041-http-door.md.
"""
