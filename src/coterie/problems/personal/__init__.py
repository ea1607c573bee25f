"""Personal models, one kind of problem. `kind.py` lists its parts for `coterie.problems`."""
