"""What the low-rank estimators share: fitted factors in the precision of the data, and scores from them."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from coterie.arrays import FloatArray, Matrix
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
        check_is_fitted(self)
        checked: Matrix = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        scores: FloatArray = (checked @ self._left) @ self._right.T
        return scores
