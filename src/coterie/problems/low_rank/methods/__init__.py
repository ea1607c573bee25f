"""Methods for matrices of low rank: Frank-Wolfe and its corrections."""

from __future__ import annotations

from coterie.problems.low_rank.methods.frank_wolfe import DfwTrace, NaiveDfw, Sva
from coterie.problems.low_rank.methods.subspace import DfwSubspace

__all__ = ["DfwSubspace", "DfwTrace", "NaiveDfw", "Sva"]
