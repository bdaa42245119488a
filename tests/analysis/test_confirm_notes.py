"""What ``compare --confirm`` prints about its new samples is in the JSON, the JUnit XML and the result of the API."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest
from fake_api import Script
from suite_runner import SuiteRunner
from test_confirm import Answers, two_runs

import visioneval as ve

pytestmark = pytest.mark.slow


@pytest.fixture
def answers(script: Script) -> Answers:
    return Answers(script)


def notes_of(runner: SuiteRunner, *flags: str) -> tuple[list[str], str]:
    """The notes of a comparison in JSON, which JUnit repeats, and what it prints on stderr."""
    path = runner.folder / "notes.xml"
    result = runner("compare", "a", "b", "--runs", str(runner.out), "--json", "--junit", str(path), *flags)
    notes: list[str] = json.loads(result.stdout)["notes"]
    assert [item.text for item in ET.parse(path).iter("system-out")] == ["\n".join(notes)] * bool(notes)
    return notes, result.stderr


@pytest.mark.parametrize(
    ("fail_on", "used"),
    [
        (["must_pass"], ["used 3 of 4 new samples that would confirm every case"]),
        (["must_pass", "pass_rate:0.9"], ["used 3 of 8 new samples that would confirm every case"]),
    ],
)
def test_what_was_confirmed_is_in_every_format(
    runner: SuiteRunner, answers: Answers, fail_on: list[str], used: list[str]
) -> None:
    two_runs(runner, answers)
    gates = [word for gate in fail_on for word in ("--fail-on", gate)]
    assert notes_of(runner, *gates)[0] == []
    answers.set(boat="PPP")
    notes, printed = notes_of(runner, "--confirm", "4", *gates)
    assert "confirming 1 case in doubt with up to 4 new samples each" in notes[0]
    assert notes[1:] == [*used, "new samples: 3 pass 0 fail 0 error, 0.1500 USD"]
    assert printed.splitlines() == notes
    assert notes_of(runner, "--confirm", "4", *gates)[0] == used, "nothing new was generated"
    assert notes_of(runner, *gates)[0] == ["B has new samples from an earlier --confirm: not used here"]
    result = ve.compare("a", "b", runs=runner.out, confirm=4, fail_on=fail_on)
    assert list(result.confirmation_notes) == used
