"""Reading by position, without a subscription.

In reading order::

    fetch    Reading by position: any range of a shard, in stored form, without a subscription and its state
    columns  A fetch of chosen columns: what is not wanted is left out of the records before they travel
    filter   A fetch that looks at the rows: records without a wanted one are left out, of the others a mask t
"""
