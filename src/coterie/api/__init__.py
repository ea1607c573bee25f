"""What users call: solve, path, plan, describe, evaluate and verify, and the results that these
return.
"""
