"""Tables of lists that the code has, mostly for a page with `<!-- table: NAME -->` and `<!-- end of table -->`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from listings import listed, markdown

from visioneval import expressions, rules
from visioneval.analysis import preferences, probe, redaction
from visioneval.analysis.compare import baseline_runs, confirm, regressed
from visioneval.analysis.stats import (
    agreement,
    correlation,
    drift,
    intervals,
    prediction_powered,
    ranks,
    sequential,
    tests,
    variance,
)
from visioneval.analysis.summary.until import decide_gates
from visioneval.export import tracked
from visioneval.graders.layout import contrast
from visioneval.graders.text import alphabet
from visioneval.plugins import GRADERS, config_of
from visioneval.probing.kinds import KINDS, PROMPT_KINDS
from visioneval.providers.questions import CROWD, JUDGES, ImageLimits
from visioneval.report.differences import drift_section
from visioneval.running import until
from visioneval.suite.case import TestCase
from visioneval.suite.entries.graders import BaseGrader, CustomGrader
from visioneval.suite.files import Trust
from visioneval.suite.labels import BY_TASK, READY, LabelPair, LabelQuestion
from visioneval.suite.loading.rows import SOURCES
from visioneval.suite.loading.tables import FORMATS
from visioneval.suite.plugins import MEMBERS
from visioneval.types import TaskType


def _meanings(title: str, meanings: Mapping[str, str]) -> str:
    return markdown((title, "meaning"), [(f"`{form}`", text) for form, text in meanings.items()])


def graders() -> str:
    """Every type of grader, with what it needs."""
    rows = [(f"[{name}]({name}.md)", *_grader(config_of(GRADERS, name))) for name in GRADERS]
    return markdown(("type", "measures", "needs"), [*rows, ("[module:Class](custom.md)", *_grader(CustomGrader))])


def _grader(options: type[BaseGrader]) -> tuple[str, str]:
    fields = options.model_fields
    needs = [options.needs[""]] if "" in options.needs else []
    asked = "a judge" if "judge" in fields and fields["judge"].default else ""
    extra = next((extra for task in TaskType if (extra := _extra(options, task))), None)
    needs.append(" or ".join(filter(None, (f"the extra `{extra}`" if extra else "", asked))))
    if options.runs_code:
        needs.append("`--trust-suite`, or its package")
    text = " ".join((options.__doc__ or "").split()).replace("``", "`")
    return text, "; ".join(filter(None, needs))


def _extra(options: type[BaseGrader], task: TaskType) -> str | None:
    expect = {"text": {"required": ["x", "y"]}, "layout": [{"above": ["x", "y"]}], "codes": "none"}
    entry: dict[str, Any] = {"id": "one", "prompt": "x", "task": task, "expect": expect}
    defaults: dict[str, Any] = {name: field.get_default() for name, field in options.model_fields.items()}
    return options.model_construct(**defaults).extra_for(TestCase.model_validate(entry))


def gates() -> str:
    """The functions of a gate."""
    return _meanings("function", {**rules.RATES, **rules.OF_METRIC})


def image_limits() -> str:
    """The known limits of judges."""
    head = ("judge, by its model's name", "pixels on a side", "one image", "one request")
    return markdown(head, [_limits(limits) for _, limits in JUDGES])


def _limits(limits: ImageLimits) -> tuple[str, ...]:
    side = f"{limits.side:,}, or {limits.crowded_side:,} with more than {CROWD} images" if limits.side else ""
    return limits.judges, side, _size(limits.image_bytes), _size(limits.request_bytes)


def _size(number: int | None) -> str:
    if not number:
        return ""
    return f"{number >> 20} MiB" if number % (1 << 20) == 0 else f"{number // 1_000_000} MB"


def rater_questions() -> str:
    """The questions of each preset, and those of a suite without ``labels`` that depend on the task."""
    rows: list[tuple[str, LabelQuestion | LabelPair]] = []
    for name, labels in READY.items():
        rows += [(name, question) for question in labels.questions]
        rows += [(name, pair) for pair in labels.pairs]
    rows += [(task, question) for task in TaskType for question in BY_TASK if task in question.tasks]
    return markdown(("preset or task", "key", "answers", "question"), [_question(*row) for row in rows])


def _question(name: str, question: LabelQuestion | LabelPair) -> tuple[str, ...]:
    answers = question.answers_text if isinstance(question, LabelQuestion) else "one of two outputs, or a tie"
    compared = isinstance(question, LabelQuestion) and "verdict" in question.metrics
    return f"`{name}`", f"`{question.key}`", answers + " (compared with the verdict)" * compared, question.ask


def templates() -> str:
    """The table of graders' templates: which variables each must show a judge, and which it may use."""
    case = TestCase.model_validate({"id": "one", "prompt": "a tree", "expect": {"text": {"required": ["x"]}}})
    options: dict[str, dict[str, Any]] = {
        "rubric": {"metrics": {"fine": {"type": "pass_fail", "description": "x"}}},
        "alignment": {},
        "gecko": {"check_questions": True},
        "text": {"extract": "judge", "describe": True},
        "pairwise": {},
    }
    rows = []
    for name, given in options.items():
        grader = config_of(GRADERS, name).model_validate({"key": "k", "type": name, **given})
        contexts = dict(grader.template_contexts(case, case.prompt, variables={"vars": 1}))
        for template in grader.judge_templates(case, {"vars": 1}):
            must, known = template.must_show, contexts[template.name]
            assert {*must, *template.instead} <= known.keys()
            shown = ", ".join(f"`{variable}`" for variable in must) + (", each with its ID" if template.ids else "")
            others = ", ".join(f"`{variable}`" for variable in sorted(known.keys() - set(must)))
            option = "" if template.option == "template" else f"`{template.option}`, "
            rows.append((f"{name}: {option}`{template.name}`", shown, others))
    return markdown(("template", "must show", "may use"), rows)


