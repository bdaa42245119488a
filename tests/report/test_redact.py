"""People in images: with ``--redact TAG``, nothing that leaves this machine has their pixels, or texts about them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import ne
from pathlib import Path
from typing import Any

import pytest
from people_runs import CASES, OPEN, WORD, found, people_run
from report_studio import Studio
from typer.testing import CliRunner, Result

from visioneval import UsageError, compare, load_run, read_records, track
from visioneval.analysis.redaction import REDACTED
from visioneval.cli import app
from visioneval.export import mlflow
from visioneval.export.tracked import TrackedEntry, TrackedRun
from visioneval.report.html import report
from visioneval.suite.tracking import MlflowTracking

HIDDEN = {WORD, "pixels"}
SHOWN = {OPEN, "open pixels"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs whose suites tag people, and between them one whose suite does not."""
    root = tmp_path_factory.mktemp("people")
    people_run(root, "first", day=1)
    people_run(root, "untagged", tagged=False, day=2)
    people_run(root, "second", day=3)
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    shutil.copytree(made / "runs", tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def visioneval(words: str, *more: str) -> Result:
    result = CliRunner().invoke(app, [*words.split(), *more])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


COMMANDS = [
    ("report first --output out --trust-suite", HIDDEN | SHOWN),
    ("report first --single-file --output out/report.html --trust-suite", HIDDEN | SHOWN),
    ("report first --case open --case face --output out --trust-suite", HIDDEN | SHOWN),
    ("report first@other --output out --trust-suite", HIDDEN | SHOWN),
    ("site --output out --trust-suite", HIDDEN | SHOWN),
    ("export first --output out/cells.csv", {WORD, OPEN}),
    ("export first --output out/cells.jsonl", {WORD, OPEN}),
    ("export first --output out/cells.parquet", {WORD, OPEN}),
    ("compare first@steady second@other --html out/page.html", HIDDEN | SHOWN),
    ("compare first@steady second@other --markdown out/comment.md --junit out/junit.xml", {WORD, OPEN}),
    ("compare first@steady second@other --markdown out/comment.md --thumbnails out/thumbs", HIDDEN | SHOWN),
    ("compare untagged@steady first@other --markdown out/comment.md --thumbnails out/thumbs", HIDDEN | SHOWN),
    ("compare first@steady second@other --json", {WORD, OPEN}),
    ("compare first@steady untagged@other --html out/page.html", HIDDEN | SHOWN),
    ("compare untagged@steady first@other --html out/page.html", HIDDEN | SHOWN),
]


@pytest.mark.parametrize(("words", "everything"), COMMANDS)
@pytest.mark.parametrize("flags", ["", " --redact person"])
def test_what_each_command_writes_and_prints(words: str, everything: set[str], flags: str, root: Path) -> None:
    (root / "out").mkdir()
    if words.startswith(("report first --output out", "site")):  # over what was not redacted
        shutil.rmtree(root / "out")
        visioneval(words)
    result = visioneval(words + flags)
    assert result.exit_code in (0, 1, 3), result.output
    assert found(root / "out", printed=result.output) == (everything - HIDDEN if flags else everything)


def test_a_redacted_report_that_cannot_be_written_leaves_nothing_of_an_earlier_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    visioneval("report first --output out --trust-suite")
    assert found(root / "out") == HIDDEN | SHOWN
    monkeypatch.setattr(report, "write_files", raises_os_error)
    assert visioneval("report first --output out --redact person").exit_code == 2
    assert found(root / "out") == set()


def raises_os_error(*_: Any, **__: Any) -> None:
    raise OSError("the disk is full")


@pytest.mark.parametrize("flags", ["", " --redact person"])
def test_the_page_says_that_cases_are_redacted(flags: str, root: Path) -> None:
    assert visioneval("report first --output out --trust-suite" + flags).exit_code == 0
    page = (root / "out" / "index.html").read_text(encoding="utf-8")
    assert ("cases that --redact names have no images here" in page) == bool(flags)


def test_the_flag_is_repeatable(root: Path) -> None:
    assert visioneval("report first --single-file --redact person --redact plain --trust-suite").exit_code == 0
    assert found(root / "runs" / "first" / "report.html") == set()


@pytest.mark.parametrize("words", ["report first --output out --trust-suite", "site --output out --trust-suite"])
def test_a_case_can_be_named_by_its_id(words: str, root: Path) -> None:
    people = ("face", "steps/2", "film", "refusal", "broken")  # a turn names its case
    assert visioneval(words, *(f"--redact=case:{name}" for name in people)).exit_code == 0
    of_people = found(root / "out")
    assert visioneval(f"{words} --redact case:open").exit_code == 0
    assert (of_people, found(root / "out")) == (SHOWN, HIDDEN)
    result = visioneval(f"{words} --redact case:opne")
    assert (result.exit_code, result.stderr) == (
        2,
        "--redact 'case:opne': there is no such case (did you mean 'case:open'?)\n",
    )


@pytest.mark.parametrize(
    "words",
    [
        "report first",
        "site --output out",
        "export first",
        "export first --to mlflow --option uri=http://tracker.example",
        "compare first second",
        "merge first second --run-id merged",
    ],
)
def test_an_unknown_tag_is_refused_before_anything_is_written(words: str, root: Path) -> None:
    before = sorted(root.rglob("*"))
    result = visioneval(words, "--redact", "persn")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1] == "--redact 'persn': no case has this tag (did you mean 'person'?)"
    assert sorted(root.rglob("*")) == before


