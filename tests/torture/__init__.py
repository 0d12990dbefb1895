"""Real processes under faults, from a seed: ``make torture``, or ``python -m tests.torture --minutes 10``.

Nodes, producers, consumers and Spark are processes that write what they do and see to journals. A supervisor
kills, stops, cuts and starves them; after healing, the checkers of the simulator (``headpond/sim/checks``)
judge what the journals and the nodes' logs say.

In reading order::

    cast          Who takes part, by part of the run
    journal       What processes did and saw, as lines of JSON; the history that they add up to
    program       A producer or a consumer of the simulator, as a process
    spark_driver  A Spark driver that copies a topic and fails where it is asked to
    proxy         A connection that can be cut and stalled, in both directions or in one
    small_disk    A disk that can be full
    victim        A process to which faults happen
    flood         Full load of a group
    group         A group: its members and servers, and a pulse that notices takeovers
    machinery     Nodes and programs as processes: started, killed, stopped, kept running
    faults        What happens to them
    observer      Waits until everything is delivered, and reads all logs and ledgers
    checks        Judges the history: the simulator's promises at each node, and those between nodes
    broken_node   A node that breaks promises, to prove that the checks can fail
    __main__      One run: faults, healing, checks, the scoreboard
"""
