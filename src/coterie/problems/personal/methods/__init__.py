"""Methods for personal models: learning by gossip, and its baselines."""

from __future__ import annotations

from coterie.problems.personal.methods.dada import Dada
from coterie.problems.personal.methods.perso_linear import PersoLinear
from coterie.problems.personal.methods.personal_baselines import DadaLinear, Global, Local

__all__ = ["Dada", "DadaLinear", "Global", "Local", "PersoLinear"]
