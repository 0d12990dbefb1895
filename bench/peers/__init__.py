"""Headpond beside other brokers: ``make bench-peers``, or ``python -m bench.peers [OPTIONS]``.

Read in this order:

- ``peer``: what a broker and its client have to do here. Every file of a broker has the same shape.
- ``headpond_node``, ``redis_streams``, ``nats_jetstream``, ``rabbitmq``, ``kafka``: the brokers. The
  docstring of each states the settings of the server and of the client, and why they are the
  fast and durable ones.
- ``plain_file``: the same bytes appended to a file with fdatasync, without a broker.
- ``server``: the process of a broker, its memory and its folder.
- ``crew``: functions that run in processes of their own and start together.
- ``workloads``: what is measured. Everything that was sent is received and compared.
- ``rounds``: who is measured when, and the ratios of neighbours.
- ``goals``: the ratios that Headpond wants to reach.
- ``report``: the tables, the JSON and the plots.
"""
