"""The node's rules, without sockets, threads or clocks: bytes and completions in, effects out.

A message meets ``ingest``, the log of its shard in ``storage``, and ``subscriptions``, in this order.
``reading`` reads by position, ``staging`` holds batches until they are committed, ``links`` copies between
nodes, ``catalog`` keeps topics, ``access`` decides who may do what, ``ledger`` counts. ``core`` wires them.

In reading order::

    settings  A node's settings: defaults, a TOML file, and what the command line says on top
    alarms    When the parts of the broker want to act next
    effects   What the core asks its shell to do. The shell does it in order and reports back where told to
    session   One connection as the node knows it: its conversation, its producer's context, its consumers
    stores    Everything durable of a node: its catalog, its logs and its settlement journal, opened and commi
    requests  Administration: topics and subscriptions created, shown and removed
    dispatch  What a client asks: judged, carried out, and answered or refused, each question for itself
    core      The node's core: everything it decides, nothing it does itself
"""
