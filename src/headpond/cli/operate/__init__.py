"""Commands to run, watch and examine a node, and to predict and simulate routes.

In reading order::

    node     ``headpond node``: runs a node until SIGTERM or Ctrl-C
    run      ``headpond run``: the handlers of a program, with a restart when its files change
    cluster  ``headpond cluster show|switch|groups|place|up|reseed``: groups of nodes over NATS
    doctor   ``headpond doctor``: checks every address of a node
    top      ``headpond top``: throughput and lag, live on a terminal, or one JSON object per sample
    backup   ``headpond backup`` and ``headpond restore``: the data folder of a running node, copied
    ledger   ``headpond ledger``: accounts for every message of a topic
    inspect  ``headpond inspect``: the contents of a data file, verified
    errors   ``headpond errors``: the catalogue of errors
    explain  ``headpond explain``: predicts what a route of pipes delivers
    lab      ``headpond lab run|sweep``: simulates a route under faults and compares it with the prediction
    sim      ``headpond sim run|scenarios|meta``: simulates whole systems under faults and checks every promise
    demo     ``headpond demo``: a bad link, a killed node, Spark, and the count of what arrived
"""
