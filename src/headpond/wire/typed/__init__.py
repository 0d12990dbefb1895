"""Segments of typed topics: rows of a schema, with dictionaries that grow over the life of an encoder.

In reading order::

    schema        A typed topic's schema: which columns it may have, and which other schemas it gets along wit
    leaves        How the columns of a typed topic travel, and which dictionaries they have
    values        A typed topic's columns as Python values: a row is a dict, labels are a dict, times are date
    rows          Messages of a typed topic, and the flat rows that its encoder takes
    versions      A typed topic's schemas over its life, oldest first. Stored records name theirs by number; t
    form          The bytes of a typed topic's segments and snapshots; what travels and why is in typed
    dictionaries  The growing dictionary of one leaf: ``Vocabulary`` as its encoder has it, ``Glossary`` as a
    columns       Writes the columns of one typed segment; the bytes are in typed_form, the dictionaries in ty
    codec         A typed topic's segments: rows of a schema, their texts dictionary-encoded over the life of
    record        A stored segment of a typed topic: self-contained, whatever its producer's encoder knew
"""
