"""Names that users choose from. The command line lists them before anything slow is imported."""

from __future__ import annotations

KINDS = ("model", "robust", "clustered")
"""Kinds of standard errors."""
WEIGHTS = ("frequency", "sampling", "precision")
"""What weights mean: counts of equal rows, inverse probabilities of selection, or inverse
variances.
"""
CORRECTIONS = {"model": (), "robust": ("HC0", "HC1"), "clustered": ("CR0", "CR1", "CR1S", "CR2")}
"""The corrections of small samples, by the kind that they are for."""
