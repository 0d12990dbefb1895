"""The routes of the HTTP service, one file per resource.

In reading order::

    topics         ``/v1/topics``: made, listed, shown, altered, set, compacted, deleted; and the ledger of on
    messages       ``/v1/topics/{topic}/messages``: messages sent, and read by their position without a subscr
    subscriptions  ``/v1/topics/{topic}/subscriptions``: made, listed, shown, moved, paused, deleted; their un
    consuming      ``…/subscriptions/{subscription}/fetch``, ``ack``, ``skip``, ``nack``: read over several re
    events         Messages as server-sent events: ``text/event-stream``, as ``curl -N`` and browsers read it
    producers      ``/v1/producers`` and ``/v1/topics/{topic}/producers``: names registered at a topic, and wh
    places         ``/v1/tenants``, ``/v1/products``, ``/v1/components``: the same for three levels of the tre
    tokens         ``/v1/tokens``, ``/v1/access``, ``/v1/log``: who may do what, what the caller may, what was
    peers          ``/v1/peers``: the links of the node to other nodes. A link's token is taken, and never tol
    writers        ``/v1/writers``: who commits staged batches, and what is staged. Their names may hold slash
    metrics        ``/metrics`` for Prometheus: the node, its topics, subscriptions and links, for an admin of
    node           ``/v1/node``, ``/v1/top``, ``/v1/errors``: the node itself, how busy it is, and the catalog
    health         ``/livez`` and ``/readyz``: whether the process answers, whether the node takes what it is
"""
