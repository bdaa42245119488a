"""Grading a cell: exceptions and invalid results of custom graders and judges become errors and never scores."""

from __future__ import annotations

from typing import Any

import pytest
from toys import LOOK, SECOND, Toy, at

from visioneval import Record

SCORES = "scores={'fine': True, 'level': 0.5}"
KEY = "sk-0123456789abcdef"
NONE = {"fine": None, "level": None}
HALF = {"fine": True, "level": None}
BAD_NAME = "the name must have only letters"
UNMEASURED: list[tuple[str, str, dict[str, Any], str]] = [
    ("raises", "internal", NONE, f"RuntimeError: the lens is broken {at('the lens is broken')}"),
    ("no_such_way", "internal", NONE, "AttributeError: "),
    ("fail(TimeoutError('no answer from my service'))", "internal", NONE, "TimeoutError: no answer from my service"),
    ("fail(SystemExit(3))", "internal", NONE, "it called exit(3)"),
    ("fail(asyncio.CancelledError())", "internal", NONE, "it cancelled itself"),
    ("fail(GraderError('too dark'))", "unmeasured", NONE, "too dark"),
    ("fail(GraderError())", "unmeasured", NONE, "GraderError"),
    ("fail(ImageError('cut'))", "unmeasured", NONE, "cut"),
    ("judge_down", "transient", NONE, "the judge is out"),
    ("fail(BudgetError('used up'))", "budget", NONE, "used up"),
    ("(None)", "internal", NONE, "it returned NoneType, not Grade"),
    ("{'fine': True}", "internal", NONE, "it returned dict, not Grade"),
    ("Grade(scores=None)", "internal", NONE, "'NoneType' object is not iterable"),
    ("nothing", "unmeasured", NONE, "fine was not measured; level was not measured"),
    ("Grade(scores={'fine': True})", "unmeasured", HALF, "level was not measured"),
    ("half", "unmeasured", HALF, "no scale in the image"),
    ("undeclared", "unmeasured", {"fine": True, "level": 0.5}, "wrote the undeclared metric 'mood'"),
    ("Grade(scores={'fine': 1, 'level': True})", "unmeasured", NONE, "fine is 1, not true or false; level is True, not a number"),
    ("Grade(scores={'fine': True, 'level': '0.5'})", "unmeasured", HALF, "level is '0.5', not a number"),
    ("Grade(scores={'fine': True, 'level': float('nan')})", "unmeasured", HALF, "level is nan, not a number"),
    ("Grade(scores={'fine': True, 'level': 7})", "unmeasured", HALF, "level is 7, outside the range 0 to 1"),
    *((f"subject.save({name!r}, b'gone')", "unmeasured", NONE, f"save({name!r}): {BAD_NAME}") for name in ("png", ".png", "png.", "../../x.png")),
]  # fmt: skip


def test_a_failed_grader_gives_neither_a_zero_nor_a_fail(toy: Toy) -> None:
    cases = [{"metadata": {"look": how}} for how, _, _, _ in UNMEASURED]
    result = toy.run(*cases, {"id": "good"}, verdict=["fine", "level >= 0.1"])
    records = toy.records
    for number, (how, kind, scores, message) in enumerate(UNMEASURED):
        record = records[f"case{number}"]
        assert record.error is not None, how
        assert (record.error.stage, record.error.kind) == ("grade", kind), how
        assert record.error.message.startswith("look: "), how
        assert (record.status, record.verdict, record.failed_rules) == ("completed", "ERROR", ()), how
        assert record.scores == scores, how
        assert message in str(record.graders[0].error), how
        assert (toy.latest / str(record.artifact_path)).read_bytes().startswith(b"\x89PNG"), how
    assert records["good"].verdict == "PASS"
    assert result.exit_code == 3
    assert "Traceback" not in result.output
    assert not (toy.folder / "x.png").exists()


