"""Reading by position, without a subscription.

In reading order::

    chosen  A fetch of some rows or some columns
    fetch   Any range of a shard, in stored form; waiting for topics to grow
"""
