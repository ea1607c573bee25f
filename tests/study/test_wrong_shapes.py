"""A sum of another length or type ends the run at all parties, and names its sender."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.errors import CoterieError
from coterie.transport.grpc_mesh import GrpcMesh
from tests.harness.parties import data, together, write_study

ROWS = {"split": "samples", "method": "gram", "deadline": 20.0}
STUDIES = {
    "columns": {"split": "features", "network": "path", "method": "tree", "deadline": 20.0},
    "rows": {**ROWS, "secure-sums": False},
    "secure sums": ROWS,
}
SHAPES = {
    "short": lambda message: message[:-1],
    "long": lambda message: np.append(message, message[:3]),
    "another type": lambda message: message.astype(np.float32),
    "bytes": lambda message: np.frombuffer(message.tobytes(), np.uint8),
}


def reshaping(change):
    """Links over which bea sends changed parts of sums."""

    class Reshaping(GrpcMesh):
        def send(self, to, message, tag):
            if self.name(self.me) == "bea" and tag.collective == "Sum":
                message = change(np.array(message))
            super().send(to, message, tag)

    return Reshaping


@pytest.mark.parametrize("settings", STUDIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_sum_of_another_shape_names_its_sender(tmp_path, shape, settings):
    write_study(tmp_path, tol=1e-3, **STUDIES[settings])
    tables = data(STUDIES[settings]["split"])
    for end in together(tmp_path, tables, links=reshaping(SHAPES[shape])):
        assert isinstance(end, CoterieError), end
        assert end.status == "protocol_error"
        assert "bea sent" in str(end)
    assert not list(tmp_path.glob("*/result/model.npz"))
