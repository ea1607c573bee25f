"""A common model with deviations between organisations: the bits of one process, each party with its own deviation."""

from __future__ import annotations

import numpy as np
import pytest
from tests.chaos.parties import together, write_study
from tests.engines.test_gossip_clusters import NAMES, parties

import coterie as co
from coterie.peers.disclosure import disclosure
from coterie.peers.study import load_study

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("clusters"), pytest.mark.timeout(300)]
PROBLEM = {"loss": "logistic", "penalty": "l1", "strength": 0.01, "mu": 0.02}


def test_parties_come_to_the_bits_of_one_process(tmp_path):
    names, tables = NAMES[:3], parties(NAMES[:3])
    write_study(tmp_path, names, PROBLEM, split="users", tol=1e-8)
    page = disclosure(load_study(tmp_path / "study.toml"), names[1], tables[1])
    assert "how this party deviates from the common model" in page
    assert "a weighted sum of its own rows" in page
    local = co.solve(co.Shared(**PROBLEM), tables, split="users", tol=1e-8, secure_sums=True, progress=False)
    for k, result in enumerate(together(tmp_path, tables, names)):
        assert result.status == local.status == "optimal"
        assert result.bill == local.bill
        assert result.model.users == (names[k],)
        assert (result.model.coef_ == local.model.coef_).all()
        assert (result.model.deviations[0] == local.model.deviations[k]).all()
        assert result.certificate.gap == local.certificate.gap
        assert np.isfinite(co.Result.load(tmp_path / names[k] / "result").certificate.gap)
