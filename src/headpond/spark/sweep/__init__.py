"""The lab's grid on Spark: every route under every combination of faults, and the pictures of it.

In reading order::

    grid     The grid of a sweep: every route under every combination of faults, from several seeds
    trial    One run of the lab as a row: what was asked, what was measured, what was predicted, and whether t
    sweep    The lab's grid on Spark: every run in some worker, the results in one Parquet file, and their pic
    surface  The pictures of a sweep: R and UR of every route over two kinds of fault, predicted beside measur
"""
