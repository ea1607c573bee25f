"""Standard errors, tests and intervals of the coefficients, from one more round at the fitted model.

    J = Σ s ℓ'' x xᵀ       information; gamma, model-based: the expected one, Σ s x xᵀ, as statsmodels has it
    φ = Σ s ℓ'² / (n − k)   dispersion of squared (the residual variance) and gamma (Pearson's); 1 for all others
    model      φ J⁻¹
    robust     J⁻¹ (Σ s ℓ'² x xᵀ) J⁻¹                       HC0; weights are frequencies, as everywhere
    clustered  c J⁻¹ (Σ_c g_c g_cᵀ) J⁻¹, g_c = Σ s ℓ' x     c = C/(C − 1) · (n − 1)/(n − k) for C clusters; cox: 1

For cox J is the Hessian of the partial likelihood, and a row's score is that of Lin and Wei (1989).

The agents of the run say it, where they live: each adds up its own rows. A cluster at one party is squared there, and
of a cluster at several parties the sum of its scores is told. Softmax has one class too many: the coefficients are
differences from the first class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from coterie.agent import Agent
from coterie.arrays import FloatArray, as_number
from coterie.certificate import participants
from coterie.engines import Engine, Run
from coterie.engines import engine as find_engine
from coterie.errors import InvalidData, InvalidProblem, UnknownName
from coterie.families import family_of
from coterie.inference import KINDS, Inference
from coterie.networks import star
from coterie.problem import Problem
from coterie.result import Result
from coterie.rounds import Limits, Outcome
from coterie.session.information import Information, Totals
from coterie.session.setup import make_agents
from coterie.session.tables import gather_prepared, prepare_tables

CLOSE = 0.1
"""How many standard errors a coefficient may be from the best model's."""


def infer(
    result: Result, kind: str = "model", clusters: Any = None, level: float = 0.95, data: Any = None
) -> Inference:
    """What `Result.inference` gives."""
    if kind not in KINDS:
        raise UnknownName("kind of inference", kind, KINDS)
    if not 0 < as_number(level) < 1:
        raise InvalidProblem(f"level is between 0 and 1, e.g. 0.95, not {level!r}.")
    if (kind == "clustered") != (clusters is not None):
        fix = "give clusters=, the cluster of each row" if clusters is None else "leave clusters out"
        raise InvalidProblem(f"kind={kind!r}: {fix}, or use another kind.")
    problem = result.model.problem
    check_problem(problem, result.certificate.settings["split"])
    engine, run = _asked(result, data)
    of_rows = None if clusters is None else _of_agents(clusters, run.agents)
    count = 0 if of_rows is None else 1 + max(int(own.max(initial=-1)) for own in of_rows)
    if of_rows is not None:
        refuse_few_clusters(result.model, count)
    asking = Information(kind, of_rows, clusters_at_several(of_rows))
    warm = family_of(problem).points(result.model, list(run.agents), None)
    limits = Limits(tol=result.certificate.tolerance, max_rounds=1)
    outcome = engine.run(replace(run, steps=asking, limits=limits, warm=warm))
    if outcome.error is not None:
        raise outcome.error
    return summarised(result.model, result.certificate.tolerance, asking, outcome, count, level)


