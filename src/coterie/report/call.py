"""The call of `solve` that repeats a run, as Python text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from coterie.api.result import Result
from coterie.data.preparation.recipes import Preparation
from coterie.errors import InvalidInput, shortened
from coterie.networks import TOPOLOGIES, Network
from coterie.networks import network as find_network
from coterie.problems.problem import Problem
from coterie.report.words import plain

LONGEST_VALUE = 60
NAMED_PARTIES = 3


def solve_call(result: Result) -> str:
    """Python that repeats the run, given `data`, a list with one table or (X, y) per
    participant.
    """
    settings = result.certificate.settings
    problem = result.model.problem
    method = {
        "method": settings["method"]["name"],
        **settings["method"],
        "acceleration": settings["acceleration"],
    }
    del method["name"]
    if "changed" in settings:
        # The run changed its method: a call with the first request takes the same way.
        method = {
            name: value for name, value in settings["changed"]["asked"].items() if value is not None
        }
    limits = {name: value for name, value in settings["limits"].items() if value is not None}
    lines = [
        "import coterie as co",
        "",
        *_problem(problem),
        *_parties(result),
        "result = co.solve(",
        "    problem,",
        "    data,",
        *_arguments({"split": settings["split"]}),
        f"    network={_network(result.network, settings['split'], settings['seed'])},",
        *_arguments(method),
        *_arguments({**limits, "seed": settings["seed"], **_recipes(settings)}),
        ")",
    ]
    return "\n".join(lines)


def _recipes(settings: Mapping[str, Any]) -> dict[str, list[str]]:
    known = settings.get("prepare")
    if known is None:
        return {}
    return {"prepare": Preparation.from_settings(known).lines()}


def _problem(problem: Problem) -> Iterator[str]:
    kind, arguments = problem.kind.report.call(problem)
    yield f"problem = co.{kind}("
    yield from _arguments(arguments)
    yield ")"


def _arguments(values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        written = _python(value)
        if len(written) > LONGEST_VALUE:
            yield f"    {name}={name},  # {len(value):,} values, see certificate.json"
        else:
            yield f"    {name}={written},"


def _python(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and math.isinf(value):
        return f'float("{value}")'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_python, value)) + "]"
    return repr(value)


def _parties(result: Result) -> Iterator[str]:
    participants = result.certificate.participants
    yield "# data: a list with one (X, y) per party:"
    for participant in participants[:NAMED_PARTIES]:
        yield (
            f"#   {shortened(plain(participant.name), 30)}: {participant.rows:,} × "
            f"{participant.columns:,}"
        )
    if len(participants) > NAMED_PARTIES:
        yield f"#   ... {len(participants):,} in all"


def _network(network: Network, split: str, seed: int) -> str:
    """The name of the network if that makes the same one, otherwise the name of a variable."""
    star_means_server = split == "samples"
    if split == "users":
        return '"learned"' if network.name == "learned" else "graph"
    if network.server:
        if star_means_server:
            return '"star"'
        return f"co.networks.star({network.agents}, server=True)"
    if network.name in TOPOLOGIES and _is_made_by_name(network, seed):
        if network.name == "star" and star_means_server:
            return f"co.networks.star({network.agents})"
        return _python(network.name)
    return "graph"


def _is_made_by_name(network: Network, seed: int) -> bool:
    try:
        again = find_network(network.name, network.agents, seed=seed)
    except InvalidInput:
        return False
    return bool((again.weights != network.weights).nnz == 0)
