"""The network of a run, and whether its sums are secure."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from coterie.errors import InvalidProblem
from coterie.networks import Network, star
from coterie.networks import network as find_network
from coterie.problems.personal.problem import LEARNED


def make_network(spec: Any, split: str, agents: int, seed: int) -> Network:
    """The network with this name or of this type; by default, the one that suits the split."""
    if split == "users":
        if spec is None or (isinstance(spec, str) and spec == LEARNED):
            return no_network(agents, LEARNED)
        return find_network(spec, agents, seed=seed, connected=False)
    if spec is None:
        spec = "star" if split == "samples" else "complete"
    if split == "samples" and isinstance(spec, str) and spec == "star":
        return around_a_server(agents)
    return find_network(spec, agents, seed=seed)


@cache
def around_a_server(agents: int) -> Network:
    """The network of agents whose messages a server adds up."""
    return star(agents, server=True)


def no_network(agents: int, name: str) -> Network:
    """A network without edges: at first, or in the whole run, no agent has neighbours."""
    return Network(sp.csr_array((agents, agents)), name=name)


def wants_secure_sums(
    asked: bool | None, split: str, parties: int, apart: bool, only_sums: bool = False
) -> bool:
    """Whether sums are secure: as the caller asks, else between three or more organisations that
    hold rows.

    Split by users they can be secure if all messages of users are sums (`Kind.only_sums`).
    """
    if asked is not None and not isinstance(asked, bool | np.bool_):
        raise InvalidProblem(f"secure_sums is True, False or None, not {asked!r}.")
    if asked and split == "users" and not only_sums:
        raise InvalidProblem(
            "secure sums are for one model: users send their models to neighbours. Leave "
            "secure_sums out."
        )
    if asked is not None:
        return bool(asked)
    return apart and (split == "samples" or only_sums) and parties > 2
