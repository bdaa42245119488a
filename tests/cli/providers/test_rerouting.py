"""Replies from another model than the one that was asked."""

from __future__ import annotations

import pytest
from tables import rows_of
from toys import Toy

from visioneval.analysis.sides import is_same_model

rows = rows_of(__file__)


@pytest.mark.parametrize(("asked", "answered", "is_same"), rows("a_dated_snapshot_is_the_same_model"))
def test_a_dated_snapshot_is_the_same_model(asked: str, answered: str, is_same: bool) -> None:
    assert is_same_model(asked, answered) is is_same


JUDGE = """
from visioneval import Reply

class Judge:
    def __init__(self, config):
        pass

    async def ask(self, question, about):
        return Reply(text='{"nice": true, "reason": "it is", "verdict": "PASS"}', model="eye-2-lite")
"""
RUBRIC = {"key": "look", "type": "rubric", "metrics": {"nice": {"type": "pass_fail", "description": "it is nice"}}}


def test_another_model_is_a_warning_everywhere(toy: Toy) -> None:
    (toy.folder / "eye.py").write_text(JUDGE)
    judges = {"default": {"provider": "eye:Judge", "model": "eye-2"}}
    run = ("--run-id", "r", "--markdown", "r.md")
    result = toy.run({}, {}, judges=judges, graders=[RUBRIC], verdict=["nice"], arguments=run)
    warning = "asked the model 'eye-2', but 'eye-2-lite' answered: look in 2 cells"
    assert result.exit_code == 0, result.output
    assert toy("report", "r", "--single-file", "-o", "r.html").exit_code == 0
    outputs = (result.stdout, toy("show", "r").stdout, toy("compare", "r", "r").stdout)
    files = ((toy.folder / name).read_text().replace("&#39;", "'").replace("<wbr>", "") for name in ("r.md", "r.html"))
    assert [text for text in (*outputs, *files) if warning not in " ".join(text.split())] == []
