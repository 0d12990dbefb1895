"""The node's process: sockets, threads, signals and TLS around the broker.

``links`` dials other nodes; ``http`` serves HTTP.

In reading order::

    data_folder  The data folder: whose it is and which version wrote it
    bootstrap    The first admin token, made in the data folder itself: whoever may write there owns the node
    tls          TLS on the node's side: its certificate, and whether clients must show one
    server       The node's shell: sockets, worker threads, timers and signals around the core
    process      A node's process: its folder, its signals, and serving until it is told to stop
    lossy_link   A link between a client and a node that behaves badly on purpose, and counts what it did
"""
