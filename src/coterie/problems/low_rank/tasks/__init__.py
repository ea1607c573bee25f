"""Tasks: the losses of low-rank matrices, one file each, found by name. With a penalty on matrices,
a task takes the place of a loss:

    Problem(loss="multinomial", penalty="traceball", radius=30.0)
"""

from __future__ import annotations

from typing import Any

from coterie.catalogue import Catalogue
from coterie.problems.low_rank.tasks.task import Information, Means, Task

__all__ = ["TASKS", "Information", "Means", "Task", "task"]

TASKS: Catalogue[Task] = Catalogue(
    "coterie.problems.low_rank.tasks", Task, "task for a low-rank model"
)


def task(name: str | Task, **parameters: Any) -> Task:
    """The task of that name with its parameters, e.g. `task("completion", shape=(100, 50))`; a
    `Task` is returned as it is.
    """
    if isinstance(name, Task):
        return name
    return TASKS[name](**parameters)
