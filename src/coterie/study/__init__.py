"""Between organisations: what each party runs, how it is known to the others, and what it tells
them.
"""