def test_a_tag_of_some_runs_of_a_site_or_of_one_side_is_known(root: Path) -> None:
    people_run(root, "third", tagged=False, day=4)
    result = visioneval("site --output out --trust-suite --redact person")
    assert (result.exit_code, result.stderr) == (0, "")
    assert found(root / "out" / "compare" / "third.html") == SHOWN  # two runs without the tag, which others have
    assert visioneval("compare untagged third --redact person").exit_code == 2


def test_numbers_verdicts_and_gates_are_those_of_the_run(root: Path) -> None:
    whole, redacted = load_run("first"), load_run("first", redact=["person"])
    texts = {"failing", "alignments", "failure_tags", "models"}
    assert redacted.summary.model_dump(exclude=texts) == whole.summary.model_dump(exclude=texts)
    assert [model.metrics for model in redacted.summary.models] == [model.metrics for model in whole.summary.models]
    for before, after in zip(whole.records, redacted.records, strict=True):
        assert (after.verdict, after.scores, after.failed_rules, after.tags, after.prompt) == (
            before.verdict, before.scores, before.failed_rules, before.tags, before.prompt
        )  # fmt: skip
        assert (after == before) is (before.test_id == "open")
    a, b = (compare("first@steady", "second@other", redact=tags) for tags in ((), ("person",)))
    assert [(gate.state, gate.message) for gate in a.gates] == [(gate.state, gate.message) for gate in b.gates]
    assert a.comparison.metrics == b.comparison.metrics


@pytest.mark.slow
def test_numbers_of_every_kind_of_grader_stay(made_studio: Studio) -> None:
    """Of panels, votes, questions, alignments, diversity, pairs and ERRORs: a summary is made from what is left."""
    redacted_cells = 0
    for path in sorted((made_studio.folder / "runs").glob("*/run.json")):
        whole = load_run(path.parent)
        tags = sorted({tag for case in whole.info.suite.cases for tag in case.tags})
        redacted = load_run(path.parent, redact=tags)
        redacted_cells += sum(map(ne, whole.records, redacted.records))
        a, b = whole.summary, redacted.summary
        texts = {"failing", "alignments", "failure_tags", "models", "same_question"}
        assert a.model_dump(exclude=texts) == b.model_dump(exclude=texts)
        for one, other in zip(a.models, b.models, strict=True):
            assert one.model_copy(update={"failure_tags": {}}) == other.model_copy(update={"failure_tags": {}})
        for one, other in zip(a.same_question, b.same_question, strict=True):
            assert one.model_dump(exclude={"contradicted"}) == other.model_dump(exclude={"contradicted"})
        for one, other in zip(a.alignments, b.alignments, strict=True):
            assert (one.score, len(one.gaps)) == (other.score, len(other.gaps))
        for one, other in zip(a.failing, b.failing, strict=True):
            assert [*one.explanations] == [*other.explanations]
    assert redacted_cells > 200


