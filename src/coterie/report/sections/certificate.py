"""The meaning of the certificate, in words and in three bars."""

from __future__ import annotations

import math

import numpy as np

from coterie.api.result import Result
from coterie.report.html import paragraph, section
from coterie.report.words import number, one_part_in
from coterie.run.certificate.document import unit_of

ORDER = 10
ROUNDING = 1e-14
"""A relative gap below this consists of rounding errors."""


def render(result: Result) -> str:
    certificate = result.certificate
    among, aside = "", ""
    if certificate.radius is not None:
        among = f" of norm at most {number(certificate.radius)}"
        norm = float(np.linalg.norm(np.asarray(result.model.coef_, float)))
        aside = (
            " (The penalty does not keep models from growing, so the bound holds only up to that "
            "norm; "
            f"this model's is {number(norm)}.)"
        )
    zero = unit_of(certificate.settings)
    fraction = one_part_in(certificate.relative_gap)
    if certificate.relative_gap < ROUNDING:
        size = "That is no more than the rounding of the computer's numbers."
    else:
        size = f"The relative gap is the gap divided by {zero}."
        if fraction:
            size = f"That is {fraction} of {zero}."
    paragraphs = (
        "A model is judged by one number, its objective: how badly it fits the data on average, "
        "plus the penalty. "
        f"Smaller is better, and this model reaches <b>{number(certificate.primal, 8)}</b>. While "
        "the parties looked "
        f"for it, they also computed a lower bound that <em>no</em> model{among} can get below: "
        f"<b>{number(certificate.dual, 8)}</b>.{aside} The smallest possible objective lies "
        "between the two, so that "
        "of this model is larger by at most the difference, the <em>gap</em>: "
        f"<b>{number(certificate.gap)}</b>. {size}",
        "You need not trust the method that found the model. Both numbers were computed from the "
        "data and the final "
        "model, and anyone with the data can compute them again with <code>coterie verify</code>. "
        "The certificate does "
        "not say how well the model predicts new cases; it says how much better any other "
        "coefficients could do, at "
        "most, on this data and by this objective.",
    )
    content = "\n".join(map(paragraph, paragraphs))
    return section(
        "What does the certificate mean?",
        f'<div class="meaning">{_scale(result)}<div class="pair">{content}</div></div>',
        id="meaning",
    )


def _scale(result: Result) -> str:
    """Three bars: the objective of a model of zeros, of this model, and the floor below every
    model.
    """
    certificate = result.certificate
    heights = (
        ("A model of zeros", certificate.primal_at_zero, "quiet"),
        ("This model", certificate.primal, "ours"),
        ("No model can be lower", certificate.dual, "floor"),
    )
    values = [value for _, value, _ in heights]
    drawable = all(math.isfinite(value) and value >= 0 for value in values)
    if not drawable or not certificate.primal_at_zero:
        return ""
    most = max(values)
    rows = "".join(
        f'<div class="{kind}"><dt>{name}</dt><dd><i style="width:{100 * value / most:.2f}%"></i>'
        f"<span>{number(value, 6)}</span></dd></div>"
        for name, value, kind in heights
    )
    return f'<dl class="ladder">{rows}</dl>'