def test_a_measured_fail_is_not_hidden_by_a_failed_grader(toy: Toy) -> None:
    result = toy.run(
        {"metadata": {"look": "raises", "second": "fails"}}, graders=[LOOK, SECOND], verdict=["fine", "second"]
    )
    record = toy.record
    assert (record.verdict, record.failed_rules) == ("FAIL", ("second",))
    assert record.scores == {**NONE, "second": False}
    assert record.error.message == f"look: RuntimeError: the lens is broken {at('the lens is broken')}"
    assert result.exit_code == 3  # another rule may have failed too, so more than the gate is unknown


def test_each_number_must_be_within_type_and_range(toy: Toy) -> None:
    rows: list[tuple[str, dict[str, Any], Any]] = [
        ("0", {"range": [0, 1]}, 0),
        ("1.0", {"range": [0, 1]}, 1.0),
        ("1.0000001", {"range": [0, 1]}, None),
        ("10**6", {"range": [0, None]}, 10**6),
        ("-1", {"range": [0, None]}, None),
        ("-5", {}, -5),
        ("2**64", {}, None),
        ("float('-inf')", {}, None),
        ("0", {"type": "bool"}, None),
        ("'true'", {"type": "bool"}, None),
    ]
    writes = {f"m{number}": {"type": "number", **metric} for number, (_, metric, _) in enumerate(rows)}
    how = f"Grade(scores={{{', '.join(f'{chr(39)}m{number}{chr(39)}: {value}' for number, (value, _, _) in enumerate(rows))}}})"
    toy.run({"metadata": {"look": how}}, graders=[{**LOOK, "writes": writes}], verdict=["m0 >= 0"])
    assert toy.record.scores == {f"m{number}": score for number, (_, _, score) in enumerate(rows)}
    for number, (_, _, score) in enumerate(rows):
        assert (f"m{number} is " in toy.record.error.message) == (score is None), number


def test_scores_reasons_and_tags_of_all_graders_are_combined(toy: Toy) -> None:
    first = f"Grade({SCORES}, reasons={{'fine': 'bright'}}, failure_tags=('a', 'b'))"
    second = "Grade(scores={'second': False}, reasons={'second': 'dark'}, failure_tags=('b', 'c'))"
    toy.run({"metadata": {"look": first, "second": second}}, graders=[LOOK, SECOND])
    record = toy.record
    assert record.scores == {"fine": True, "level": 0.5, "second": False}
    assert (record.reasons, record.failure_tags) == ({"fine": "bright", "second": "dark"}, ("a", "b", "c"))
    assert [(grader.key, grader.type) for grader in record.graders] == [
        ("look", "mine:Look"),
        ("second", "mine:Second"),
    ]
    assert record.error is None


RESULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "numpy": (
        "Grade(scores={'fine': np.bool_(True), 'level': np.float32(0.5)}, details={'array': np.arange(3)})",
        {"details": {"array": "[0 1 2]"}},
    ),
    "odd": (
        f"Grade({SCORES}, details={{'nan': float('nan'), 'at': Path('x'), 1: {{2}}}}, usage={{'tokens': None}}, cost_usd='much')",
        {"details": {"nan": None, "at": "x", "1": [2]}, "usage": None, "cost_usd": None},
    ),
    "usage": (f"Grade({SCORES}, usage={{'a': 'b', 'c': 2.0}})", {"usage": {"c": 2}}),
    "free": (f"Grade({SCORES}, cost_usd=0.0, usage={{'in': 5}})", {"cost_usd": 0.0, "usage": {"in": 5}}),
    "negative": (f"Grade({SCORES}, cost_usd=-0.25, usage={{'in': -5}})", {"cost_usd": None, "usage": None}),
    "infinite": (f"Grade({SCORES}, cost_usd=float('inf'))", {"cost_usd": None}),
    "true": (f"Grade({SCORES}, cost_usd=True)", {"cost_usd": None}),
    "saves": ("saves", {"details": {"map": "artifacts/saves/toy/0.look.map.png"}}),
    "secret": (f"Grade({SCORES}, details={{'a': [os.environ['SITE_TOKEN']]}})", {"details": {"a": ["***"]}}),
}  # fmt: skip


