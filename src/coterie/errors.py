"""Everything that can go wrong, as a tree. Catch `CoterieError` to catch them all.

    CoterieError
    ├── InvalidInput (also a ValueError)   something the caller gave; the message names the fix
    │   ├── InvalidData                    a party's data: names party, column and count
    │   ├── InvalidNetwork                 not connected, asymmetric, negative, ...
    │   ├── InvalidProblem                 settings that do not fit together
    │   ├── Refused                        a party's policy forbids it
    │   ├── MissingData                    a public data file is missing; says where it is published
    │   └── UnknownName                    no such loss, method, ...; suggests close names
    ├── MissingExtra (also an ImportError) an optional dependency is not installed
    ├── NotRegistered                      an extension defines the loss that a file names
    ├── CorruptFile                        a stored file that was changed or truncated
    ├── ProtocolError                      two agents sent different messages at the same step
    ├── NumericalError                     a message was not finite
    └── PartyLost                          an agent stopped answering

Each class carries the `Status` with which a run ends because of it. `DataWarning` is a warning, not
an error: data that can be used, and that probably holds a mistake.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from coterie.installation import extra_command
from coterie.run.statuses import Status

ELSEWHERE: dict[str, tuple[str, ...]] = {
    "absolute": (
        "absolute_error", "l1_loss", "lad", "laplace", "least_absolute_deviations", "mae",
        "mean_absolute_error", "median", "median_regression", "robust_regression",
    ),
    "box": ("bounded", "bounds", "constraints"),
    "consensus": ("admm",),
    "cox": (
        "coxnet", "cph", "coxph", "coxphfitter", "coxphsurvivalanalysis", "hazard",
        "partial_likelihood", "ph", "phreg", "proportional_hazards", "stcox", "survival",
    ),
    "elasticnet": ("elastic", "elastic_net", "enet", "glmnet", "l1_l2", "l1l2"),
    "features": ("columns", "vertical"),
    "gamma": ("gamma_regressor", "gammaregressor"),
    "group": ("group_l1", "group_lasso", "grouplasso", "l21", "multitask"),
    "hinge": ("linearsvc", "linear_svc", "max_margin", "perceptron", "svc", "svm"),
    "huber": ("huberregressor", "huber_regressor", "rlm", "smooth_l1"),
    "intercept": ("add_constant", "fit_intercept", "noconstant"),
    "l1": ("lasso", "lars", "sparse"),
    "l1ball": ("l1_ball", "l1_constraint"),
    "l2": ("l2_penalty", "ridge", "squared_l2", "tikhonov", "weight_decay"),
    "logistic": (
        "bce", "bernoulli", "binary", "binary_cross_entropy", "binary_crossentropy", "binomial",
        "cross_entropy", "crossentropy", "glm_binomial", "log_loss", "logit", "logloss",
        "logistic_regression", "logreg", "probit",
    ),
    "max_rounds": ("max_iter", "max_iterations", "maxiter", "n_iter"),
    "max_seconds": ("timeout", "time_limit"),
    "multinomial": (
        "categorical", "categorical_crossentropy", "mlogit", "mnlogit", "multiclass", "multilogit",
        "multinom", "nll_loss", "softmax",
    ),
    "none": ("no_penalty", "null", "unpenalised", "unpenalized"),
    "nonnegative": ("nnls", "non_negative", "positive"),
    "poisson": ("count", "counts", "poissonregressor", "poisson_regression", "xtpoisson"),
    "quantile": ("check", "pinball", "qreg", "quantile_regression", "quantreg", "rq"),
    "samples": ("horizontal", "rows"),
    "seed": ("random_state", "rng", "set_seed"),
    "squared": (
        "aov", "gaussian", "least_squares", "linear", "linear_regression", "lm",
        "mean_squared_error", "mse", "normal", "ols", "quadratic", "regress", "rmse",
        "squared_error", "squared_loss",
    ),
    "squared_hinge": ("l2svm", "l2_svm", "smooth_hinge"),
    "strength": ("alpha", "lam", "lambda", "lambda1", "reg", "reg_param", "regparam"),
    "tol": ("eps", "epsilon", "tolerance"),
    "traceball": ("low_rank", "lowrank", "nuclear", "nuclear_norm", "trace", "trace_norm"),
}  # fmt: skip
"""Names here, and what the same thing is called in R, Stata, scikit-learn, statsmodels, Spark and
PyTorch, where no spelling leads from one to the other.
"""
BOTH = {
    "l1": "absolute",
    "l2": "squared",
    "lasso": "squared",
    "ridge": "squared",
    "elasticnet": "squared",
}
"""Names of penalties that stand for a loss where a loss is asked for."""
ABSENT = {
    "loss": (
        (
            ("nb", "nb2", "nbreg", "negbin", "negative_binomial", "negativebinomial"),
            "'poisson' models the same mean, and robust standard errors allow for more variance.",
        ),
        (("tweedie",), "Use 'poisson' for counts, or 'gamma' for amounts above 0."),
        (
            ("glm",),
            "Name the family: 'squared' (gaussian), 'logistic' (binomial), 'poisson' or 'gamma'.",
        ),
        (
            ("classification", "classifier"),
            "Use 'logistic' for two classes, or 'multinomial' for more.",
        ),
        (
            ("regression", "regressor"),
            "Use 'squared', or 'huber' and 'absolute' where a few labels are far off.",
        ),
        (("lasso",), "The lasso is the loss 'squared' with penalty='l1'."),
        (("ridge",), "Ridge regression is the loss 'squared' with penalty='l2'."),
        (
            ("enet", "elastic_net", "elasticnet"),
            "The elastic net is the loss 'squared' with penalty='elasticnet'.",
        ),
        (
            ("tv",),
            (
                "That is a penalty, and it is not here: none of the penalties is on differences of "
                "coefficients."
            ),
        ),
    ),
    "penalty": (
        (
            ("tv", "fused", "fused_lasso", "total_variation", "trend"),
            "None of the penalties is on differences of coefficients. 'group' keeps columns "
            "together, and 'l1' sets "
            "single ones to 0.",
        ),
        (
            ("l0", "mcp", "scad"),
            "That penalty is not convex, so no certificate is possible. Use 'l1'.",
        ),
    ),
}
"""What to use for losses and penalties that are not here, in one sentence."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A question with the known names that are close to this one; empty, if none is."""
    plain = {one.lower(): one for one in sorted(known)}
    asked = _underscored(name)
    meant = [local for local, others in ELSEWHERE.items() if asked in others and local in plain]
    meant = meant or [
        local for local in (BOTH.get(asked),) if local in plain and asked not in plain
    ]
    near = meant or difflib.get_close_matches(str(name).lower(), plain, n=3, cutoff=0.6)
    close = [plain[one] for one in near]
    return f"Did you mean {' or '.join(map(repr, close))}?" if close else ""