def test_what_is_left_of_a_redacted_cell(root: Path) -> None:
    cells = {cell.test_id: cell for cell in load_run("first@other", redact=["person"]).records}
    face = cells["face"]
    assert (face.artifact_path, face.reply_path, face.reply_note, face.base_path) == (*[REDACTED] * 3, None)
    assert (face.metadata, face.run_params) == ({}, {"seed": 3, "path": REDACTED})
    assert face.reasons == {"look": REDACTED, "alignment": REDACTED}
    assert face.failure_tags == ()
    look, alignment, asked = face.graders
    assert look.error == REDACTED
    assert look.details == {
        "judge_verdict": REDACTED,
        "source": REDACTED,
        "coverage": REDACTED,
        "read": [REDACTED, "repaired"],
        "votes": {"look": [True, REDACTED]},
    }
    assert alignment.details == {"gaps": [REDACTED]}
    assert alignment.judges[0].scores == {"alignment": 70}
    assert asked.details["questions"] == [{"id": "q1", "question": "Is it red?", "type": "color", "score": 0}]
    assert asked.details["prompt_sha256"] == "a" * 64
    assert cells["steps/2"].base_path == REDACTED
    assert (cells["refusal"].reasons, cells["refusal"].failure_tags) == ({"refused": REDACTED}, ("refused",))
    error = cells["broken"].error
    assert error is not None
    assert (error.stage, error.kind, error.message) == ("grade", "unmeasured", REDACTED)


def test_an_export_can_be_compared(root: Path) -> None:
    assert visioneval("export second --output cells.jsonl --redact person").exit_code == 0
    shown = visioneval("compare first cells.jsonl --json --redact person")
    assert {pair["same_output"] for pair in json.loads(shown.stdout)["changes"] if pair["a"]["artifact_path"]} == {True}


def test_a_tag_of_cases_that_are_not_compared_is_known_all_the_same(root: Path) -> None:
    for name in ("first", "second"):
        assert visioneval(f"export {name} --output {name}.jsonl").exit_code == 0
    whole = visioneval("compare first.jsonl second.jsonl --case open --redact person")
    assert whole.exit_code != 2, whole.output
    unknown = visioneval("compare first.jsonl second.jsonl --case open --redact persn")
    assert (unknown.exit_code, unknown.stdout) == (2, "")


def test_a_baseline_keeps_no_text_but_errors(root: Path) -> None:
    assert visioneval("baseline set first --partial").exit_code == 0
    for flags, expected in (("", {WORD, OPEN}), (" --redact person", {OPEN})):
        result = visioneval(f"compare baseline untagged --json{flags}")
        assert found(printed=result.output) == expected


class Folder:
    """A tracker that writes what it gets into a folder."""

    def __init__(self, run: TrackedRun, target: Path) -> None:
        self.run, self.target = run, target

    def send(self, entry: TrackedEntry, folder: Path) -> None:
        target = self.target / (entry.label or "whole")
        target.mkdir(parents=True)
        (target / "entry.txt").write_text(repr(entry))
        if entry.label is None:
            self.run.write_files(target)
        elif self.run.cells is not None:
            for at, (_, image, *texts) in enumerate(self.run.cells.with_images(entry.label, lambda data: data)[1]):
                (target / f"{at}.webp").write_bytes(image or b"")
                (target / f"{at}.txt").write_text(repr(texts))

    def finish(self) -> str:
        return "sent"


