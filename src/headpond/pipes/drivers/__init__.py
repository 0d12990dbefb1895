"""The machines driven over memory, TCP or a topic, for programs.

In reading order::

    end         what both ends are made of: sessions, a machine on the loop's clock, opening and closing
    sender      the sending end of a pipe: payloads in, confirms out
    lane        one sender as its receiver knows it: a machine, its clock, and the way back
    receiver    the receiving end of a pipe: payloads out, confirms in
    memory      both ends of a pipe in one process
    connection  one TCP connection of a pipe, and its bytes
    store       the messages of a listener's streams, in a journal on disk
    tcp         a pipe between two processes, over TCP
    topic       a stream over a node's topic and subscription
    relay       passes messages from one pipe into the next, and confirms back
"""
