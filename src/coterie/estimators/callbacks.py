"""Support scikit-learn's callbacks (from version 1.9 on). Each fitted problem is a task, and each
certificate is a subtask.

If the `on_fit_task_end` of a callback returns True after a certificate, the run stops and returns
the best model so far.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from coterie.api.sinks import Sink


class _NoSupport:
    """Empty base class that replaces `CallbackSupportMixin` before scikit-learn 1.9."""


def _unchanged(method: Any) -> Any:
    """Return the method unchanged."""
    return method


CallbackSupport: Any = _NoSupport
with_callbacks: Any = _unchanged
with suppress(ImportError):  # scikit-learn before 1.9 has no callbacks
    from sklearn import callback

    CallbackSupport, with_callbacks = callback.CallbackSupportMixin, callback.with_callbacks


def each_certificate(estimator: Any, task: Any) -> Sink:
    """Make the function that `solve` calls with every certificate. It calls the callbacks of a
    subtask, and returns whether one of them asks to stop.
    """

    def sink(name: str, value: float, step: int) -> bool:
        if name != "gap":
            return False
        subtask = task.subcontext(task_name="certificate").call_on_fit_task_begin(
            estimator=estimator
        )
        stop: bool = subtask.call_on_fit_task_end(estimator=estimator)
        return stop

    return sink
