"""The node's rules, without sockets, threads or clocks: bytes and completions in, effects out.

A message passes ``ingest``, the log of its shard in ``storage``, and ``subscriptions``, in this order.
``reading`` reads by position, ``staging`` holds batches until they are committed, ``links`` copies between
nodes, ``catalog`` has the topics, ``access`` decides what a token allows, ``ledger`` counts.

In reading order::

    settings    A node's settings: defaults, a TOML file, and options of the command line
    effects     What the shell does for the core, and how it reports back
    events      The counters of what happens in a node, by name
    timings     How long the node takes: histograms
    context     What every part uses: clocks, settings, counters, effects, and alarms
    steps       Operations that wait, written as generators
    session     One connection as the node knows it: its conversation, its blocks, its consumers
    sessions    All connections: what is sent to them, and how they end
    stores      Everything durable of a node, opened as one consistent whole and committed in lanes
    backup      The files of one moment, held while a program copies them
    operations  A request, from its check against the token to its answer
    core        Wires the parts, and passes each input to the part that handles it
"""
