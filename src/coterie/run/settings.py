"""The settings of a fit: each entry point makes one `Settings` and passes it on. Every default is
stated here.

co.solve, co.path, co.plan, estimators, commands, study files ─→ Settings ─→ set-up, engines
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any


@dataclass(frozen=True)
class Limits:
    """The limits at which a run ends."""

    tol: float = 1e-6
    max_rounds: int = 10_000
    max_seconds: float | None = None
    max_bits: float | None = None
    check_every: int | None = None
    """Rounds between two certificates; None: the trend of the gap decides, for about 5 % of the
    traffic.
    """


@dataclass(frozen=True)
class Algorithm:
    """The method that fits the model."""

    method: Any = "auto"
    """A name, a `Method`, or "auto"."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the method."""
    acceleration: str = "auto"


@dataclass(frozen=True)
class Placement:
    """The split of the data over agents, and the engine on which they run."""

    split: str = "samples"
    agents: Any = None
    same_order: bool = False
    engine: Any = "local"
    """A name or an `Engine`."""
    threads: int | None = None
    link: tuple[float, float] | None = None
    """Seconds per hop and bits per second that "auto" assumes."""


@dataclass(frozen=True)
class Settings:
    """All settings of `co.solve`, which explains them."""

    limits: Limits = field(default_factory=Limits)
    algorithm: Algorithm = field(default_factory=Algorithm)
    placement: Placement = field(default_factory=Placement)
    network: Any = None
    seed: int = 0
    secure_sums: bool | None = None
    prepare: Any = None
    checkpoint: Any = None
    progress: bool | None = None
    callback: Any = None

    @staticmethod
    def of(**keywords: Any) -> Settings:
        """The settings that these keywords of `co.solve` ask for; the others are defaults."""
        return Settings().but(**keywords)

    def but(self, **keywords: Any) -> Settings:
        """The same settings with other values for these keywords. An unknown keyword is a parameter
        of the method.
        """
        left = dict(keywords)
        changed: dict[str, Any] = {name: left.pop(name) for name in OWN & left.keys()}
        for group, names in GROUPS.items():
            given = {name: left.pop(name) for name in names & left.keys()}
            if given:
                changed[group] = replace(getattr(self, group), **given)
        if left:
            algorithm = changed.get("algorithm", self.algorithm)
            changed["algorithm"] = replace(algorithm, options={**algorithm.options, **left})
        return replace(self, **changed)


def _names(group: type[Any]) -> frozenset[str]:
    return frozenset(one.name for one in fields(group))


GROUPS: dict[str, frozenset[str]] = {
    "limits": _names(Limits),
    "algorithm": _names(Algorithm) - {"options"},
    "placement": _names(Placement),
}
OWN = _names(Settings) - GROUPS.keys()
KEYWORDS = OWN.union(*GROUPS.values())
"""The keywords of `co.solve` that are settings."""