def instead_of(kind: str, name: object) -> str:
    """What to use for a loss or a penalty that is not here; empty, if nothing is known of it."""
    asked = _underscored(name)
    found = [sentence for names, sentence in ABSENT.get(kind, ()) if asked in names]
    return "".join(found)


def _underscored(name: object) -> str:
    return re.sub(r"[\s.-]+", "_", str(name).strip().lower())


def shortened(text: str, most: int) -> str:
    """The text, or its beginning if it is longer than that."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def count(how_many: int, noun: str) -> str:
    """ "1 row", "2 rows"."""
    return f"{how_many:,} {noun}{'' if how_many == 1 else 's'}"


class CoterieError(Exception):
    """The root of all errors that Coterie raises on purpose."""

    status: Status = Status.INVALID_DATA


class InvalidInput(CoterieError, ValueError):
    """Something the caller gave cannot be used; nothing was sent."""


class InvalidData(InvalidInput):
    """A party's data cannot be used; the message names party, column, count and fix."""

    value: WrongValue | None = None
    """The place of the wrong value, if the error is about one."""


@dataclass(frozen=True)
class WrongValue:
    """A value that cannot be used: its place in the table of a party, and the message around the
    place.
    """

    party: str
    row: int
    before: str
    """The message before the place, without the party."""
    after: str
    column: str | None = None
    """The name of its column."""
    noun: str | None = None
    """What the value is, such as a label or a weight; None: a value of X."""
    shows_cell: bool = False
    """Whether the text of the cell, if it is known, follows the place in the message."""

    def message(self, place: str) -> str:
        """The message with these words for the place."""
        return f"party {self.party!r}: {self.before}{place}{self.after}"

    def error(self) -> InvalidData:
        """The error that counts rows of the table from 0."""
        error = InvalidData(self.message(f"row {self.row}"))
        error.value = self
        return error


