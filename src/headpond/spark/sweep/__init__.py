"""The lab's grid on Spark: every route under every combination of faults, with pictures.

In reading order::

    grid     the grid: routes, rates of faults, and seeds
    trial    one run of the lab as a row: asked, measured, predicted, and whether these agree
    sweep    ``sweep``: workers run the grid; one Parquet file and the pictures are the result
    summary  each route: how many runs agree with the calculus
    surface  the pictures: R and UR of a route over two kinds of fault, predicted beside measured
"""
