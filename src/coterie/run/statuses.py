"""The statuses with which a run ends, each with an advice to the user. Every result has one."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """The outcome of a run. It equals its name as a string; `advice` is for the user, `exit_code`
    for the command line.
    """

    OPTIMAL = "optimal"
    OPTIMAL_WITHIN_RADIUS = "optimal_within_radius"
    ITERATION_LIMIT = "iteration_limit"
    TIME_LIMIT = "time_limit"
    COMMUNICATION_LIMIT = "communication_limit"
    STALLED = "stalled"
    DIVERGED = "diverged"
    NUMERICAL_ERROR = "numerical_error"
    UNBOUNDED = "unbounded"
    INVALID_DATA = "invalid_data"
    PARTY_LOST = "party_lost"
    PROTOCOL_ERROR = "protocol_error"
    INTERRUPTED = "interrupted"

    @property
    def advice(self) -> str:
        """The meaning of this outcome, and one thing to do about it."""
        return _ADVICE[self]

    @property
    def reason(self) -> str:
        """The reason why a run ends with this status: the first sentence of the advice."""
        return f"{self.advice.partition('. ')[0].rstrip('.')}."

    @property
    def success(self) -> bool:
        """Whether the certified gap is within the tolerance: among all models, or if nothing bounds
        them, among those within the norm bound of the certificate.
        """
        return self in (Status.OPTIMAL, Status.OPTIMAL_WITHIN_RADIUS)

    @property
    def exit_code(self) -> int:
        """The exit status of the command line: 0 for success, 10 and up for the rest, in the order
        above.
        """
        if self.success:
            return 0
        others = [status for status in Status if not status.success]
        return 10 + others.index(self)


_ADVICE = {
    Status.OPTIMAL: "The certified gap is within the tolerance. Nothing to do.",
    Status.OPTIMAL_WITHIN_RADIUS: (
        "The certified gap is within the tolerance among all models of at most the certificate's "
        "norm: without a penalty nothing bounds a model. For a claim about all models add a "
        "penalty, however small."
    ),
    Status.ITERATION_LIMIT: (
        "Round limit reached. Raise max_rounds, loosen tol, or continue from the checkpoint."
    ),
    Status.TIME_LIMIT: (
        "Time limit reached. Raise max_seconds, loosen tol, or continue from the checkpoint."
    ),
    Status.COMMUNICATION_LIMIT: (
        "Communication limit reached. Raise max_bits, or try a method that sends less."
    ),
    Status.STALLED: (
        "The gap stopped falling before the tolerance. Loosen tol, use float64, or scale the "
        "columns."
    ),
    Status.DIVERGED: (
        "The iterates grew without bound. Leave the step sizes to 'auto', or add a penalty."
    ),
    Status.NUMERICAL_ERROR: (
        "A message was not a finite number. Scale the columns, or leave the step sizes to 'auto'."
    ),
    Status.UNBOUNDED: "The objective has no lower bound. Add a penalty or bounds.",
    Status.INVALID_DATA: (
        "An extension refused the data with an error of its own. The message names the cause."
    ),
    Status.PARTY_LOST: "An agent stopped answering. Restart it, and continue from the checkpoint.",
    Status.PROTOCOL_ERROR: (
        "The agents sent different messages. Check that all use the same version and settings."
    ),
    Status.INTERRUPTED: (
        "Stopped by hand. This is the best model so far; continue from the checkpoint."
    ),
}
