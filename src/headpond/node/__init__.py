"""The node's process: sockets, threads, signals and TLS around the broker.

``links`` dials other nodes; ``http`` serves HTTP.

In reading order::

    process           A node's process: its folder, its signals, and serving until a signal stops it
    data_folder       The data folder: its owner, and the version that wrote it
    backup            A cut of the data folder: links to all its files at one moment
    bootstrap         The first admin token, written to the data folder of a node that does not run
    server            The node's shell: sockets, worker threads and timers around the core
    member            A node that is a member of a cluster: standby, active, and its end
    garbage           When Python looks for garbage
    memory_transport  A connection between a client and its node in one process
    relay             A port, each connection to which leads to another port
    lossy_link        A connection between a client and a node that fails on purpose, for tests and the demo
"""
