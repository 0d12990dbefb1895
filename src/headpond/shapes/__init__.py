"""JSON shapes, the same for ``--json`` and for HTTP (docs/json.md).

In reading order::

    convert    from a struct of the wire to a JSON object; times and errors
    resources  topics, places, producers, writers, subscriptions, tokens, peers, ledgers
    values     values that people write: bytes, columns of typed topics, times
    message    messages, one batch at a time
    cluster    the members of a group and its stream
    top        how busy a node is: rates beside the totals that they come from
    columns    columns as people write them: ``name:type``, or a file
"""
