"""JSON shapes, the same for ``--json`` and for HTTP (docs/json.md).

In reading order::

    times         Times as JSON has them: ISO 8601 in UTC, ending in ``Z``
    columns       Columns as a person writes them: ``name:type``, a file that lists them, or a file of data th
    error         An error of the catalogue
    message       Messages, a batch at a time
    topic         A topic; its shards and settings only where the node told of them (``show``)
    place         A tenant, a product or a component
    producer      A producer registered at a topic
    subscription  A subscription, its policy, what it lost, what is unacked in it and what was skipped
    token         A token, without its secret
    peer          A link to another node, and the topics that it is about
    writer        A writer of staged batches, and its stages
    ledger        The ledger of a topic: what became of everything, as accounts that balance
    top           How busy a node is: rates beside the totals they were made from
"""
