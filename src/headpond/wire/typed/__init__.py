"""Segments of typed topics: rows of a schema, with dictionaries that grow over the life of an encoder.

In reading order::

    schema        the columns that a topic may have, and which schemas are compatible
    versions      the schemas of a topic over its life
    values        columns as Python values
    rows          messages, and the flat rows that the encoder takes
    leaves        the form of each column in a segment, and its dictionaries
    form          the bytes of segments and snapshots
    dictionaries  the growing dictionary of one leaf, for its encoder and for a decoder
    columns       reading and writing the columns of one segment
    codec         the encoder and the decoder
    record        a stored segment, which can be read without its encoder's state
"""
