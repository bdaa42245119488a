"""People in images (``--redact TAG``): what is left of their cases where it leaves this machine. Pure.

Records, cells and cases are redacted as they are read, so that every page, file and tracker gets the same. Numbers,
verdicts and what the suite itself says stay, so that no rate, gate or exit code depends on it.

Of a case with the tag:

- left out, `(redacted)`: images, videos, masks, crops, difference maps, their names; replies; reasons, gaps, answers,
  failure tags (not `refused`), error texts, OCR, other texts of graders; `metadata`
- stays: id, tags, prompt, criteria, expectations, rules, questions; verdict, scores (also words), failed rules, error
  kinds; size, format, hash; votes, time, cost
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from visioneval.analysis.sides import Cell, PooledCell, Side
from visioneval.errors import UsageError, did_you_mean
from visioneval.records.model import CellError, GraderRecord, Record, RunInfo
from visioneval.records.reader import Records
from visioneval.suite.case import TestCase
from visioneval.suite.entries.graders import QUESTIONS, options_of_type
from visioneval.suite.filters import chain_of
from visioneval.suite.model import Suite
from visioneval.types import Score

REDACTED = "(redacted)"
"""What replaces a text or the path of an image. No file has this name."""
LEFT_OUT = "left out by --redact"
"""What is shown in place of an image."""
REFUSED = "refused"
_PLAIN = re.compile("PASS|FAIL|pinned|generated|extracted|repaired|[0-9a-f]{64}")
"""Texts in details that say nothing of an image."""
_DETAILS = ("judge_verdict", "prompt_sha256", "source", "coverage", "dropped", "read")
"""The details from which a summary is made, beside votes, gaps and questions."""
_ASKED = ("id", "question", "type")
_OF_FILES = ("path", "row", "problem")
"""The parameters that an existing output is recorded with."""
CASE = "case:"
"""Begins a value of ``--redact`` that is the id of a case; a tag can begin with it too."""
Tagged = tuple[str, Sequence[str], str | None]
"""A case: its id, its tags, and the case whose images it uses (``output_of``)."""


@dataclass(frozen=True, slots=True)
class Redaction:
    """The cases that are redacted: those with one of the tags, all turns of a case, and those that share an image.

    It covers the ``cases`` of everything that is written together: what one run says of a case holds in all of them.
    """

    tags: frozenset[str] = frozenset()
    cases: frozenset[str] = frozenset()

    @classmethod
    def by(cls, values: Iterable[str] | None) -> Redaction:
        """Of the cases with these tags, none of which are known yet, and of those named as ``case:ID``."""
        tags = frozenset(values or ())
        return cls(tags, frozenset(chain_of(tag.removeprefix(CASE)) for tag in tags if tag.startswith(CASE)))

    def over(self, *sources: Suite | Side) -> Redaction:
        """Also of the cases of these suites, and of the runs, files and baselines that are compared."""
        if not self.tags:
            return self
        known = [case for source in sources for case in _cases(source)]
        links = [(chain_of(id_), chain_of(output_of or id_)) for id_, _, output_of in known]
        chosen = self.cases | {chain_of(id_) for id_, tags, _ in known if not self.tags.isdisjoint(tags)}
        while more := {name for link in links if not chosen.isdisjoint(link) for name in link} - chosen:
            chosen |= more
        return Redaction(self.tags, chosen)

    def covers(self, case_id: str, tags: Iterable[str]) -> bool:
        """Whether a case is redacted."""
        return chain_of(case_id) in self.cases or not self.tags.isdisjoint(tags)

    def record(self, record: Record) -> Record:
        """A record of a run as it may leave this machine."""
        if not self.covers(record.test_id, record.tags):
            return record
        texts = ("artifact_path", "base_path", "reply_path", "reply_note")
        changes: dict[str, Any] = {
            "metadata": {},
            "run_params": {name: REDACTED if name in _OF_FILES else value for name, value in record.run_params.items()},
            "graders": tuple(_grader(grader, record.scores) for grader in record.graders),
            **{name: _text(getattr(record, name)) for name in texts},
        }
        return record.model_copy(update={**changes, **_redacted_texts(record)})

    def cell(self, cell: Cell) -> Cell:
        """A cell of a comparison as it may leave this machine."""
        if not self.covers(cell.test_id, cell.tags):
            return cell
        changes = _redacted_texts(cell)
        if isinstance(cell, PooledCell):
            changes["cells"] = tuple(of_run and self.cell(of_run) for of_run in cell.cells)
        return replace(cell, artifact_path=_text(cell.artifact_path), **changes)

    def case(self, case: TestCase) -> TestCase:
        """A case without its files and metadata. It has as many images, as its task depends on that."""
        if not self.covers(case.id, case.tags):
            return case
        masks = case.masks
        if masks is not None:
            masks = masks.model_copy(update=dict.fromkeys(masks.model_dump(exclude_none=True), REDACTED))
        changes: dict[str, Any] = {
            "images": tuple(image.model_copy(update={"path": REDACTED}) for image in case.images),
            "masks": masks,
            "reference": _text(case.reference),
            "outputs": {},
            "metadata": {},
        }
        return case.model_copy(update=changes)


NOTHING = Redaction()
"""Redacts no case."""


def redacted_run(info: RunInfo, records: Records[Record], redact: Redaction) -> tuple[RunInfo, Records[Record]]:
    """A run and its records as they may leave this machine."""
    if not redact.tags:
        return info, records
    redact = redact.over(info.suite)
    return info.with_cases(redact.case), records.changed(redact.record)


def redacted_sides(a: Side, b: Side, redact: Redaction) -> tuple[Side, Side]:
    """The sides of a comparison as they may leave this machine: what either says of a case holds in both.

    Raises ``UsageError`` for a tag that no case of either has.
    """
    if not redact.tags:
        return a, b
    check_redact(redact.tags, a, b)
    change = redact.over(a, b).cell
    return replace(a, cells=a.cells.changed(change)), replace(b, cells=b.cells.changed(change))


def check_redact(tags: Iterable[str] | None, *sources: Suite | Side) -> None:
    """Raises ``UsageError`` for a tag or ``case:ID`` that no case has: a misspelled one would redact nothing."""
    if not tags:
        return
    cases = [case for source in sources for case in _cases(source)]
    known = {tag for _, of_case, _ in cases for tag in of_case}
    named = {f"{CASE}{name}" for id_, _, _ in cases for name in (id_, chain_of(id_))}
    for tag in sorted(set(tags) - known - named):
        choices, problem = (named, "there is no such case") if tag.startswith(CASE) else (known, "no case has this tag")
        raise UsageError(f"--redact {tag!r}: {problem}{did_you_mean(tag, choices)}")


def _cases(source: Suite | Side) -> Iterable[Tagged]:
    """The cases of a suite, or of a run; those of the cells of a file or a baseline."""
    if isinstance(source, Side):
        if source.info is None:
            return ((cell.test_id, cell.tags, None) for cell in source.cells)
        source = source.info.suite
    return ((case.id, case.tags, case.output_of) for case in source.cases)


def _redacted_texts(cell: Record | Cell) -> dict[str, Any]:
    """The fields of a record, or of a cell of a comparison, that say something of an image: without what they say."""
    error: CellError | None = cell.error
    names = {*cell.scores, *(grader.key for grader in cell.graders), REFUSED}
    return {
        "reasons": dict.fromkeys((name for name in cell.reasons if name in names), REDACTED),
        "failure_tags": tuple(tag for tag in cell.failure_tags if tag == REFUSED),
        "error": error and error.model_copy(update={"message": REDACTED}),
    }


def _grader(grader: GraderRecord, metrics: Mapping[str, Score]) -> GraderRecord:
    judges = tuple(
        answer.model_copy(
            update={
                "reasons": {},
                "failure_tags": (),
                "error": _text(answer.error),
                "details": _details(answer.details, metrics, grader.type),
            }
        )
        for answer in grader.judges
    )
    details = _details(grader.details, metrics, grader.type)
    return grader.model_copy(update={"error": _text(grader.error), "details": details, "judges": judges})


def _details(details: Mapping[str, Any], metrics: Mapping[str, Score], grader_type: str) -> dict[str, Any]:
    """What a summary needs: numbers, the questions to a judge, which come from the prompt alone, and votes, which
    may be words of lists in the suite."""
    options = options_of_type(grader_type)
    plain = {name: _plain(details[name]) for name in _DETAILS if name in details}
    if isinstance(votes := details.get("votes"), dict):
        plain["votes"] = {
            name: values if options.votes_in_own_words else _plain(values)
            for name, values in votes.items()
            if name in metrics
        }
    if isinstance(gaps := details.get("gaps"), list):
        plain["gaps"] = [REDACTED] * len(gaps)
    questions = details.get("questions")
    if options.kind is QUESTIONS and isinstance(questions, list):
        asked = [question for question in questions if isinstance(question, dict)]
        plain["questions"] = [
            {name: question.get(name) if name in _ASKED else _plain(question.get(name)) for name in (*_ASKED, "score")}
            for question in asked
        ]
    return plain


def _plain(value: Any) -> Any:
    """A value without what may be said of an image."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    is_plain = value is None or isinstance(value, (bool, int, float))
    return value if is_plain or (isinstance(value, str) and _PLAIN.fullmatch(value)) else REDACTED


def _text(text: str | None) -> str | None:
    return None if text is None else REDACTED
