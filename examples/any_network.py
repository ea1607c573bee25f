"""Fifteen families of Renaissance Florence hold some rows each, and may talk only to families they
married into.

The answer does not depend on who talks to whom. The bill and the waiting do.

python examples/any_network.py
"""

from __future__ import annotations

import networkx as nx
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import scale

import coterie as co

LATENCY, BANDWIDTH = 0.04, 100e6
"""Forty milliseconds per hop and 100 Mbit/s: two data centres far apart."""


def main() -> None:
    """Solve the same problem on several networks and compare answers and costs."""
    X, y = load_diabetes(return_X_y=True)
    X, y = scale(X), scale(y)
    marriages = nx.florentine_families_graph()
    families = marriages.number_of_nodes()
    problem = co.Problem(loss="huber", penalty="l1", strength=1e-2, intercept=False)

    networks = {
        "server": co.networks.star(families, server=True),
        "marriages": co.networks.from_networkx(marriages),
        "path": co.networks.path(families),
        "complete": co.networks.complete(families),
        "expander": co.networks.expander(families, degree=4, seed=0),
    }
    first = None
    print("network     links  hops  rounds  sent (kB)  minutes on the wire")
    for name, network in networks.items():
        result = co.solve(problem, (X, y), agents=families, network=network, method="proximal-2")
        first = result if first is None else first
        assert np.allclose(result.model.coef_, first.model.coef_, atol=1e-8)
        links = families if network.server else network.n_edges
        minutes = result.bill.seconds(LATENCY, BANDWIDTH) / 60
        sent = result.bill.total.bits / 8e3
        print(
            f"{name:10s}  {links:5d}  {network.diameter:4d}  {result.rounds:6d}  {sent:9.0f}  "
            f"{minutes:.1f}"
        )
    print("All answers agree to eight digits.")
    if first is not None:
        print(first.certificate.proves)


if __name__ == "__main__":
    main()