def summarised(
    model: Any, tolerance: float, asking: Information, outcome: Outcome, clusters: int, level: float = 0.95
) -> Inference:
    """What the sums of all agents say of a model that was fitted to that tolerance, with so many clusters."""
    problem, kind = model.problem, asking.kind
    names, estimates = _coefficients(model)
    heard, n = outcome.points[0].kept, outcome.facts.total
    assert heard is not None
    totals = Totals(heard, len(names), outcome.facts, kind, len(asking.shared))
    covariance, dispersion = _covariance(problem, totals, names, clusters)
    errors = np.sqrt(np.diag(covariance))
    if not (np.isfinite(errors).all() and (errors > 0).all()):
        raise InvalidData("the model fits every row exactly: nothing is left to tell how uncertain it is.")
    distance = float((np.abs(totals.step()) / errors).max())
    _refuse_unfinished(tolerance, distance)
    exact = kind == "model" and problem.family == "linear" and problem.loss.quadratic
    law = stats.t(n - len(names)) if exact else stats.norm()
    statistics = estimates / errors
    reach = law.ppf((1 + level) / 2) * errors
    about = {"model": "", "robust": " (HC0)", "clustered": f" by {clusters} clusters"}[kind]
    reference = f", against class {model.classes_[0]}" if problem.family == "multiclass" else ""
    note = family_of(problem).note(problem, outcome.bill.network.agents).rstrip(".").lower()
    strata = f", {note}" if note else ""
    return Inference(
        kind=kind,
        names=names,
        estimates=estimates,
        standard_errors=errors,
        statistics=statistics,
        p_values=2 * law.sf(np.abs(statistics)),
        intervals=np.column_stack([estimates - reach, estimates + reach]),
        covariance=covariance,
        level=float(level),
        statistic="t" if exact else "z",
        rows=n,
        dispersion=dispersion,
        distance=distance,
        ratios="hazard ratio" if problem.family == "survival" else "",
        about=f"{problem.loss.name}{reference}: {kind} standard errors{about}, n = {n:g}{strata}",
        bill=outcome.bill,
    )


# -- what cannot be asked ----------------------------------------------------------------------------------------------


def check_problem(problem: Problem, split: str) -> None:
    """Refuse, with the reason, a problem whose coefficients have no standard errors."""
    if problem.family not in ("linear", "multiclass", "survival"):
        raise InvalidProblem("inference is for linear models, multinomial and cox; this is a model of another kind.")
    if problem.family == "linear" and problem.loss.dispersion is None:
        raise InvalidProblem(
            f"the {problem.loss.name} loss is no likelihood, so it has no standard errors. "
            "Fit with squared, logistic, poisson, gamma, multinomial or cox."
        )
    if not problem.penalty.is_zero:
        raise InvalidProblem(
            f"the {problem.penalty.name} penalty biases the coefficients, so that standard errors and intervals would "
            "not hold. Fit again with penalty 'none'."
        )
    if split != "samples":
        raise InvalidProblem(
            f"inference is for data split by samples; this is split by {split}, where products of columns at "
            "different parties would have to be told."
        )


def refuse_few_clusters(model: Any, count: int) -> None:
    """Refuse fewer clusters than coefficients."""
    needed = len(_coefficients(model)[0])
    if count < needed:
        raise InvalidData(
            f"there are {count} clusters and {needed} coefficients: clustered standard errors need at least as many "
            "clusters as coefficients. Use kind='robust', or fewer columns."
        )


def _refuse_unfinished(tolerance: float, distance: float) -> None:
    if distance > CLOSE:
        tol = tolerance * (0.1 * CLOSE / distance) ** 2
        raise InvalidData(
            f"the model is not exact enough: a coefficient is about {distance:.2g} standard errors from the best "
            f"one. Fit again with tol={tol:.0e}."
        )


def _asked(result: Result, data: Any) -> tuple[Engine, Run]:
    """The engine of the run with its agents, or agents in this process with the data that is given."""
    if data is None and result.rerun is not None:
        return result.rerun
    if data is None:
        raise InvalidData(
            "a result from a file, or of a study between organisations, has no data. Give data=, in the form in which "
            "it was fitted."
        )
    settings, held = result.certificate.settings, result.certificate.participants
    sizes = [person.rows for person in held]
    problem = family_of(result.model.problem).problem_of(result.model, settings["problem"])
    parts = None if isinstance(data, list) else settings["partition"] or sizes
    tables = gather_prepared(data, "samples", parts, result.model.preparation)
    tables, _ = prepare_tables(tables, problem, "samples")
    network = star(len(tables), server=True)
    agents = make_agents(tables, problem, "samples", network, 0, settings.get("secure_sums") is True)
    if [person.digest for person in participants(agents)] != [person.digest for person in held]:
        raise InvalidData("this is not the data that the model was fitted to: its digest differs.")
    steps = Information("model", None, ())
    return find_engine("local"), Run(agents, steps, network, Limits(), secure_sums=agents[0].secure_sums)