@pytest.fixture
def tracker(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    @contextmanager
    def connect(_: Any, run: TrackedRun) -> Iterator[Folder]:
        yield Folder(run, root / "sent")

    monkeypatch.setattr(mlflow, "connect", connect)
    monkeypatch.setattr(MlflowTracking, "missing_client", None)
    return root / "sent"


@pytest.mark.parametrize(("tags", "expected"), [((), HIDDEN | SHOWN), (("person",), SHOWN)])
def test_what_a_tracker_gets(tags: Sequence[str], expected: set[str], tracker: Path, root: Path) -> None:
    flags = [word for tag in tags for word in ("--redact", tag)]
    assert visioneval("export first --to mlflow", *flags).exit_code == 0
    assert found(tracker) == expected
    shutil.rmtree(tracker)
    track(load_run("first", redact=tags), to="mlflow")
    assert found(tracker) == expected


CODE = f"""\
from visioneval.graders.base import Grade


class Look:
    def __init__(self, config):
        pass

    async def grade(self, context):
        word = "{OPEN}" if context.case.id == "open" else "{WORD}"
        return Grade(scores={{"look": False}}, reasons={{"look": word}}, failure_tags=(word,), details={{"seen": word}})
"""


@pytest.fixture
def suite(root: Path) -> Path:
    """A suite with a grader that says what it sees, and a tracker."""
    (root / "own.py").write_text(CODE)
    document = {
        "name": "people",
        "cases": [{"id": "face", "prompt": "a face", "tags": ["person"]}, {"id": "open", "prompt": "a tree"}],
        "models": [{"provider": "mock"}],
        "graders": [{"key": "look", "type": "own:Look", "writes": {"look": {"type": "bool"}}}],
        "verdict": ["look"],
        "tracking": {"to": "mlflow", "uri": "http://tracker.example"},
    }
    path = root / "suite.yaml"
    path.write_text(json.dumps(document))
    return path


REPORTS = "--markdown out/run.md --junit out/junit.xml --full"


@pytest.mark.parametrize(("flags", "expected"), [("", {WORD, OPEN}), ("--redact person", {OPEN})])
def test_what_a_run_in_ci_prints_writes_and_tracks(
    flags: str, expected: set[str], suite: Path, tracker: Path, root: Path
) -> None:
    (root / "out").mkdir()
    shutil.rmtree(root / "runs")
    result = visioneval(f"run suite.yaml --trust-suite --run-id whole {REPORTS} {flags}")
    assert result.exit_code == 1, result.output
    assert found(root / "out", tracker, printed=result.output) == expected
    assert (root / "out" / "junit.xml").read_text().count("[[ATTACHMENT|") == (1 if flags else 2)
    assert found(root / "runs" / "whole") >= {WORD, OPEN}  # the run itself stays as it is
    assert (f"{WORD}" in visioneval(f"run suite.yaml --trust-suite --json {flags}").stdout) is (not flags)
    shutil.rmtree(tracker)
    result = visioneval(f"grade whole --trust-suite --run-id again {REPORTS} {flags}")
    assert found(root / "out", tracker, printed=result.output) == expected
    for number in (1, 2):
        visioneval(f"run suite.yaml --trust-suite --run-id shard-{number} --shard {number}/2")
    result = visioneval(f"merge shard-1 shard-2 --run-id merged {REPORTS} {flags}")
    assert result.exit_code == 1, result.output
    assert found(root / "out", printed=result.output) == expected


def test_the_hint_of_a_tracker_that_is_down_redacts_too(
    suite: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MlflowTracking, "missing_client", "mlflow is down")
    shown = visioneval("run suite.yaml --trust-suite --redact person").stderr
    assert "--to mlflow --option uri=http://tracker.example --redact person\n" in shown


def test_a_run_that_is_redacted_stays_so_in_a_tracker(tracker: Path, root: Path) -> None:
    track(load_run("first", redact=["person"]), to="mlflow", redact=["plain"])
    assert found(tracker) == set()


@pytest.mark.parametrize("words", ["run suite.yaml", "grade first --suite suite.yaml"])
def test_a_run_with_an_unknown_tag_begins_nothing(words: str, suite: Path, root: Path) -> None:
    before = sorted(path.name for path in (root / "runs").iterdir())
    result = visioneval(f"{words} --trust-suite --redact persn")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--redact 'persn': no case has this tag (did you mean 'person'?)" in result.stderr
    assert sorted(path.name for path in (root / "runs").iterdir()) == before


def test_lists_are_lists(root: Path) -> None:
    with pytest.raises(UsageError, match="redact must be lists of strings"):
        load_run("first", redact="person")
    with pytest.raises(UsageError, match="redact must be lists of strings"):
        compare("first", "second", redact="person")
    with pytest.raises(UsageError, match="redact must be lists of strings"):
        track(load_run("first"), to="mlflow", redact="person")


def test_the_planted_runs_have_each_kind_of_cell(root: Path) -> None:
    assert {record.test_id for record in read_records(root / "runs" / "first")} == set(CASES)
    assert found(root / "runs" / "first", root / "runs" / "untagged") == HIDDEN | SHOWN
