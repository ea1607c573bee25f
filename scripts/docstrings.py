"""For the website: an estimator's docstring as it is in Python, with what its bases say of their
parameters.
"""

from __future__ import annotations

import inspect
from typing import Any

import griffe


class Explained(griffe.Extension):
    """Takes the docstrings of the estimators from the classes, not from their source."""

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        """A class was read."""
        if cls.docstring is not None and cls.path.startswith("coterie.estimators."):
            cls.docstring.value = inspect.getdoc(griffe.dynamic_import(cls.path)) or ""
