"""The data of diffusion learning by rows, in the units of its columns or in one unit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from coterie.numerics.arrays import CentredDesign, Design, FloatArray, Matrix, is_sparse
from coterie.numerics.kernels.pipeline import Rows, rows_of
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.agent import Agent, remembered


@dataclass(frozen=True)
class _Tuning(Tuning):
    gain: float = tuned(
        0.5,
        "Columns get one unit if that leaves at most this share of the condition number.",
        below=1,
    )


TUNING = _Tuning()


def gain() -> float:
    """Return the largest share of the condition number that one unit for all columns may leave."""
    return TUNING.gain


@remembered
def by_rows(agent: Agent, scaled: bool) -> Rows:
    """Return the data stored by rows. Blocks of columns are stored by columns, so that one sample
    would be spread over all of them.
    """
    X = _centred(agent.design)
    if scaled:
        scale = column_scale(agent)[: X.shape[1]]
        X = _times(X, scale)
    return rows_of(X)


@remembered
def column_scale(agent: Agent) -> FloatArray:
    """Return c_j with c_j² (mean of h_j² + ρ/β) = 1; 1 for intercept and columns of zeros."""
    design = agent.design
    problem = agent.problem
    squares = design.squared_lengths().astype(float) / max(design.shape[0], 1)
    curvatures = squares + problem.penalty.strong_convexity / problem.loss.smoothness
    scale = np.ones(design.shape[1])
    moved = squares > 0
    moved[design.X.shape[1] :] = False
    scale[moved] = 1.0 / np.sqrt(curvatures[moved])
    return scale


def least_curvature(agent: Agent) -> float:
    """Return the least β (mean of h_j²) + ρ of the agent's columns, and 0 if it has none."""
    design = agent.design
    problem = agent.problem
    squares = design.squared_lengths().astype(float) / max(design.shape[0], 1)
    curvatures = problem.loss.smoothness * squares + problem.penalty.strong_convexity
    if (squares > 0).any():
        return float(curvatures[squares > 0].min(initial=np.inf))
    return 0.0


def row_squares(design: Design, scale: FloatArray | None = None) -> FloatArray:
    """Return ‖h_n‖² of every row, in that scale."""
    X = _centred(design)
    if scale is not None:
        X = _times(X, scale[: X.shape[1]])
    if is_sparse(X):
        squares: FloatArray = np.asarray(X.multiply(X).sum(axis=1)).ravel()
    else:
        squares = np.einsum("ij,ij->i", X, X)
    if design.intercept:
        return squares + 1.0
    return squares


def _centred(design: Design) -> Matrix:
    if isinstance(design, CentredDesign):
        return design.X - design.centre.astype(design.dtype)
    return design.X


def _times(X: Matrix, scale: FloatArray) -> Matrix:
    """Multiply every column by its number, in the precision of the data."""
    scale = scale.astype(X.dtype)
    if is_sparse(X):
        return X @ sp.diags_array(scale)
    return X * scale
