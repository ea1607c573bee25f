"""Sessions: what every way to run has in common, from tables to a result. `solve` does it for data that is here or on
a cluster, `peers` for a party among others; `verify`, `path` and `plan` take the parts that they need.

    tables ─→ set_up (problem, network, method, settings) ─→ agents ─→ rounds ─→ finish (certificate, result)
"""
