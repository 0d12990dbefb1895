"""The machines driven over memory, TCP or a topic, for programs.

In reading order::

    runner        one machine, the loop's clock, and a timer for the machine's next wake time
    commit_marks  how far a program is done with the messages it was given
    sender        the sending end of a pipe: payloads in, confirms out
    lane          one sender as its receiver knows it: a machine, its clock, and the way back
    receiver      the receiving end of a pipe: payloads out, confirms in
    memory        both ends of a pipe in one process
    connection    one TCP connection of a pipe, and its bytes
    store         the messages of a listener's streams, in a journal on disk
    tcp           a pipe between two processes, over TCP
    topic         a stream over a node's topic and subscription
    relay         passes messages from one pipe into the next, and confirms back
"""
