"""Commands to run, watch and examine a node, and to compute routes.

In reading order::

    node          ``headpond node``: runs a node until SIGTERM or Ctrl-C
    node_process  A node in a process of its own, that can be killed and started again on the same port and fo
    demo          ``headpond demo``: a bad link, a real node, a kill in the middle, Spark, and the count of wh
    doctor        ``headpond doctor [URL]``: which nodes answer, what the token may do there, and what to do a
    errors        ``headpond errors [CODE]``: the catalogue of errors
    inspect       ``headpond inspect FILE``: what stands in a frame file, and what is wrong with it
    ledger        ``headpond ledger TOPIC``: what became of everything, whether it balances, and R and UR of e
    log           ``headpond log admin``: what was administered at a node, by whom, and what came of it
    top           ``headpond top``: rates and lag, live on a terminal, or a line of JSON a sample
    explain       ``headpond explain ROUTE``: what a route of pipes, or several in a row, needs, keeps and pro
    lab           ``headpond lab run``: a route of pipes under faults, simulated from a seed and compared with
"""
