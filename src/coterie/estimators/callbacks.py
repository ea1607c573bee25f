"""scikit-learn's callbacks (from version 1.9 on): one task per fitted problem, with a subtask per
certificate.

A callback whose `on_fit_task_end` returns True after a certificate stops the run there, with the
best model so far.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from coterie.api.sinks import Sink


class _NoSupport:
    """Nothing to support."""


def _unchanged(method: Any) -> Any:
    """The method as it is."""
    return method


CallbackSupport: Any = _NoSupport
with_callbacks: Any = _unchanged
with suppress(ImportError):  # scikit-learn before 1.9 has no callbacks
    from sklearn import callback

    CallbackSupport, with_callbacks = callback.CallbackSupportMixin, callback.with_callbacks


def each_certificate(estimator: Any, task: Any) -> Sink:
    """What `solve` calls with every certificate: the hooks of a subtask, and whether one of them
    wants to stop.
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
