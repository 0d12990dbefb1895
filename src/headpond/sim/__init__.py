"""Simulation: whole systems under faults, from a seed, in one thread and in virtual time.

The real client, producer, broker, storage and recovery run on a loop, a network and disks that exist in memory
only. What they promise is checked against what programs saw.

In reading order::

    loop          The event loop: a clock that jumps, and callbacks that belong to processes
    network       Connections whose bytes come late, in pieces, altered, or not at all
    process       Machines and processes: killed, stopped, cut off from power, started again
    jetstream     A stream of three servers, as the members of a cluster see it
    surroundings  Time and randomness of the process that runs
    node          A node of the world: the real server and core
    member        A group of nodes over one stream
    plan          Who takes part and which faults happen, drawn from a seed
    scenarios     Plans with the conditions in which a known bug showed itself
    history       What programs did and saw
    actors        The programs: producers, consumers, drivers with tasks, readers, administrators
    cast          All of them, and what lies between them
    observer      It prepares the nodes, and reads the logs in the end
    damage        A copy of a disk with a flipped bit
    faults        What happens to machines and processes
    checks        The promises, one file each
    world         One run: faults, healing, checks
    minimise      A smaller run that fails in the same way
    runner        Many plans
"""
