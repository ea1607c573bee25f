"""Linear models of torch tensors: the numbers of arrays, computed where the rows lie; on a GPU too, if there is one."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import coterie as co
from coterie.arrays import CentredDesign, Design
from coterie.certificate.low_rank import _spectral_norm
from coterie.data import Table, leaves
from coterie.errors import CoterieError
from coterie.methods.costs import Sizes
from coterie.methods.moments import diagonal, second_moment
from coterie.session.setup import choose_method

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'coterie[gpu]'")
pytestmark = pytest.mark.gpu

RNG = np.random.default_rng(3)
N, D = 5000, 12
X = RNG.standard_normal((N, D)) * RNG.uniform(0.5, 2.0, D) + RNG.standard_normal(D)
SCORES = X @ RNG.standard_normal(D) + 0.3 * RNG.standard_normal(N)
Y = {"squared": SCORES, "huber": SCORES, "poisson": RNG.poisson(np.exp(0.1 * SCORES)), "logistic": SCORES > 0}
Y |= {"hinge": SCORES > 0, "absolute": SCORES}
WEIGHTS = RNG.uniform(0.5, 2.0, N)
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
CASES = [
    ("gram", "squared", "l2"),
    ("gram", "squared", "l1"),
    ("newton", "logistic", "l2"),
    ("newton", "logistic", "elasticnet"),
    ("newton", "huber", "l2"),
    ("newton", "poisson", "l2"),
    ("lbfgs-rows", "logistic", "l2"),
    ("lbfgs-rows", "logistic", "l1"),
    ("proximal-2", "squared", "l2"),
    ("interior-point", "hinge", "l2"),
    ("interior-point", "absolute", "l1"),
]


def problem_of(loss, penalty):
    return co.Problem(loss, penalty, 1e-2, intercept=True, **({"l1_ratio": 0.5} if penalty == "elasticnet" else {}))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("method", "loss", "penalty"), CASES)
def test_tensors_give_the_models_of_arrays(method, loss, penalty, device):
    problem, y = problem_of(loss, penalty), Y[loss].astype(float)
    options = {"agents": 3, "method": method, "tol": 1e-12, "max_rounds": 400}
    tensor = torch.from_numpy(X).to(device)
    arrays, tensors = co.solve(problem, (X, y), **options), co.solve(problem, (tensor, torch.from_numpy(y)), **options)
    np.testing.assert_allclose(tensors.model.coef_, arrays.model.coef_, atol=1e-8)
    assert abs(tensors.model.intercept_ - arrays.model.intercept_) <= 1e-8
    assert tensors.certificate.data_digest == arrays.certificate.data_digest
    assert co.verify(tensors.certificate, tensors.model, (tensor, y)).holds
    assert co.verify(tensors.certificate, tensors.model, (X, y)).holds


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_certificates_are_in_double_precision(precision, device):
    """The proof of a coarse tensor is that of its numbers in float64: a bound that holds."""
    tensor = torch.from_numpy(X).to(device, getattr(torch, precision))
    wide = tensor.double().cpu().numpy()
    problem, y = problem_of("logistic", "l2"), Y["logistic"]
    found, exact = co.solve(problem, (tensor, y), agents=2, tol=1e-6), co.solve(problem, (wide, y), agents=2, tol=1e-12)
    assert found.status == "optimal"
    assert found.certificate.primal - found.certificate.gap <= exact.certificate.primal <= found.certificate.primal
    assert found.model.coef_.dtype == np.float32


@pytest.mark.parametrize("device", DEVICES)
def test_the_data_stays_where_it_is(device, monkeypatch):
    """Neither rows nor columns of X come to the host in a run, a proof or its verification."""
    monkeypatch.setattr(leaves, "LARGE", 1 << 10)
    tensor, y = torch.from_numpy(X).to(device), Y["logistic"]
    whole, asked = type(tensor).cpu, []

    def watched(self, *arguments, **options):
        asked.append(self.numel())
        return whole(self, *arguments, **options)

    monkeypatch.setattr(torch.Tensor, "cpu", watched)
    result = co.solve(problem_of("logistic", "l2"), (tensor, y), agents=2, method="newton")
    assert co.verify(result.certificate, result.model, (tensor, y)).holds
    assert device == "cpu" or max(asked) <= max(N, D * D, leaves.LEAF // 8)


@pytest.mark.parametrize("device", DEVICES)
def test_agents_on_several_devices_and_weights(device):
    problem, cut = problem_of("logistic", "l2"), 2000
    parties = [(X[:cut], Y["logistic"][:cut], WEIGHTS[:cut]), (X[cut:], Y["logistic"][cut:], WEIGHTS[cut:])]
    there = [
        (torch.from_numpy(x).to(place).requires_grad_(), torch.from_numpy(y), s)
        for (x, y, s), place in zip(parties, ["cpu", device], strict=True)
    ]
    arrays, tensors = (co.solve(problem, data, method="newton", tol=1e-12) for data in (parties, there))
    np.testing.assert_allclose(tensors.model.coef_, arrays.model.coef_, atol=1e-8)


@pytest.mark.parametrize("method", ["proximal-1", "auto"])
def test_other_methods_take_tensors_as_arrays(method):
    problem, y = problem_of("logistic", "l2"), Y["logistic"]
    arrays = co.solve(problem, (X, y), agents=2, method=method)
    tensors = co.solve(problem, (torch.from_numpy(X), y), agents=2, method=method)
    np.testing.assert_allclose(tensors.model.coef_, arrays.model.coef_, atol=1e-10)


@pytest.mark.parametrize(
    ("loss", "penalty", "methods"),
    [
        ("squared", "l2", {"gram", "newton"}),
        ("logistic", "l2", {"newton", "lbfgs-rows"}),
        ("hinge", "l2", {"interior-point"}),
    ],
)
def test_auto_prefers_methods_that_compute_on_the_gpu(loss, penalty, methods):
    problem = co.Problem(loss, penalty, 1e-3)
    network, sizes = co.networks.star(4, server=True), Sizes(1_000_000, 500, 500_000_000, 4, on_gpu=True)
    assert choose_method("auto", {}, problem, "samples", network, sizes)[0].name in methods


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("centred", [False, True])
def test_designs_of_tensors_multiply_as_those_of_arrays(centred, single, device):
    def made(rows):
        return CentredDesign(rows, True, X.mean(axis=0), 2.0) if centred else Design(rows, True)

    tensor, array = made(torch.from_numpy(X).to(device)), made(X)
    w, v, signed = RNG.standard_normal(D + 1), RNG.standard_normal(N), np.where(RNG.random(N) < 0.7, 0.0, SCORES)
    for got, wanted in [
        (tensor.forward(w), array.forward(w)),
        (tensor.adjoint(v), array.adjoint(v)),
        (tensor.squares(WEIGHTS), array.squares(WEIGHTS)),
        (tensor.dense(slice(3, 7)), array.dense(slice(3, 7))),
        (diagonal(tensor, WEIGHTS), diagonal(array, WEIGHTS)),
        (second_moment(tensor, signed, single=single), second_moment(array, signed)),
        (second_moment(tensor, v, np.array([1, 4, D])), second_moment(array, v, np.array([1, 4, D]))),
    ]:
        np.testing.assert_allclose(got, wanted, rtol=2e-5 if single else 1e-11, atol=0.1 if single else 1e-9)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["float64", "float32", "bfloat16", "float16"])
def test_digests_do_not_depend_on_where_the_numbers_are(precision, device, monkeypatch):
    monkeypatch.setattr(leaves, "LARGE", 1 << 17)
    monkeypatch.setattr(leaves, "ON_DEVICE", 1 << 15)
    tensor = torch.from_numpy(X).to(device, getattr(torch, precision))
    wide = tensor.to("cpu", torch.float64 if precision == "float64" else torch.float32).numpy().copy()
    tables = [Table(tensor), Table(wide), Table(np.asfortranarray(wide)), Table(tensor.T.contiguous().T)]
    assert len({table.digest() for table in tables}) == 1
    # Naively, as the page of the format says.
    data = wide.tobytes()
    each = b"".join(hashlib.sha256(data[at : at + 65536]).digest() for at in range(0, len(data), 65536))
    text = f"leaves:{wide.dtype.str}:{wide.shape}:{hashlib.sha256(each).hexdigest()}"
    assert leaves.fingerprint(tensor) == text
    wide[-1, -1] += 1
    assert Table(wide).digest() != tables[0].digest()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(700, 400), (400, 700)])
def test_the_norm_of_a_large_gradient_is_bounded_from_above(shape, device):
    G = RNG.standard_normal(shape)
    found, exact = _spectral_norm(G, torch.zeros(1, device=device)), float(np.linalg.norm(G, 2))
    assert exact <= found <= exact * (1 + 2e-12)


def test_bad_tensors_are_refused():
    problem, y = problem_of("squared", "l2"), Y["squared"]
    for spoilt, message in [(np.inf, "column 3 has 1 value that is not finite"), (1e200, "squares is too large")]:
        bad = torch.from_numpy(X).clone()
        bad[7, 3] = spoilt
        with pytest.raises(CoterieError, match=message):
            co.solve(problem, (bad, y), method="gram")
    with pytest.raises(CoterieError, match="dense"):
        co.solve(problem, (torch.from_numpy(X).to_sparse(), y), method="gram")