def _of_agents(clusters: Any, agents: Sequence[Agent]) -> tuple[npt.NDArray[Any], ...]:
    """The clusters of every agent's rows."""
    sizes = [agent.data.n for agent in agents]
    if isinstance(clusters, list) and len(clusters) == len(agents) and all(np.ndim(own) == 1 for own in clusters):
        parts = [np.asarray(own) for own in clusters]
    else:
        whole = np.asarray(clusters)
        if whole.shape != (sum(sizes),):
            raise InvalidData(f"clusters has shape {whole.shape}; give the cluster of each of the {sum(sizes)} rows.")
        rows = [agent.data.rows for agent in agents]
        ends = np.cumsum(sizes)
        parts = [
            whole[end - n : end] if own is None else whole[own] for own, n, end in zip(rows, sizes, ends, strict=True)
        ]
    if [len(own) for own in parts] != sizes:
        raise InvalidData(f"clusters has {[len(own) for own in parts]} rows a party, but the parties have {sizes}.")
    everything = np.concatenate(parts)
    if everything.dtype.kind == "f" and not np.isfinite(everything).all():
        raise InvalidData("some rows have no cluster. Give each row one, or leave those rows out of the fit.")
    numbers = np.unique(everything, return_inverse=True)[1]
    return tuple(np.split(numbers, np.cumsum(sizes)[:-1]))


def clusters_at_several(of_rows: Sequence[npt.NDArray[Any]] | None) -> tuple[int, ...]:
    """The clusters with rows at more than one party."""
    if of_rows is None:
        return ()
    found, times = np.unique(np.concatenate([np.unique(own) for own in of_rows]), return_counts=True)
    return tuple(found[times > 1].tolist())


# -- numbers -----------------------------------------------------------------------------------------------------------


def _coefficients(model: Any) -> tuple[tuple[str, ...], FloatArray]:
    """Names and values, the intercept last; of several classes, differences from the first, class by class."""
    names = tuple(map(str, model.columns or (f"x{j}" for j in range(model.coef_.shape[-1]))))
    beside = ("intercept",) if model.problem.intercept else ()
    if model.problem.family != "multiclass":
        return names + beside, np.append(model.coef_.astype(float), [model.intercept_] * len(beside))
    W = np.column_stack([model.coef_, model.intercept_[:, None]]) if beside else model.coef_
    labelled = tuple(f"{label}: {name}" for label in model.classes_[1:].tolist() for name in names + beside)
    return labelled, (W[1:] - W[0]).astype(float).ravel()


def _covariance(problem: Problem, totals: Totals, names: tuple[str, ...], clusters: int) -> tuple[FloatArray, float]:
    """The covariance of the coefficients as people know them, and the dispersion."""
    fixed = problem.family != "linear" or not problem.loss.dispersion
    n, k = totals.facts.total, totals.k
    if n <= k:
        raise InvalidData(
            f"{n:g} rows cannot tell how uncertain {k} coefficients are. There must be more rows "
            "than coefficients; a weight counts as that many rows."
        )
    J = totals.inverse(names, steep=fixed)
    dispersion = 1.0 if fixed else totals.residuals / (n - k)
    if totals.kind == "model":
        inner = dispersion * J
    else:
        small = totals.kind == "clustered" and problem.family != "survival"
        correction = clusters / (clusters - 1) * (n - 1) / (n - k) if small else 1.0
        inner = correction * (J @ totals.middle() @ J)
    plain = totals.plain
    covariance: FloatArray = plain @ inner @ plain.T
    return (covariance + covariance.T) / 2, dispersion
