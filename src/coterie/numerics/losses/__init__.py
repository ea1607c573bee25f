"""Losses: one file each, found by name.

    from coterie.numerics.losses import loss
    loss("huber", threshold=1.35)

To add one, see `docs/add-a-loss.md`.
"""

from __future__ import annotations

from coterie.catalogue import Catalogue
from coterie.numerics.losses.fit import Fit
from coterie.numerics.losses.loss import Loss

__all__ = ["LOSSES", "Fit", "Loss", "loss"]

LOSSES: Catalogue[Loss] = Catalogue(
    "coterie.numerics.losses", Loss, "loss", kind=("classification", "regression")
)


def loss(name: str | Loss, **parameters: float) -> Loss:
    """Return the loss of that name with these parameters, e.g. `loss("quantile", level=0.9)`; a
    `Loss` is returned unchanged.
    """
    if isinstance(name, Loss):
        return name
    return LOSSES[name](**parameters)
