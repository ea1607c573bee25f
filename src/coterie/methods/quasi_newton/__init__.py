"""Quasi-Newton methods: second derivatives estimated from changes of the gradient."""
