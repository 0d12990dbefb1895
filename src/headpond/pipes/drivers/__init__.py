"""The machines driven over memory, TCP or a topic, for programs.

In reading order::

    runner      The runner: one machine, the loop's clock, and a timer for when the machine wants to be woken
    sender      The sending end of a pipe: payloads in, confirmations out
    lane        A lane: one sender as its receiver knows it. A machine, its clock, and the way back to the sen
    receiver    The receiving end of a pipe: payloads out, confirmations in
    memory      Both ends of a pipe in one process
    connection  One TCP connection of a pipe: frames in and out, and nothing that outlives it
    tcp         A pipe between two processes, over TCP
    store       Streams of a listener that outlive its process: what they store, in one journal of a folder
    topic       A ``stream`` over a node's topic: the topic is the storage, a subscription keeps the receiver'
    relay       A relay: what one pipe delivers goes into the next, and confirms cascade
"""
