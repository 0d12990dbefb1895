"""Pipes under faults: a deterministic run of any route from a seed, compared with the calculus.

In reading order::

    faults   the faults of a run: on the links between workers, and of the workers themselves
    link     packets on their way: which messages of them are lost, doubled or late
    measure  the results of a run: R, UR, orders and latency, and whether they agree with the calculus
    world    the workers of a route, and the event queue: simulated time, steps and crashes
    run      one run of a route under faults, from a seed
"""
