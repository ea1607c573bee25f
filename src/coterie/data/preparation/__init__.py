"""Preparation of columns: the recipes that users name, and the numbers that a fit gives them."""
