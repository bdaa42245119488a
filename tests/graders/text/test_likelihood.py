"""The likelihood of a text: the sum over all its alignments with the steps of the recognizer."""

from __future__ import annotations

import math
from itertools import groupby, product
from typing import Any

import numpy as np
import pytest
from PIL import Image

from visioneval.graders.text import networks

SIGNS = ["", "A", "B", " "]
"""Blank first and space last."""
LINE = Image.new("RGB", (8, 8))


def said(path: tuple[int, ...]) -> str:
    """What a sign at each step says: equal signs in a row are one, and blanks part them."""
    return "".join(SIGNS[sign] for sign, _ in groupby(path)).replace(" ", "")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the probability of each sign at each step."""
    monkeypatch.setattr(networks, "_signs", lambda: {"A": [1], "B": [2]})

    def use(probabilities: Any) -> None:
        monkeypatch.setattr(networks, "_steps", lambda line: np.asarray(probabilities, np.float32))

    return use


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_it_is_the_sum_over_all_alignments(steps: Any, count: int) -> None:
    probabilities = np.random.default_rng(count).dirichlet(np.ones(4), count)
    steps(probabilities)
    sums: dict[str, float] = {}
    for path in product(range(4), repeat=count):
        # a space parts equal characters as a blank does
        text = said(tuple(0 if sign == 3 else sign for sign in path))
        sums[text] = sums.get(text, 0) + math.prod(probabilities[step][sign] for step, sign in enumerate(path))
    for text in ("", "A", "B", "AA", "AB", "BA", "ABA", "ABB", "AAA", "BABA"):
        wanted = sums.get(text, 0.0)
        found = networks.log_likelihood(LINE, text)
        assert found == (-math.inf if not wanted else pytest.approx(math.log(wanted), abs=1e-5)), text
    assert sum(sums.values()) == pytest.approx(1)


def test_a_text_that_needs_more_steps_than_there_are_is_impossible(steps: Any) -> None:
    steps([[0.2, 0.4, 0.4, 0]] * 2)
    assert networks.log_likelihood(LINE, "AB") > -math.inf
    assert networks.log_likelihood(LINE, "AA") == -math.inf, "equal characters need a blank between them"
    assert networks.log_likelihood(LINE, "ABA") == -math.inf


def test_a_character_that_the_model_does_not_know_is_impossible(steps: Any) -> None:
    steps([[0.2, 0.4, 0.4, 0]] * 5)
    assert networks.log_likelihood(LINE, "A") > -math.inf
    assert networks.log_likelihood(LINE, "AÑ") == -math.inf


def test_long_lines_do_not_underflow(steps: Any) -> None:
    steps([[0.2, 0.4, 0.4, 0]] * 4000)
    assert -8000 < networks.log_likelihood(LINE, "AB" * 400) < 0