def test_results_of_custom_graders_become_plain_data(toy: Toy) -> None:
    mine = toy.folder / "mine.py"
    mine.write_text(mine.read_text() + "\nimport numpy as np\n")
    cases = [{"id": name, "metadata": {"look": how}} for name, (how, _) in RESULTS.items()]
    toy("run", toy.write(*cases), "--trust-suite", SITE_TOKEN=KEY)
    for name, (_, fields) in RESULTS.items():
        record = toy.records[name]
        assert (record.verdict, record.scores) == ("PASS", {"fine": True, "level": 0.5}), name
        (grader,) = record.graders
        assert {field: getattr(grader, field) for field in fields} == fields, name
    assert (toy.latest / RESULTS["saves"][1]["details"]["map"]).read_bytes().startswith(b"\x89PNG")


def test_reasons_and_tags_are_texts_without_secrets(toy: Toy) -> None:
    reasons = "reasons={'fine': 3, 'level': os.environ['SITE_TOKEN'] + '!'}, failure_tags='blurred'"
    failed = "fail(GraderError('with ' + os.environ['SITE_TOKEN']))"
    suite = toy.write({"metadata": {"look": f"Grade({SCORES}, {reasons})"}}, {"metadata": {"look": failed}})
    toy("run", suite, "--trust-suite", SITE_TOKEN=KEY)
    records = toy.records
    assert (records["case0"].reasons, records["case0"].failure_tags) == ({"fine": "3", "level": "***!"}, ("blurred",))
    assert records["case1"].error.message == "look: with ***"


def test_a_grader_cannot_replace_an_image_of_another(toy: Toy) -> None:
    save = "subject.save('map.png', encoded()) and Grade(scores={'second': True})"
    look = save.replace("scores={'second': True}", SCORES)
    toy.run({"metadata": {"look": look, "second": save}}, graders=[LOOK, SECOND])
    assert "save('map.png'): a grader of this cell has already saved this name" in toy.record.error.message


def test_graders_see_the_cell_but_not_the_model(toy: Toy) -> None:
    seen = (
        "{'prompt': subject.prompt, 'size': subject.requested_size, 'variables': dict(subject.variables),"
        " 'names': [name for name in dir(subject) if name[0] != '_']}"
    )
    case = {"prompt": "a boat", "metadata": {"look": f"Grade({SCORES}, details={seen})"}}
    models = [{"provider": "mine:Generate", "label": "toy", "params": {"size": "8x8"}}]
    toy.run(case, models=models, verdict=["fine", {"rule": "level > 0.1", "level": "warn"}], vars={"color": "red"})
    details = dict(toy.record.graders[0].details)
    assert not {"model", "rules"} & set(details.pop("names"))  # type: ignore[call-overload]
    assert details == {"prompt": "a boat", "size": "8x8", "variables": {"color": "red"}}


def test_the_cell_timeout_is_an_error_of_the_grader(toy: Toy) -> None:
    toy.run({"metadata": {"look": "asyncio.Event().wait()"}}, cell_timeout_s=1.0)
    assert (toy.record.error.kind, toy.record.error.message) == (
        "timeout",
        "look: exceeded the cell timeout of 1 s (cell_timeout_s)",
    )


def test_a_disk_that_is_full_stops_the_run(toy: Toy) -> None:
    mine = toy.folder / "mine.py"
    mine.write_text(mine.read_text() + "\nfrom visioneval.errors import StorageError\n")
    result = toy.run({"metadata": {"look": "fail(StorageError('the disk is full'))"}})
    assert (result.exit_code, "the disk is full" in result.stderr) == (3, True), result.output
    assert toy.info.state != "complete"


def test_only_unexpected_exceptions_are_debugged(toy: Toy) -> None:
    result = toy.run(
        {"metadata": {"look": "raises", "second": "fail(GraderError('too dark'))"}},
        graders=[LOOK, SECOND],
        arguments=("--debug",),
    )
    assert "RuntimeError: the lens is broken\n" in result.stderr
    assert result.stderr.count("Traceback") == 1
    assert "GraderError" not in result.stderr


