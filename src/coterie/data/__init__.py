"""Data: read it, match its rows across parties, check it, and cut it into what each agent holds.

read → align → validated_all, encode_labels → split
"""

from __future__ import annotations

from coterie.data.align import align, order_digest
from coterie.data.check import SPLITS, encode_classes, encode_labels, validated, validated_all
from coterie.data.read import read, read_cells
from coterie.data.split import Agents, hold_out, split
from coterie.data.table import Table

__all__ = [
    "SPLITS",
    "Agents",
    "Table",
    "align",
    "encode_classes",
    "encode_labels",
    "hold_out",
    "order_digest",
    "read",
    "read_cells",
    "split",
    "validated",
    "validated_all",
]