class DataWarning(UserWarning):
    """A party's data can be used, but it probably holds a mistake; the message names party, column
    and fix.
    """


class InvalidNetwork(InvalidInput):
    """The graph cannot carry a computation; the message lists components or entries."""


class InvalidProblem(InvalidInput):
    """Settings that do not fit together; the message names an alternative."""


class MissingData(InvalidInput):
    """A public data file is not here; the message says which, where it is published, and what to
    set.
    """


class Refused(InvalidInput):
    """A party's policy forbids it; `told` is what the others hear of it."""

    def __init__(self, message: str, told: str = ""):
        super().__init__(message)
        self.told = told or message


class UnknownName(InvalidInput):
    """No such name in a catalogue; the message lists the close ones, or all with the advice, and
    what went wrong.
    """

    def __init__(
        self, kind: str, name: object, known: Iterable[str], advice: str = "", wrong: str = ""
    ):
        known = sorted(known)
        instead = instead_of(kind, name)
        hint = " ".join(filter(None, [did_you_mean(name, known), instead]))
        hint = hint or f"Known: {', '.join(known) or 'none'}. {advice}".rstrip()
        said = " ".join(filter(None, [hint, wrong]))
        super().__init__(f"there is no {kind} called {name!r}. {said}")
        self.kind, self.name, self.advice = kind, name, f"{advice} {wrong}".strip()


class MissingExtra(CoterieError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str):
        super().__init__(
            f"{what} needs an optional dependency. Install it with: {extra_command(extra)}"
        )


class NotRegistered(CoterieError):
    """A file is about a loss, penalty or method that is not known here: an extension has to
    register it.
    """

    def __init__(self, unknown: UnknownName):
        super().__init__(
            f"the {unknown.kind} {unknown.name!r} is not known here. {unknown.advice}".rstrip()
        )


class CorruptFile(CoterieError):
    """A model, certificate or checkpoint file that was changed, truncated, or is of another
    kind.
    """


class ProtocolError(CoterieError):
    """Two agents said different words at the same step, or one fell silent."""

    status = Status.PROTOCOL_ERROR


class NumericalError(CoterieError):
    """An agent tried to send something that is not a finite number."""

    status = Status.NUMERICAL_ERROR


def as_numerical(error: BaseException) -> NumericalError | None:
    """What numpy, scipy or Python says of numbers that left their range, as a `NumericalError`;
    None for the rest.
    """
    if isinstance(error, NumericalError):
        return error
    told = str(error)
    algebra = isinstance(error, ValueError) and (
        type(error).__name__ == "LinAlgError" or "infs or NaNs" in told or "NaN to integer" in told
    )
    if isinstance(error, CoterieError) or not (algebra or isinstance(error, ArithmeticError)):
        return None
    return NumericalError(
        f"the computation left the range of numbers ({type(error).__name__}: {told}). Scale the "
        "columns, e.g. with "
        "prepare='standardise', or add a penalty."
    )


@contextmanager
def arithmetic() -> Iterator[None]:
    """Let numbers that left their range end in a `NumericalError`."""
    try:
        yield
    except (ArithmeticError, ValueError) as error:
        if (found := as_numerical(error)) is None:
            raise
        raise found from error


class PartyLost(CoterieError):
    """An agent stopped answering; `party` is its name, where it is known, and `told` what the
    others hear of it.
    """

    status = Status.PARTY_LOST

    def __init__(self, message: str, party: str = "", told: str = ""):
        super().__init__(message)
        self.party, self.told = party, told or message
