"""Low-rank models on torch tensors: the same method text, the same numbers; on a GPU too, where
there is one.
"""

from __future__ import annotations

import numpy as np
import pytest

import coterie as co
from coterie.errors import CoterieError
from coterie.numerics.backends import backend
from papers import p004, p004_fig1, p004_fig2, p004_fig3

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
    options = {
        "agents": 3,
        "method": method,
        "information": information,
        "max_rounds": 4,
        "tol": 1e-15,
    }
    tensor = torch.from_numpy(X).to(device, getattr(torch, precision))
    arrays, tensors = (
        co.solve(problem, (X, y), **options),
        co.solve(problem, (tensor, torch.from_numpy(y)), **options),
    )
    loosened = (
        100 if loss == "multinomial" and method == "dfw-subspace" and precision == "float64" else 1
    )
    np.testing.assert_allclose(
        tensors.model.coef_,
        arrays.model.coef_,
        atol=max(TOLERANCE[precision] * loosened, 1e-6 * (loosened > 1)),
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
    resumed = co.solve(
        problem, (tensor, LABELS, weights), max_rounds=6, checkpoint=tmp_path, **options
    )
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
    problem = co.Problem("squared", "l2", 0.1, intercept=False)
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


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(80, 60), (60, 80), (40, 40)])
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_leading_singular_vectors_are_found_where_the_matrix_is(shape, precision, device):
    M = RNG.standard_normal(shape) * 1e-30
    tensor = torch.from_numpy(M).to(device, getattr(torch, precision))
    u, v = backend(tensor).leading_pair(tensor)
    U, s, V = np.linalg.svd(M)
    assert u @ M @ v == pytest.approx(s[0], rel=1e-12 if precision == "float64" else 1e-5)
    np.testing.assert_allclose(
        np.outer(u, v), np.outer(U[:, 0], V[0]), atol=1e-8 if precision == "float64" else 1e-4
    )
    nothing, _ = backend(tensor).leading_pair(0 * tensor)
    assert np.linalg.norm(nothing) == 1


def test_the_studies_run_on_tensors(monkeypatch):
    """Figures 1 to 3 as at the paper's size, but small, and on the processor where there is no
    GPU.
    """
    monkeypatch.setattr(p004, "LARGE", 0)
    monkeypatch.setattr(p004_fig3, "ON_A_GPU", 0)
    monkeypatch.setattr(p004, "DEVICE", DEVICES[-1])
    for module in (p004, p004_fig3):
        monkeypatch.setattr(module, "gpu", lambda: "a GPU")
    tiny = {
        "n": 96,
        "d": 12,
        "agents": 3,
        "marks": (2, 4),
        "sva": (2,),
        "baselines": (2,),
        "ours": (2,),
    }
    tiny |= {"low": 11, "high": 12, "epochs": 12, "classes": 11, "new": 50, "draws": (0,)}
    for study in (p004_fig1.Figure1(), p004_fig2.Figure2(), p004_fig3.Figure3()):
        numbers = study.run({**study.quick, **tiny})
        assert "on a GPU (a GPU)" in numbers.remarks
        assert all(claim.evidence for claim in study.claims(numbers))


def test_the_pooled_model_is_that_of_scikit_learn():
    X, y = p004_fig3.picture_features(600, 8, 5, 0)
    arrays = p004_fig3.pooled_scores(X[:400], y[:400], X[400:])
    tensors = p004_fig3.pooled_scores(
        *(torch.from_numpy(part) for part in (X[:400], y[:400], X[400:]))
    )
    centred = [scores - scores.mean(axis=1)[:, None] for scores in (arrays, tensors)]
    np.testing.assert_allclose(*centred, atol=0.05)
