"""Bytes on a connection and in a file, with no IO.

``plain`` and ``typed`` hold the two kinds of segments, ``control`` the messages of the conversation.

In reading order::

    frame       The frame: the one envelope on the wire and in every file
    title       TITLE: what sets the context of the frames that follow, on the wire as in a file
    record      A stored segment: what a log file holds and what is delivered, byte for byte the same
    filter      Which rows are wanted: a small language, read into steps of Arrow compute and nothing else
    connection  The connection machine: tells a conversation from noise, with no IO
"""
