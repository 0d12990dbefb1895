"""Pipes between programs: the machines of ``headpond.pipes``, driven over memory, TCP or a node's topic.

A pipe is opened as its two ends, both with the text of its route::

    from headpond.client.pipes import memory, tcp, topic

    sender, receiver = memory.pair("resend_many | dedup")
    receiver = tcp.listen("resend_many | dedup", "127.0.0.1", 7500)
    sender = tcp.connect("resend_many | dedup", "127.0.0.1", 7500)
    sender = topic.sender(client, "orders")
    receiver = topic.receiver(client, "orders", subscription="billing")

In the order data meets them: sender (what a program sends with), runner (one machine and its clock); memory,
tcp (tcp_route, connection, frames, tcp_listener) and topic (topic_store, topic_source, topic_lane) carry
packets; stored (a stream's storage at the receiving side) and store (the same on disk); lane and receiver (what
a program reads from); relay (one pipe's receiver into the next one's sender).
``prefix`` counts what is done. Nothing here decides what a pipe promises: the machines do.
"""