def kinds_of_change() -> str:
    """The table of what ``probe`` changes."""
    rows = [(f"`{kind.name}`", kind.description, ", ".join(level.label for level in kind.levels)) for kind in KINDS]
    rows += [(f"`{name}`", description, "") for name, description in PROMPT_KINDS.items()]
    return markdown(("kind", "change", "strengths"), rows)


METHODS = ("number", "interval or test")
TABLES: Mapping[str, Callable[[], str]] = {
    "graders": graders,
    "functions of an expression": lambda: _meanings("function", expressions.MEANINGS),
    "functions of a gate": gates,
    "limits of judges": image_limits,
    "members of a class": lambda: _meanings("member", MEMBERS),
    "formats of datasets": lambda: _meanings("file", FORMATS),
    "sources of a key": lambda: _meanings("source", SOURCES),
    "questions for raters": rater_questions,
    "intervals of runs": lambda: listed(METHODS, intervals, sequential),
    "tests of comparisons": lambda: listed(METHODS, tests, variance, drift),
    "intervals of other commands": lambda: listed(
        METHODS, agreement, correlation, preferences, prediction_powered, probe, ranks
    ),
    "new samples": lambda: listed(("gate", "what is uncertain, and how new samples decide"), confirm),
    "redacted": lambda: listed(("of cases with the tag", ""), redaction),
    "decided gates": lambda: listed(("gate", "decided if"), decide_gates),
    "with until-decided": lambda: listed(("with", "what happens"), until),
    "suites that are not trusted": lambda: listed(("allowed by", "without it, a suite may not"), Trust),
    "regressed": lambda: listed(("what", "test, and its level"), regressed),
    "baselines of several runs": lambda: listed(("what", "with several runs"), baseline_runs),
    "what contrast measures": lambda: listed(("what", "how it is measured"), contrast),
    "what trackers get": lambda: listed(("entry", "gets"), tracked),
    "lines that OCR cannot read": lambda: listed(("line", "result"), alphabet),
    "columns of drift": lambda: listed(("column", "meaning"), drift_section),
}
"""By the name that a page's block has."""
