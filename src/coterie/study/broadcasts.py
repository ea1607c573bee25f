"""Declare the messages that parties send outside of sums.

A party refuses to send a message that is not declared.

A party agrees to a page, which lists the sentence of each message that applies to its study,
operation by operation. The queries of an `Operation` and the matching of ids (`study.align`) are
declared in their own modules. The page lists them in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

import msgspec

from coterie.data.summary import MOST_ROWS
from coterie.transport.frames import MOST_BYTES

if TYPE_CHECKING:
    from coterie.study.study import Study

DIGEST = cast("type[str]", Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")])
"""A SHA-256 digest in hexadecimal digits."""
DIGESTS_OF_ROUNDS = cast(
    "type[dict[int, str]]",
    dict[int, Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]],
)
MINIMUM_COUNT: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MOST_ROWS)]
"""The least number of rows in a group, as a policy may set it."""
NUMBERS: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
"""How many numbers a page or a budget allows."""
LONG, LONGEST = 2**23, 2**27
"""Bytes of texts that depend on the number of classes or rounds, or on that of columns or rows."""
OPERATIONS = ("fit", "describe", "crosstab", "evaluate", "predict", "verify")


def _always(study: Study) -> bool:
    return True


@dataclass(frozen=True)
class Broadcast:
    """Declaration of one message that every party sends outside of sums."""

    about: str
    """Label of the messages in transit."""
    sent: str
    """Description of the message on the page."""
    operations: tuple[str, ...] = OPERATIONS
    """Operations for which a party may send it."""
    applies: Callable[[Study], bool] = _always
    """Function of a study: whether its parties send the message."""
    also: tuple[str, ...] = ()
    """Labels of further messages that this declaration covers."""
    to: str = ""
    """Recipients, if not all parties."""
    most: int = MOST_BYTES
    """Largest number of bytes that a party may send."""

    @property
    def sentence(self) -> str:
        """Description of the message and, if not all parties receive it, its recipients."""
        return f"{self.sent} (to {self.to})" if self.to else self.sent

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of all messages that this declaration covers."""
        return (self.about, *self.also)

    def is_sent(self, study: Study, operation: str) -> bool:
        """Whether a party of the study may send the message for the operation."""
        return operation in self.operations and self.applies(study)


def _by_features(study: Study) -> bool:
    return study.split == "features"


def _by_samples(study: Study) -> bool:
    return study.split == "samples"


def _same_order(study: Study) -> bool:
    return study.same_order


def _by_users(study: Study) -> bool:
    return study.messages == "users"


def _masks(study: Study) -> bool:
    return study.has_secure_sums


def _prepares_by_rows(study: Study) -> bool:
    return study.split != "features" and study.make_preparation() is not None


HELLO = Broadcast(
    "hello",
    "the text of the study, the version of the program, and a number that identifies a restart",
    to="neighbours",
)
KEYS = Broadcast("introduction", "your TLS certificate and a random number")
LEAVING = Broadcast(
    "leaving",
    "if your program ends early: the text of its error, and which party it lost, signed",
    to="neighbours",
)
POLICIES = Broadcast(
    "policies", "whether your policy allows the study", ("fit", "describe", "crosstab", "evaluate")
)
CARDS = Broadcast(
    "cards",
    "the numbers of rows, columns and non-zeros, the type of numbers, whether there are labels, "
    "the classes that at least minimum-count of your rows have, and if rows are split a digest of "
    "the column names",
    OPERATIONS,
    most=LONG,
)
NAME_KEYS = Broadcast(
    "name keys",
    "random numbers, of which a key for names of columns is made",
    ("fit", "evaluate", "predict", "verify"),
    _same_order,
)
NAMES = Broadcast(
    "names",
    (
        "keyed hashes of the column names, to find names that two parties have: parties can test "
        "guesses"
    ),
    ("fit", "evaluate", "predict", "verify"),
    _same_order,
    most=LONGEST,
)
LIMITS = Broadcast(
    "limits",
    "whether secure sums hide you, your minimum-count, and how many numbers your page and your "
    "budget allow",
    ("describe", "crosstab", "evaluate"),
)
MASKS = Broadcast(
    "masks",
    "public keys, confirmations and check keys, of which masks are made",
    applies=_masks,
    also=("seeds", "check keys"),
)
TOTALS = Broadcast("totals", "a digest of the sums that you received")
AGREEMENT = Broadcast("agreement", "a digest of your model", ("evaluate",), _by_samples)
DONE = Broadcast(
    "done", "that your result is written", ("describe", "crosstab", "evaluate", "predict", "verify")
)

LEAST_ROWS = Broadcast(
    "least rows of a group",
    "your minimum-count, and how many numbers your page allows for a preparation",
    ("fit",),
    _prepares_by_rows,
)
METHODS_ALLOWED = Broadcast("allowed", "the methods that your policy allows", ("fit",))
COMMITMENTS = Broadcast(
    "digests",
    (
        "a keyed hash of your data. The key (nonce.txt) never leaves this machine, so that no "
        "other party can "
        "test "
        "guesses"
    ),
    ("fit",),
)
CHECKPOINTS = Broadcast(
    "checkpoints", "digests of the sums in your checkpoints", ("fit",), most=LONG
)
ROUND = Broadcast(
    "least",
    "the round of your newest checkpoint, and how long your messages to single parties are",
    ("fit", "verify"),
    also=("published", "asked", "sizes"),
)
WAKE_UPS = Broadcast(
    "wake-up",
    "when you woke up, and how much you sent",
    ("fit",),
    _by_users,
    also=("stretch", "account"),
)
PARTS = Broadcast("parts", "in the end a digest of your model", ("fit",))
SIGNATURES = Broadcast("signatures", "in the end your signature of the certificate", ("fit",))
WRITTEN = Broadcast("written", "whether your result is written", ("fit",))

FITTED_WITHOUT = Broadcast(
    "fitted without",
    "with --without, whether the model was fitted again",
    ("predict",),
    _by_features,
)

MEETING = (HELLO, KEYS, POLICIES)
"""Messages that parties send before they match rows (`align.MATCHING`)."""
BROADCASTS = (
    NAME_KEYS,
    NAMES,
    CARDS,
    LIMITS,
    MASKS,
    AGREEMENT,
    LEAST_ROWS,
    METHODS_ALLOWED,
    COMMITMENTS,
    CHECKPOINTS,
    ROUND,
    WAKE_UPS,
    FITTED_WITHOUT,
    TOTALS,
    PARTS,
    SIGNATURES,
    WRITTEN,
    DONE,
    LEAVING,
)
"""Messages that parties send after they match rows, in approximately this order."""
