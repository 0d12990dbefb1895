"""The lab's grid on Spark: every route under every combination of faults, with pictures.

In reading order::

    grid     routes, rates of faults and seeds; one run as a row: measured, predicted, and whether they agree
    sweep    ``sweep``: workers run the grid; one Parquet file, pictures and a summary of each route
    surface  the pictures: R and UR of a route over two kinds of fault, predicted beside measured
"""