JUDGE = """
import asyncio
from visioneval.errors import ProviderError
from visioneval.graders.measures import Measure
from visioneval.providers.base import Question, Reply
from visioneval.threads import processors

answered = threading.Event()


class Judge:
    def __init__(self, config): ...

    async def ask(self, question, about):
        assert (about.test_id, about.model_label, about.sample_index) == ("case0", "toy", 0)
        (text,) = question.parts
        if text not in ("?", "again?"):
            raise ProviderError("no: " + os.environ["TOY_KEY"] + " " + "x" * 999, kind=text)
        await asyncio.to_thread(answered.set)
        return Reply("yes", "judge-1", usage={"input_tokens": 3})


async def ask(subject, *kinds):
    for kind in kinds or ("?", "again?"):
        await subject.ask_judge("default", Question((kind,)))
    return Grade(scores={"fine": True, "level": 0.5})


async def behind_measurements(subject):
    # every slot is taken until the answer is there
    def wait():
        assert answered.wait(30)
        return Grade(scores={})
    measuring = [subject.measure(Measure(f"slow{at}", {}, wait, Grade)) for at in range(processors() + 1)]
    return (await asyncio.gather(*measuring, ask(subject)))[-1]
"""


class TestJudges:
    """Questions of a grader to its judge."""

    @staticmethod
    def run(toy: Toy, how: str, **changes: Any) -> Any:
        mine = toy.folder / "mine.py"
        mine.write_text(mine.read_text() + JUDGE)
        suite: dict[str, Any] = {
            "judges": {"default": {"provider": "mine:Judge", "api_key_env": "TOY_KEY"}},
            "graders": [{**LOOK, "judge": "default"}],
            "prices": {"mine:Judge": {"per_call": 0.25}},
            "limits": {"mine:Judge": {"max_attempts": 1}},
        }
        path = toy.write({"metadata": {"look": how}}, **{**suite, **changes})
        return toy("run", path, "--trust-suite", TOY_KEY=KEY)

    def record(self, toy: Toy, how: str, **changes: Any) -> Record:
        self.run(toy, how, **changes)
        return toy.record

    def test_usage_and_cost_are_those_of_the_judge(self, toy: Toy) -> None:
        (grader,) = self.record(toy, "ask(subject)").graders
        assert (grader.usage, grader.cost_usd, grader.cached) == ({"input_tokens": 6}, 0.5, False)
        assert grader.fingerprint.judge_model == "judge-1"

    def test_an_answer_does_not_wait_for_measurements(self, toy: Toy) -> None:
        assert self.record(toy, "behind_measurements(subject)").error is None

    @pytest.mark.parametrize(
        ("kind", "words"),
        [
            ("auth", "the judge 'default': the provider refused the API key: no: *** xxx"),
            ("quota", "the judge 'default': the quota at mine:Judge is spent: no: *** xxx"),
        ],
    )
    def test_a_refused_key_and_a_spent_quota_stop_the_run(self, toy: Toy, kind: str, words: str) -> None:
        result = self.run(toy, f"ask(subject, {kind!r})")
        assert result.exit_code == 3, result.output
        (line,) = [line for line in result.stderr.splitlines() if words in line]
        assert (kind == "quota") == line.endswith("x; add credit or raise the limit there, then resume")
        assert kind == "auth" or line.count("x") < 310
        assert toy.info.state != "complete"

    @pytest.mark.parametrize("kind", ["invalid", "rate_limit"])
    def test_another_failed_question_is_an_error_of_its_kind(self, toy: Toy, kind: str) -> None:
        error = self.record(toy, f"ask(subject, {kind!r})").error
        assert error.kind == kind
        assert error.message.startswith("look: no: *** xxx")

    def test_an_unknown_judge_is_an_error(self, toy: Toy) -> None:
        mine = toy.folder / "mine.py"
        mine.write_text(mine.read_text() + JUDGE)
        toy.run({"metadata": {"look": "ask(subject)"}})
        error = toy.record.error
        assert error.message.startswith("look: no judge 'default': set it on the grader")
