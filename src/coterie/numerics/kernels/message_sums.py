"""Add many short messages in a fixed order, as if one by one."""

from __future__ import annotations

from typing import Any

from coterie.numerics.kernels.compiled import compiled


@compiled
def add_in_order(messages: Any, total: Any) -> None:
    """total ← total + the rows of `messages`, from the first to the last."""
    for i in range(messages.shape[0]):
        for k in range(total.size):
            total[k] += messages[i, k]


@compiled
def add_upwards(partial: Any, children: Any, parents: Any) -> None:
    """Add the row of each child to that of its parent, in this order."""
    for place in range(children.size):
        child, parent = children[place], parents[place]
        for k in range(partial.shape[1]):
            partial[parent, k] += partial[child, k]
