"""One kind of problem; `kind.py` is its index, which `coterie.problems` finds."""
