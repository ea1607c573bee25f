"""Linear models of torch tensors: the numbers of arrays, computed where the rows lie; on a GPU too,
if there is one.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

import coterie as co
from coterie.data import Table
from coterie.data import digests as leaves
from coterie.errors import CoterieError
from coterie.methods.auto.costs import Sizes
from coterie.numerics.arrays import CentredDesign, Design
from coterie.numerics.losses import LOSSES, loss
from coterie.numerics.losses.shifted import Shifted
from coterie.problems.low_rank.proof import _spectral_norm
from coterie.run.agent import Agent
from coterie.run.method_choice import Circumstances, MethodChoice
from coterie.run.settings import Algorithm
from coterie.stats.moments import diagonal, second_moment, symmetric

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'coterie[gpu]'")
pytestmark = pytest.mark.gpu

RNG = np.random.default_rng(3)
N, D = 5000, 12
X = RNG.standard_normal((N, D)) * RNG.uniform(0.5, 2.0, D) + RNG.standard_normal(D)
SCORES = X @ RNG.standard_normal(D) + 0.3 * RNG.standard_normal(N)
Y = {
    "squared": SCORES,
    "huber": SCORES,
    "poisson": RNG.poisson(np.exp(0.1 * SCORES)),
    "logistic": SCORES > 0,
}
Y |= {"hinge": SCORES > 0, "absolute": SCORES, "squared_hinge": SCORES > 0}
Y["gamma"] = np.exp(0.1 * SCORES) * RNG.gamma(2.0, 0.5, N)
WEIGHTS = RNG.uniform(0.5, 2.0, N)
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
CASES = [
    ("gram", "squared", "l2"),
    ("gram", "squared", "l1"),
    ("newton", "logistic", "l2"),
    ("newton", "logistic", "elasticnet"),
    ("newton", "huber", "l2"),
    ("newton", "poisson", "l2"),
    ("newton", "gamma", "l2"),
    ("newton", "squared_hinge", "l2"),
    ("lbfgs-rows", "logistic", "l2"),
    ("lbfgs-rows", "logistic", "l1"),
    ("lbfgs-rows", "squared_hinge", "l2"),
    ("proximal-2", "squared", "l2"),
    ("interior-point", "hinge", "l2"),
    ("interior-point", "absolute", "l1"),
]


@pytest.fixture(autouse=True)
def nothing_becomes_an_array_by_itself(monkeypatch):
    """A tensor on a CPU slips into numpy unseen; one on a GPU does not, so neither may here."""

    def refused(self, *arguments, **options):
        raise AssertionError("a tensor was made an array by numpy")

    monkeypatch.setattr(torch.Tensor, "__array__", refused)


def problem_of(loss, penalty):
    return co.Problem(
        loss,
        penalty,
        1e-2,
        intercept=True,
        **({"l1_ratio": 0.5} if penalty == "elasticnet" else {}),
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("method", "loss", "penalty"), CASES)
def test_tensors_give_the_models_of_arrays(method, loss, penalty, device):
    problem, y = problem_of(loss, penalty), Y[loss].astype(float)
    options = {"agents": 3, "method": method, "tol": 1e-12, "max_rounds": 400}
    tensor = torch.from_numpy(X).to(device)
    arrays, tensors = (
        co.solve(problem, (X, y), **options),
        co.solve(problem, (tensor, torch.from_numpy(y)), **options),
    )
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
    found, exact = (
        co.solve(problem, (tensor, y), agents=2, tol=1e-6),
        co.solve(problem, (wide, y), agents=2, tol=1e-12),
    )
    assert found.status == "optimal"
    assert (
        found.certificate.primal - found.certificate.gap
        <= exact.certificate.primal
        <= found.certificate.primal
    )
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
@pytest.mark.parametrize("name", [name for name in LOSSES if LOSSES[name].tensors])
def test_losses_of_tensors_are_those_of_arrays(name, device):
    made, y = (
        loss(name),
        np.where(Y[name], 1.0, -1.0) if Y[name].dtype == bool else Y[name].astype(float),
    )
    u = np.concatenate([RNG.uniform(-40.0, 40.0, N - 4), [0.0, 700.0, -700.0, 1e-300]])
    there = [torch.from_numpy(x).to(device) for x in (u, y, WEIGHTS)]
    for array, tensor in [(made, made), (Shifted(made, WEIGHTS), Shifted(made, there[2]))]:
        for ask in ("each", "gradient", "curvature", "curvature_scale"):
            wanted, got = getattr(array, ask)(u, y), getattr(tensor, ask)(*there[:2])
            np.testing.assert_allclose(
                got.cpu().numpy() if torch.is_tensor(got) else got, wanted, rtol=1e-13, atol=0
            )
        assert tensor.value(*there) == pytest.approx(array.value(u, y, WEIGHTS), rel=1e-13)


@pytest.mark.parametrize("device", DEVICES)
def test_the_loss_at_a_model_is_that_of_arrays(device):
    tables = [
        Table(rows, Y["poisson"].astype(float), WEIGHTS, offset=0.1 * WEIGHTS)
        for rows in (X, torch.tensor(X))
    ]
    tables[1] = replace(tables[1], X=tables[1].X.to(device))
    problem = co.Problem("poisson", "l2", 1e-2, intercept=True, offset=True)
    array, tensor = (
        Agent(0, 1, table, problem, "samples").at(0.1 * np.ones(D + 1)) for table in tables
    )
    assert type(tensor) is not type(array)
    way, steps = 0.1 * RNG.standard_normal(N), np.array([1.0, 0.5])
    for got, wanted in [(tensor, array), (tensor.moved(way), array.moved(way))]:
        for part in (
            "scores",
            "losses",
            "slopes",
            "slopes_norm",
            "adjoint",
            "curvature",
            "curvature_scale",
        ):
            np.testing.assert_allclose(
                getattr(got, part), getattr(wanted, part), rtol=1e-11, atol=1e-11
            )
    np.testing.assert_allclose(
        tensor.losses_along(way, steps), array.losses_along(way, steps), rtol=1e-12
    )


PLACES = (
    [["cpu", "cuda"], ["cuda", "cpu", "cuda"], ["cuda:0"] * 4]
    if torch.cuda.is_available()
    else [["cpu"] * 3]
)


@pytest.mark.parametrize("places", PLACES, ids="+".join)
@pytest.mark.parametrize(
    "method", ["newton", "lbfgs-rows", "proximal-2", "dfw-trace", "dfw-subspace"]
)
def test_one_agent_for_each_device(places, method):
    """Sums are taken on the host in the order of the agents: which device is whose changes nothing
    beyond rounding.
    """
    classes = np.digitize(SCORES, [-1.0, 1.0]) if method.startswith("dfw") else Y["logistic"]
    low_rank = co.Problem("multinomial", "traceball", radius=5.0)
    problem = low_rank if method.startswith("dfw") else problem_of("logistic", "l2")
    cuts = np.array_split(np.arange(N), len(places))
    parties = [(X[rows], classes[rows], WEIGHTS[rows]) for rows in cuts]
    there = [
        (torch.from_numpy(x).to(place).requires_grad_(), torch.from_numpy(y), s)
        for (x, y, s), place in zip(parties, places, strict=True)
    ]
    options = {"method": method, "tol": 1e-12, "max_rounds": 4 if method.startswith("dfw") else 400}
    runs = [
        co.solve(problem, data, **options, threads=k)
        for data, k in ((parties, 1), (there, 1), (there, 3))
    ]
    arrays, tensors, again = (run.model.coef_ for run in runs)
    np.testing.assert_allclose(tensors, arrays, atol=1e-6 if method == "dfw-subspace" else 1e-8)
    assert np.array_equal(tensors, again)
    assert co.verify(runs[1].certificate, runs[1].model, there).holds


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("loss", ["logistic", "multinomial"])
def test_parties_that_are_not_alike_compute_on_the_host(loss, device):
    y = np.digitize(SCORES, [-1.0, 1.0]) if loss == "multinomial" else Y["logistic"]
    problem = (
        co.Problem(loss, "traceball", radius=5.0)
        if loss == "multinomial"
        else problem_of(loss, "l2")
    )
    tensor, cut = torch.from_numpy(X).to(device), 2000
    pooled = co.solve(problem, [(X[:cut], y[:cut]), (X[cut:], y[cut:])], max_rounds=3)
    for first, second in [
        (X[:cut], tensor[cut:]),
        (tensor[:cut], tensor[cut:].float().double().float()),
    ]:
        found = co.solve(problem, [(first, y[:cut]), (second, y[cut:])], max_rounds=3)
        np.testing.assert_allclose(found.model.coef_, pooled.model.coef_, atol=1e-4)
    with pytest.raises(CoterieError, match="meta device has a shape and no numbers"):
        co.solve(problem, [(X[:cut], y[:cut]), (torch.empty((N - cut, D), device="meta"), y[cut:])])


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
    problem = co.Problem(loss, penalty, 1e-3, intercept=False)
    network, sizes = (
        co.networks.star(4, server=True),
        Sizes(1_000_000, 500, 500_000_000, 4, on_gpu=True),
    )
    choice = MethodChoice(problem, "samples", Circumstances(network, sizes), Algorithm())
    assert next(iter(choice.liked())) in methods


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("centred", [False, True])
def test_designs_of_tensors_multiply_as_those_of_arrays(centred, single, device):
    def made(rows):
        return CentredDesign(rows, True, X.mean(axis=0), 2.0) if centred else Design(rows, True)

    tensor, array = made(torch.from_numpy(X).to(device)), made(X)
    w, v, signed = (
        RNG.standard_normal(D + 1),
        RNG.standard_normal(N),
        np.where(RNG.random(N) < 0.7, 0.0, SCORES),
    )
    for got, wanted in [
        (tensor.forward(w), array.forward(w)),
        (tensor.adjoint(v), array.adjoint(v)),
        (tensor.squares(WEIGHTS), array.squares(WEIGHTS)),
        (tensor.dense(slice(3, 7)), array.dense(slice(3, 7))),
        (diagonal(tensor, WEIGHTS), diagonal(array, WEIGHTS)),
        (
            symmetric(second_moment(tensor, signed, single=single)),
            symmetric(second_moment(array, signed)),
        ),
        *[
            tuple(
                symmetric(second_moment(design, v, np.array([1, 4, D])))
                for design in (tensor, array)
            )
        ],
    ]:
        np.testing.assert_allclose(
            got, wanted, rtol=2e-5 if single else 1e-11, atol=0.1 if single else 1e-9
        )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["float64", "float32", "bfloat16", "float16"])
def test_digests_do_not_depend_on_where_the_numbers_are(precision, device, monkeypatch):
    monkeypatch.setattr(leaves, "LARGE", 1 << 17)
    monkeypatch.setattr(leaves, "ON_DEVICE", 1 << 15)
    tensor = torch.from_numpy(X).to(device, getattr(torch, precision))
    wide = (
        tensor.to("cpu", torch.float64 if precision == "float64" else torch.float32).numpy().copy()
    )
    tables = [
        Table(tensor),
        Table(wide),
        Table(np.asfortranarray(wide)),
        Table(tensor.T.contiguous().T),
    ]
    assert len({table.digest() for table in tables}) == 1
    # Naively, as the page of the format says.
    data = wide.tobytes()
    each = b"".join(
        hashlib.sha256(data[at : at + 65536]).digest() for at in range(0, len(data), 65536)
    )
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
    for spoilt, message in [
        (np.inf, "column 3 has 1 value that is not finite"),
        (1e200, "squares is too large"),
    ]:
        bad = torch.from_numpy(X).clone()
        bad[7, 3] = spoilt
        with pytest.raises(CoterieError, match=message):
            co.solve(problem, (bad, y), method="gram")
    with pytest.raises(CoterieError, match="dense"):
        co.solve(problem, (torch.from_numpy(X).to_sparse(), y), method="gram")
