"""All errors of Coterie, as a tree. Catch `CoterieError` to catch them all.

    CoterieError
    ├── InvalidInput (also a ValueError)   something the caller gave; the message names the fix
    │   ├── InvalidData                    a party's data: names party, column and count
    │   ├── InvalidNetwork                 not connected, asymmetric, negative, ...
    │   ├── InvalidProblem                 settings that do not fit together
    │   ├── Refused                        a party's policy forbids the study
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
from collections.abc import Container, Iterable, Iterator
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
"""Names of Coterie, with the names that R, Stata, scikit-learn, statsmodels, Spark and PyTorch give
to the same thing, where the spelling is too different.
"""
BOTH = {
    "l1": "absolute",
    "l2": "squared",
    "lasso": "squared",
    "ridge": "squared",
    "elasticnet": "squared",
}
"""Losses that are meant by the name of a penalty."""
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
            "Coterie has no such penalty: none of its penalties is on differences of coefficients.",
        ),
    ),
    "penalty": (
        (
            ("tv", "fused", "fused_lasso", "total_variation", "trend"),
            "None of the penalties is on differences of coefficients. 'group' keeps columns "
            "together, and 'l1' sets single ones to 0.",
        ),
        (
            ("l0", "mcp", "scad"),
            "That penalty is not convex, so no certificate is possible. Use 'l1'.",
        ),
    ),
}
"""Advice for losses and penalties that Coterie does not have, in one sentence each."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Ask with the known names that are close to this one; empty, if none is close."""
    plain = {one.lower(): one for one in sorted(known)}
    near = _meant(_underscored(name), plain)
    if not near:
        near = difflib.get_close_matches(str(name).lower(), plain, n=3, cutoff=0.6)
    if not near:
        return ""
    close = [repr(plain[one]) for one in near]
    return f"Did you mean {' or '.join(close)}?"


def _meant(asked: str, known: Container[str]) -> list[str]:
    """The known names that mean the same as this one in another library."""
    meant = [local for local, others in ELSEWHERE.items() if asked in others and local in known]
    if not meant and asked not in known and BOTH.get(asked) in known:
        meant.append(BOTH[asked])
    return meant


def instead_of(kind: str, name: object) -> str:
    """Advice for a loss or a penalty that Coterie does not have; empty without advice."""
    asked = _underscored(name)
    found = [sentence for names, sentence in ABSENT.get(kind, ()) if asked in names]
    return "".join(found)


def _underscored(name: object) -> str:
    return re.sub(r"[\s.-]+", "_", str(name).strip().lower())


def shortened(text: str, most: int) -> str:
    """The text, or its beginning if it has more than `most` characters."""
    if len(text) <= most:
        return text
    return text[: most - 1].rstrip() + "…"


def count(how_many: int, noun: str) -> str:
    """Write a count with its noun: "1 row", "2 rows"."""
    if how_many == 1:
        return f"1 {noun}"
    return f"{how_many:,} {noun}s"


class CoterieError(Exception):
    """The root of all errors that Coterie raises on purpose."""

    status: Status = Status.INVALID_DATA


class InvalidInput(CoterieError, ValueError):
    """An argument, a file or an option cannot be used; nothing was sent."""


class InvalidData(InvalidInput):
    """A party's data cannot be used; the message names party, column, count and fix."""

    value: WrongValue | None = None
    """The place of the wrong value, if the error is about one."""


@dataclass(frozen=True)
class WrongValue:
    """A value that cannot be used: its place in a party's table, and the text of its error."""

    party: str
    row: int
    before: str
    """The message before the place, without the party."""
    after: str
    column: str | None = None
    """The name of its column."""
    noun: str | None = None
    """The noun for the value, such as label or weight; None: a value of X."""
    shows_cell: bool = False
    """Whether the message shows the text of the cell after the place, if the text is known."""

    def message(self, place: str) -> str:
        """Write the message with this text for the place."""
        return f"party {self.party!r}: {self.before}{place}{self.after}"

    def error(self) -> InvalidData:
        """Make the error, which counts rows of the table from 0."""
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
    """A public data file is missing; the message names it, where it is published, and the setting
    for its folder.
    """


class Refused(InvalidInput):
    """A party's policy forbids a study; `told` is the message to the other parties."""

    def __init__(self, message: str, told: str = ""):
        super().__init__(message)
        self.told = told or message


class UnknownName(InvalidInput):
    """A catalogue does not have a name; the message lists close names, or all names with advice."""

    def __init__(
        self, kind: str, name: object, known: Iterable[str], advice: str = "", wrong: str = ""
    ):
        known = sorted(known)
        instead = instead_of(kind, name)
        hint = " ".join(filter(None, [did_you_mean(name, known), instead]))
        if not hint:
            hint = f"Known: {', '.join(known) or 'none'}. {advice}".rstrip()
        text = " ".join(filter(None, [hint, wrong]))
        super().__init__(f"there is no {kind} called {name!r}. {text}")
        self.kind = kind
        self.name = name
        self.advice = f"{advice} {wrong}".strip()


class MissingExtra(CoterieError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, feature: str, extra: str):
        super().__init__(
            f"{feature} needs an optional dependency. Install it with: {extra_command(extra)}"
        )


class NotRegistered(CoterieError):
    """A file needs a loss, penalty or method that is not registered; an extension registers it."""

    def __init__(self, unknown: UnknownName):
        super().__init__(
            f"the {unknown.kind} {unknown.name!r} is unknown. {unknown.advice}".rstrip()
        )


class CorruptFile(CoterieError):
    """A model, certificate or checkpoint file was changed, truncated, or is of another kind."""


class ProtocolError(CoterieError):
    """Two agents used different collectives at the same step, or one stopped."""

    status = Status.PROTOCOL_ERROR


class NumericalError(CoterieError):
    """An agent tried to send a number that is not finite."""

    status = Status.NUMERICAL_ERROR


def as_numerical(error: BaseException) -> NumericalError | None:
    """Turn an error of numpy, scipy or Python about numbers out of range into a `NumericalError`;
    None for other errors.
    """
    if isinstance(error, NumericalError):
        return error
    if isinstance(error, CoterieError):
        return None
    text = str(error)
    name = type(error).__name__
    out_of_range = isinstance(error, ArithmeticError)
    if isinstance(error, ValueError):
        out_of_range |= name == "LinAlgError" or "infs or NaNs" in text or "NaN to integer" in text
    if not out_of_range:
        return None
    return NumericalError(
        f"the computation left the range of numbers ({name}: {text}). Scale the columns, e.g. with "
        "prepare='standardise', or add a penalty."
    )


@contextmanager
def arithmetic() -> Iterator[None]:
    """Turn errors about numbers out of range into `NumericalError`."""
    try:
        yield
    except (ArithmeticError, ValueError) as error:
        found = as_numerical(error)
        if found is None:
            raise
        raise found from error


class PartyLost(CoterieError):
    """An agent stopped answering.

    `party` is its name, if that is known, and `told` is the message to the other parties.
    `farewell` is the signed reason of another party, if this error comes of one.
    """

    status = Status.PARTY_LOST
    farewell: bytes = b""

    def __init__(self, message: str, party: str = "", told: str = ""):
        super().__init__(message)
        self.party = party
        self.told = told or message
