"""Low-rank models on torch tensors: the same method text, the same numbers; on a GPU too, where there is one."""

from __future__ import annotations

import numpy as np
import pytest

import coterie as co
from coterie.errors import CoterieError

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'coterie[gpu]'")
pytestmark = pytest.mark.gpu

RNG = np.random.default_rng(5)
N, D, M = 200, 12, 8
X = RNG.standard_normal((N, D))
NUMBERS = X @ RNG.standard_normal((D, 3)) @ RNG.standard_normal((3, M))
LABELS = NUMBERS.argmax(axis=1)
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
TOLERANCE = {"float64": 1e-10, "float32": 5e-5, "bfloat16": 2e-2}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("information", ["dense", "implicit"])
@pytest.mark.parametrize("method", ["naive-dfw", "sva", "dfw-trace", "dfw-subspace"])
@pytest.mark.parametrize(("loss", "y"), [("squared", NUMBERS), ("multinomial", LABELS)])
def test_tensors_give_the_numbers_of_arrays(loss, y, method, information, precision, device):
    problem = co.Problem(loss, "traceball", radius=5.0)
    options = {"agents": 3, "method": method, "information": information, "max_rounds": 4, "tol": 1e-15}
    tensor = torch.from_numpy(X).to(device, getattr(torch, precision))
    arrays, tensors = co.solve(problem, (X, y), **options), co.solve(problem, (tensor, torch.from_numpy(y)), **options)
    loosened = 100 if loss == "multinomial" and method == "dfw-subspace" and precision == "float64" else 1
    np.testing.assert_allclose(
        tensors.model.coef_, arrays.model.coef_, atol=max(TOLERANCE[precision] * loosened, 1e-6 * (loosened > 1))
    )
    assert isinstance(tensors.model.U, np.ndarray)
    assert co.verify(tensors.certificate, tensors.model, (tensor, y)).holds


@pytest.mark.parametrize("device", DEVICES)
def test_weights_line_search_and_checkpoints(device, tmp_path):
    problem = co.Problem("multinomial", "traceball", radius=5.0)
    weights = RNG.uniform(0.5, 2.0, N)
    options = {"agents": 2, "method": "dfw-trace", "step": "search", "tol": 1e-15}
    tensor = torch.from_numpy(X).to(device)
    arrays = co.solve(problem, (X, LABELS, weights), max_rounds=6, **options)
    co.solve(problem, (tensor, LABELS, weights), max_rounds=3, checkpoint=tmp_path, **options)
    resumed = co.solve(problem, (tensor, LABELS, weights), max_rounds=6, checkpoint=tmp_path, **options)
    np.testing.assert_allclose(resumed.model.coef_, arrays.model.coef_, atol=1e-9)


def test_bad_tensors_are_refused():
    problem = co.Problem("multinomial", "traceball", radius=5.0)
    hole = torch.from_numpy(X).clone()
    hole[150, 3] = torch.nan
    with pytest.raises(CoterieError, match=r"agent 2.*column 3"):
        co.solve(problem, (hole, LABELS), agents=3)
    with pytest.raises(CoterieError, match="floats"):
        co.solve(problem, (torch.from_numpy(X).to(torch.int64), LABELS), agents=3)


def test_other_problems_take_tensors_as_arrays():
    problem = co.Problem("squared", "l2", 0.1)
    arrays = co.solve(problem, (X, NUMBERS[:, 0]), agents=2)
    tensors = co.solve(problem, (torch.from_numpy(X), torch.from_numpy(NUMBERS[:, 0])), agents=2)
    np.testing.assert_allclose(tensors.model.coef_, arrays.model.coef_, atol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", ["dfw-subspace", "dfw-trace"])
@pytest.mark.parametrize("task", ["squared", "multinomial"])
def test_an_intercept_is_as_on_the_processor(task, method, device):
    random = np.random.default_rng(0)
    X, W = random.normal(size=(300, 8)) + 2.0, random.normal(size=(8, 4))
    y = (X @ W).argmax(axis=1) if task == "multinomial" else X @ W + random.normal(size=(300, 4))
    problem = co.Problem(task, "traceball", radius=3.0, intercept=True)
    how = {"agents": 2, "method": method, "max_rounds": 20, "tol": 1e-6, "progress": False}
    usual = co.solve(problem, (X, y), **how)
    data = torch.tensor(X, device=device), torch.tensor(y, device=device)
    found = co.solve(problem, data, **how)
    assert found.status == usual.status
    assert found.certificate.primal == pytest.approx(usual.certificate.primal, rel=1e-8)
    assert co.verify(found.certificate, found.model, data).holds
