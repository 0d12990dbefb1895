"""R, UR, orders and composition: what a route promises, computed. Pure arithmetic on exact fractions.

Reading order: series (the arithmetic), copies (how many copies a hop makes of one message), delivery (R, UR and
the laws), interval (what a measured run says about them), orders (the four orders and their lattice),
declaration and declarations (what each pipe needs, keeps, gives and stands), route (its text), composition
(what can stand over what), channel (what is beneath it), carried (what one more pipe makes of a route), promise
(what the whole route promises), chain (routes in a row).
"""
