"""Names that users choose from. The command line lists them before anything slow is imported."""

from __future__ import annotations

KINDS = ("model", "robust", "clustered")
"""Kinds of standard errors."""
WEIGHTS = ("frequency", "sampling", "precision")
"""Meanings of weights: counts of equal rows, inverse probabilities of selection, or inverse
variances.
"""
CORRECTIONS = {"model": (), "robust": ("HC0", "HC1"), "clustered": ("CR0", "CR1", "CR1S", "CR2")}
"""Corrections for small samples, by the kind of standard errors."""
