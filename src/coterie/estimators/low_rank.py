"""What the low-rank estimators share: fitted factors in the precision of the data, and scores from them."""

from __future__ import annotations

from typing import Any, ClassVar

from coterie.arrays import FloatArray, product
from coterie.estimators.distributed import Distributed
from coterie.models import LowRankModel

__all__ = ["LowRank"]


class LowRank(Distributed):
    """An estimator with a matrix W of low rank, fitted to rows that are apart."""

    split: ClassVar[str] = "samples"

    def _keep_model(self, model: LowRankModel, dtype: Any) -> None:
        self._left, self._right = (model.U * model.s).astype(dtype), model.V.astype(dtype)
        self.singular_values_, self.rank_ = model.s.astype(dtype), model.rank_
        self.coef_ = self._right @ self._left.T

    def _scores(self, X: Any) -> FloatArray:
        scores: FloatArray = product(self._checked(X), self._left) @ self._right.T
        return scores
