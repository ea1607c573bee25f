"""Recipes: how columns are prepared before a fit, in Python, in the shell and in studies.

    standardise                    (x − mean) / standard deviation, of the rows of all parties
    min-max                        (x − smallest) / (largest − smallest)
    impute, impute(mean)           missing numbers become the mean; impute(0): that number
    impute(mean, indicator)        ... and a column says where they were missing
    polynomial(3)                  x, x², x³
    spline(5), spline(5, 2)        B-splines with 5 knots at quantiles, of degree 3 or of another
                                   one
    one-hot, one-hot(10)           a column for each category; those with fewer than 10 rows in all
                                   share one
    one-hot(10, drop-first)        ... without the first column, for fits without a penalty
    keep                           unchanged

Several steps stand in their order: "impute, standardise". A recipe alone is for all columns of its
kind, one-hot for text and the others for numbers; "age: spline(5)" is for one column.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.errors import InvalidInput, UnknownName

STEPS = ("standardise", "min-max", "impute", "polynomial", "spline", "one-hot", "keep")
_SPELLINGS = {"standardize": "standardise", "minmax": "min-max", "onehot": "one-hot"}
_STEP = re.compile(r"\s*([A-Za-z-]+)\s*(?:\(([^()]*)\))?\s*")
MOST_DEGREE = 20
MOST_KNOTS = 100


@dataclass(frozen=True)
class Step:
    """One step of a recipe: its name and its parameters."""

    name: str
    number: float | None = None
    """The degree, the number of knots, the least rows of a category, or the number that fills in;
    None: the default.
    """
    degree: int = 3
    """The degree of a spline."""
    flag: bool = False
    """impute: with an indicator; one-hot: without the first column."""

    def __str__(self) -> str:
        given = []
        if self.number is not None:
            given.append(f"{self.number:g}")
        if self.name == "spline" and self.degree != 3:
            given.append(str(self.degree))
        if self.flag and self.name == "impute":
            given = [*(given or ["mean"]), "indicator"]
        elif self.flag:
            given.append("drop-first")
        if given:
            return f"{self.name}({', '.join(given)})"
        return self.name


@dataclass(frozen=True)
class Preparation:
    """Recipes for columns before a fit. Their numbers are computed over all parties.

    Parameters
    ----------
    numbers : str, default="keep"
        Recipe for all columns of numbers, such as "impute, standardise".
    text : str, default=""
        Recipe for all columns of text, such as "one-hot(10)".
    columns : dict of str, default={}
        Recipes for single columns, which override the other two: {"age": "spline(5)"}.

    Raises
    ------
    InvalidInput
        If a recipe cannot be read, or its steps do not go together.

    Examples
    --------
    >>> import coterie as co
    >>> prepare = co.Preparation("standardise", columns={"age": "spline(5)"})
    >>> print(prepare)
    standardise; age: spline(5)
    """

    numbers: str = "keep"
    text: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    _recipes: dict[str, tuple[Step, ...]] = field(init=False, repr=False, compare=False)
    _defaults: tuple[tuple[Step, ...], tuple[Step, ...]] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        columns: Any = self.columns
        given: list[Any] = [self.numbers, self.text]
        if isinstance(columns, Mapping):
            given += [*columns.keys(), *columns.values()]
        if not isinstance(columns, Mapping) or not all(isinstance(part, str) for part in given):
            raise InvalidInput(
                "a preparation takes recipes as text: co.Preparation('standardise', "
                "text='one-hot(10)', columns={'age': 'spline(5)'})."
            )
        recipes = {name: recipe_of(recipe, name) for name, recipe in self.columns.items()}
        numbers = recipe_of(self.numbers, "numbers")
        text: tuple[Step, ...] = ()
        if self.text:
            text = recipe_of(self.text, "text")
        if any(step.name == "one-hot" for step in numbers):
            raise InvalidInput(
                f"numbers = {self.numbers!r}: one-hot is for text; name the columns of numbers it "
                "is for."
            )
        if text and text[0].name != "one-hot":
            raise InvalidInput(
                f"text = {self.text!r}: text can only become columns of categories, with one-hot."
            )
        object.__setattr__(self, "_recipes", recipes)
        object.__setattr__(self, "_defaults", (numbers, text))

    @staticmethod
    def of(given: Any) -> Preparation:
        """Make a preparation of recipes, alone or as "column: recipe", or of a table of them."""
        if isinstance(given, Preparation):
            return given
        if isinstance(given, str):
            given = [given]
        if isinstance(given, Mapping):
            parts = ("numbers", "text", "columns")
            for name in given.keys() - {*parts}:
                raise UnknownName("part of a preparation", str(name), parts)
            return Preparation(**given)
        lines: list[Any] = [None]
        if isinstance(given, Iterable):
            lines = list(given)
        if not all(isinstance(line, str) for line in lines):
            raise InvalidInput(
                f"prepare is a co.Preparation, or recipes such as 'standardise', not {given!r}."
            )
        return _from_lines(lines)

    @staticmethod
    def from_settings(settings: Mapping[str, Any]) -> Preparation:
        """Make the preparation with the settings that a certificate has."""
        parts = {name: value for name, value in settings.items() if name != "numbers_given"}
        return Preparation.of(parts)

    @staticmethod
    def load(path: str | Path) -> Preparation:
        """Read a TOML file with numbers, text and columns."""
        try:
            return Preparation.of(tomllib.loads(Path(path).read_text("utf-8")))
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read ({error.strerror}).") from error
        except ValueError as error:
            raise InvalidInput(f"{path}: {error}") from error

    def recipe(self, column: str, text: bool) -> tuple[Step, ...]:
        """The steps for a column of that name, of text or of numbers; empty without a recipe."""
        numbers, texts = self._defaults
        if column in self._recipes:
            return self._recipes[column]
        if text:
            return texts
        return numbers

    @property
    def texts(self) -> frozenset[str]:
        """The named columns that become categories: their cells are text in a CSV file, as 007 is
        not 7.
        """
        found = [name for name, steps in self._recipes.items() if steps[0].name == "one-hot"]
        return frozenset(found)

    @property
    def steps(self) -> list[Step]:
        """All steps of all recipes, each once."""
        found: list[Step] = []
        for steps in (*self._defaults, *self._recipes.values()):
            found += steps
        return list(dict.fromkeys(found))

    def lines(self) -> list[str]:
        """The recipes as `of` takes them, one for each kind or column."""
        lines = []
        if self.numbers not in ("", "keep"):
            lines.append(self.numbers)
        if self.text:
            lines.append(self.text)
        for name, recipe in self.columns.items():
            lines.append(f"{name}: {recipe}")
        return lines

    def settings(self) -> dict[str, Any]:
        """Plain values that describe the preparation."""
        return {"numbers": self.numbers, "text": self.text, "columns": dict(self.columns)}

    def __hash__(self) -> int:
        return hash((self.numbers, self.text, *self.columns.items()))

    def __str__(self) -> str:
        return "; ".join(self.lines())


def _from_lines(lines: Iterable[str]) -> Preparation:
    columns: dict[str, str] = {}
    found: dict[str, Any] = {}
    for line in lines:
        name, colon, recipe = line.rpartition(":")
        value = recipe.strip()
        if colon:
            place = columns
            key = name.strip()
        else:
            place = found
            key = _kind_of(line)
        if key in place:
            raise InvalidInput(
                f"there are two recipes for {key}: {place[key]!r} and {value!r}. Join them with a "
                "comma."
            )
        place[key] = value
    return Preparation(columns=columns, **found)


def _kind_of(line: str) -> str:
    """Whether a recipe without a column is for numbers or for text."""
    first, *_ = recipe_of(line, "prepare")
    if first.name == "one-hot":
        return "text"
    return "numbers"


def recipe_of(written: str, where: str) -> tuple[Step, ...]:
    """Read the steps of a recipe."""
    parts = re.split(r",(?![^()]*\))", written)
    steps = tuple(_step(part, where) for part in parts)
    names = [step.name for step in steps]
    if "keep" in names and len(names) > 1:
        raise InvalidInput(f"{where}: {written!r}: keep stands alone.")
    if "one-hot" in names and len(names) > 1:
        raise InvalidInput(
            f"{where}: {written!r}: one-hot stands alone; a missing value is a category of its own."
        )
    if "impute" in names[1:]:
        raise InvalidInput(f"{where}: {written!r}: impute comes first.")
    if names.count("polynomial") + names.count("spline") > 1:
        raise InvalidInput(
            f"{where}: {written!r}: a column takes one of polynomial and spline, once."
        )
    return steps


def _step(written: str, where: str) -> Step:
    matched = _STEP.fullmatch(written)
    if matched is None:
        raise InvalidInput(
            f"{where}: {written.strip()!r} is not a step; write, for example, impute, standardise "
            "or "
            "spline(5)."
        )
    name = _SPELLINGS.get(matched[1], matched[1])
    if name not in STEPS:
        raise UnknownName("step of a preparation", name, STEPS)
    given = [part.strip() for part in (matched[2] or "").split(",") if part.strip()]
    return _READERS[name](name, given, f"{where}: {written.strip()!r}")


def _plain(name: str, given: list[str], where: str) -> Step:
    if given:
        raise InvalidInput(f"{where}: {name} takes nothing in brackets.")
    return Step(name)


def _impute(name: str, given: list[str], where: str) -> Step:
    flag = "indicator" in given
    rest = [part for part in given if part != "indicator"]
    if rest in ([], ["mean"]):
        return Step(name, flag=flag)
    try:
        (number,) = map(float, rest)
    except ValueError:
        raise InvalidInput(
            f"{where}: write impute(mean), impute(0), or impute(mean, indicator)."
        ) from None
    if number != number or abs(number) == float("inf"):
        raise InvalidInput(f"{where}: impute takes a finite number.")
    return Step(name, number, flag=flag)


def _whole(part: str, least: int, most: int, where: str, what: str) -> int:
    if not part.isdigit() or not least <= int(part) <= most:
        raise InvalidInput(
            f"{where}: {what} is a whole number from {least} to {most}, not {part!r}."
        )
    return int(part)


def _polynomial(name: str, given: list[str], where: str) -> Step:
    if len(given) != 1:
        raise InvalidInput(f"{where}: write polynomial(2), with the degree.")
    return Step(name, _whole(given[0], 2, MOST_DEGREE, where, "the degree"))


def _spline(name: str, given: list[str], where: str) -> Step:
    if len(given) not in (1, 2):
        raise InvalidInput(f"{where}: write spline(5), with the number of knots.")
    degree = 3
    if len(given) == 2:
        degree = _whole(given[1], 1, 5, where, "the degree of a spline")
    knots = _whole(given[0], 2, MOST_KNOTS, where, "the number of knots")
    return Step(name, knots, degree)


def _one_hot(name: str, given: list[str], where: str) -> Step:
    flag = "drop-first" in given
    rest = [part for part in given if part != "drop-first"]
    if len(rest) > 1:
        raise InvalidInput(f"{where}: write one-hot, one-hot(10) or one-hot(10, drop-first).")
    if not rest:
        return Step(name, flag=flag)
    least = _whole(rest[0], 1, 10**9, where, "the least number of rows")
    return Step(name, least, flag=flag)


_READERS = {
    "standardise": _plain,
    "min-max": _plain,
    "keep": _plain,
    "impute": _impute,
    "polynomial": _polynomial,
    "spline": _spline,
    "one-hot": _one_hot,
}
