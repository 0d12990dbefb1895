"""A group of nodes with one content: the disk of the active one, replicated over a NATS JetStream stream.

Everything that a node persists goes through a disk (storage/disk.py). The active member's disk turns each
change into an operation, and appends operations to a stream with three replicas; the folder of every member
follows the stream. Reading order:

- ``journal``: the stream, as members use it
- ``records``: the bytes of a record
- ``apply``: records change a folder; checkpoints
- ``outbox``: operations become records in flight; doubt
- ``replicated_disk``: the active member's disk
- ``standby``: follows the stream, and takes over
- ``active``: sends, confirms, beats, and lets go
- ``copy``: the folder of a new member
- ``member``: all of this in one life
- ``groups``: the map of several groups: which one has which tenants
- ``group_watch``: a member's view of that map
- ``reseed``: one folder becomes the content of its group, by an operator's decision
- ``inquiry``: questions of an operator to the members
- ``placing``: an operator's questions to all groups; tenants are placed
- ``checkup``: what is wrong with servers, stream and members, and what to do
- ``local``: a whole cluster on one machine, to try it
- ``jetstream``: the stream itself, through nats-py; nothing else loads it

docs/cluster.md is for operators.
"""
