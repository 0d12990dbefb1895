"""Reading by position, without a subscription.

In reading order::

    fetch    Any range of a shard, in stored form; waiting for topics to grow
    columns  A fetch of some columns: the others are removed from the records before they travel
    filter   A fetch that looks at rows: records without a wanted row are left out
    losses   The log line about entries that a read did not find
"""
