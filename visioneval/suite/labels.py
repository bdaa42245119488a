"""The questions that raters answer about the cells of a run, and which answers are valid; preset sets of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from visioneval.suite.case import Name, Text
from visioneval.suite.files import FilePath
from visioneval.types import Frozen, Metric, TaskType, declared_word, plain_word, repeated_word, text_or_list

QuestionType = Literal["yes_no", "one_of", "scale", "tags", "text"]
LabelPreset = Literal["ui", "marketing", "try_on", "logo"]
VERDICT = "verdict"
"""As the ``metric`` of a question: the cell's verdict, where yes means PASS."""
WHY = ".why"
"""The free-text reason for the answer to a pair is stored as an answer to ``<key>.why``."""
MAX_TEXT = 10_000
MAX_STEPS = 1000
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


_Several = Annotated[tuple[Text, ...], Field(min_length=1)]
MetricNames = Annotated[
    Annotated[Text, Tag("constrained-str")] | Annotated[_Several, Tag("list")], Discriminator(text_or_list)
]
"""One metric or several."""


class LabelQuestion(Frozen):
    """A question about one image."""

    key: Name = Field(description="Its name in `labels.jsonl`, unique.")
    ask: Text = Field(description="The text that the rater reads.")
    type: QuestionType = Field(description="What raters answer with. `tags`: any of the choices, or none.")
    choices: tuple[Annotated[Text, Field(max_length=200), AfterValidator(plain_word)], ...] = Field(
        default=(), description="The choices, for `one_of` and `tags`."
    )
    scale: tuple[float, float] | None = Field(
        default=None,
        description="Both ends, for `scale`: whole numbers unless `step` is set, at most 1,000 steps. For a metric of "
        "a rubric, inside the scale of the rubric.",
    )
    step: Annotated[float, Field(gt=0)] = Field(default=1.0, description="The step of a scale.")
    ends: tuple[Text, Text] | None = Field(
        default=None,
        exclude_if=lambda ends: ends is None,
        description="What the ends of a scale mean, such as `[unclear, clear at once]`. Default: least and most.",
    )
    metric: MetricNames | None = Field(
        default=None,
        description="For `yes_no`, `scale` and `one_of`: the metric that measures the same thing, a list of such "
        "metrics, or `verdict` (PASS is yes). `agreement` compares each with the raters.",
    )

    tasks: tuple[TaskType, ...] = Field(default=(), description="Only cells of these tasks. Default: all.")

    @model_validator(mode="after")
    def _check_choices(self) -> Self:
        has_choices = self.type in ("one_of", "tags")
        if has_choices and len(self.choices) < (2 if self.type == "one_of" else 1):
            raise ValueError(f"a question of type {self.type} needs 'choices'")
        if self.choices and not has_choices:
            raise ValueError(f"'choices' needs the type one_of or tags, not {self.type}")
        if (duplicate := repeated_word(self.choices)) is not None:
            raise ValueError(f"choices: {duplicate!r} is listed twice: answers are read in any case")
        return self

    @model_validator(mode="after")
    def _check_scale(self) -> Self:
        if self.type != "scale":
            for name in ("scale", "ends"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name!r} needs the type scale, not {self.type}")
            return self
        if self.scale is None:
            raise ValueError("a question of type scale needs 'scale', such as [1, 5]")
        low, high = self.scale
        if low >= high:
            raise ValueError(f"scale: {low:g} is not less than {high:g}")
        if (high - low) / self.step > MAX_STEPS:
            raise ValueError(f"the scale has more than {MAX_STEPS} steps: use a larger 'step'")
        return self

    @model_validator(mode="after")
    def _check_metric(self) -> Self:
        if self.metric is not None and self.type not in ("yes_no", "scale", "one_of"):
            raise ValueError(f"'metric' needs a question of type yes_no, scale or one_of, not {self.type}")
        return self

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that measure the same thing, without duplicates; none if the question names none."""
        if self.metric is None:
            return ()
        return (self.metric,) if isinstance(self.metric, str) else tuple(dict.fromkeys(self.metric))

    @property
    def steps(self) -> tuple[int | float, ...]:
        """The values of a scale, in ascending order; empty for other types."""
        if self.scale is None:
            return ()
        low, high = self.scale
        count = int((high - low) / self.step + 1e-9) + 1
        values = (round(low + index * self.step, 9) for index in range(count))
        return tuple(int(value) if value.is_integer() else value for value in values)

    @property
    def answers_text(self) -> str:
        """The valid answers in words, such as ``yes or no`` or ``from 1 to 5``."""
        texts = {"yes_no": "yes or no", "text": "free text", "tags": f"any of: {'; '.join(self.choices)}"}
        if self.type == "scale":
            return self._range_text + (f", where {' and '.join(self.end_texts)}" if self.ends else "")
        return texts.get(self.type) or f"one of: {'; '.join(self.choices)}"

    @property
    def end_texts(self) -> tuple[str, ...]:
        """What the ends of a scale mean, such as ``1 = unclear``; empty if the question itself says it."""
        steps = [str(step) for step in self.steps]
        if not steps or (self.ends is None and {steps[0], steps[-1]} <= set(_NUMBER.findall(self.ask))):
            return ()
        low, high = self.ends or ("least", "most")
        return f"{steps[0]} = {low}", f"{steps[-1]} = {high}"

    def in_order(self, value: Any) -> Any:
        """An answer as it is stored: a choice as declared, and tags in the order of the suite.

        Another value is unchanged, for ``answer_problem`` to reject.
        """
        if self.type == "one_of":
            return declared_word(value, self.choices)
        if isinstance(value, list | tuple):
            value = [declared_word(tag, self.choices) for tag in value]
        is_valid = isinstance(value, list) and all(isinstance(tag, str) and tag in self.choices for tag in value)
        return tuple(sorted(value, key=self.choices.index)) if is_valid else value

    def answer_problem(self, answer: Any) -> str | None:
        """Why a value is not a valid answer; ``None`` if it is valid. A missing answer is always valid."""
        if answer is None:
            return None
        if self.type != "tags":
            problem = self._value_problem(answer)
            return f"{answer!r:.60} is {problem}" if problem else None
        if isinstance(answer, str) or not isinstance(answer, Sequence):
            return f"{answer!r:.60} is not a list of tags"
        if unknown := [tag for tag in answer if tag not in self.choices]:
            return f"{unknown[0]!r:.60} is not one of {', '.join(self.choices)}"
        return "a tag is listed twice" if len(set(answer)) < len(answer) else None

    def _value_problem(self, answer: Any) -> str | None:
        if self.type == "yes_no":
            return None if isinstance(answer, bool) else "not yes or no"
        if self.type == "scale":
            is_number = isinstance(answer, int | float) and not isinstance(answer, bool)
            return None if is_number and self._is_step(answer) else f"not on the scale {self._range_text}"
        if self.type == "one_of":
            return None if answer in self.choices else f"not one of {', '.join(self.choices)}"
        if not isinstance(answer, str) or not answer.strip():
            return "not text"
        return None if len(answer) <= MAX_TEXT else f"longer than {MAX_TEXT:,} characters"

    def _is_step(self, value: float) -> bool:
        low, high = self.scale or (0.0, 0.0)
        steps = (value - low) / self.step
        return low - 1e-6 <= value <= high + 1e-6 and abs(steps - round(steps)) * self.step < 1e-6

    @property
    def _range_text(self) -> str:
        low, high = self.steps[0], self.steps[-1]
        return f"from {low} to {high}" + ("" if self.step == 1 else f" in steps of {self.step:g}")


class LabelPair(Frozen):
    """A question about two images of one case. The answer is one image or a tie, with a reason."""

    key: Name = Field(description="Its name in `labels.jsonl`, unique.")
    ask: Text = Field(description="The text that the rater reads.")


class Labels(Frozen):
    """The questions for raters."""

    preset: LabelPreset | None = Field(
        default=None,
        description="A set of questions. `questions` and `pairs` add to it, or replace those with the same key.",
    )
    questions: tuple[LabelQuestion, ...] = Field(default=(), description="Questions about one output.")
    pairs: tuple[LabelPair, ...] = Field(
        default=(), description="Questions about two outputs of a case, answered `a`, `b` or `tie`."
    )
    anchors: FilePath | None = Field(
        default=None,
        description="A file of agreed answers in the format of `labels.jsonl`. Each session starts with them.",
    )

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if not self.questions and not self.pairs and self.preset is None:
            raise ValueError("labels: there are no questions: add 'questions', 'pairs' or a 'preset'")
        return self

    def question(self, key: str) -> LabelQuestion | None:
        """A question by its key."""
        return next((question for question in self.questions if question.key == key), None)


def metric_mismatch(
    question: LabelQuestion, name: str, metric: Metric, rubric: tuple[float, float] | None
) -> str | None:
    """Why a question and a metric, called ``name``, cannot be compared; ``None`` if they can.

    ``rubric`` is the metric's scale if it is a rubric score.
    """
    fitting = {"bool": "yes_no", "number": "scale", "one_of": "one_of"}[metric.type]
    if question.type != fitting:
        kind = {"bool": "a yes/no metric", "number": "a numeric metric", "one_of": "one word of a list"}[metric.type]
        return f"{name!r} is {kind}: use the type {fitting}"
    if metric.type == "one_of" and set(question.choices) != set(metric.choices):
        return f"{name!r} is one of {', '.join(metric.choices)}: list the same choices"
    if rubric is not None and question.scale is not None:
        (low, high), (least, most) = question.scale, rubric
        if low < least or high > most:
            return f"the scale from {low:g} to {high:g} exceeds the rubric's scale from {least:g} to {most:g}"
    return None


_GENERATED = (TaskType.IMAGE_GENERATION, TaskType.VIDEO_GENERATION)


def _yes_no(key: str, ask: str, metric: str | None = None, tasks: tuple[TaskType, ...] = ()) -> LabelQuestion:
    return LabelQuestion(key=key, ask=ask, type="yes_no", metric=metric, tasks=tasks)


def _clarity(ask: str) -> LabelQuestion:
    ends = ("unclear", "immediately clear")
    return LabelQuestion(key="clarity", ask=ask, type="scale", scale=(1, 5), ends=ends)


def _pair(ask: str) -> tuple[LabelPair, ...]:
    return (LabelPair(key="preferred", ask=ask),)


_WHY_NOT = LabelQuestion(
    key="why_not",
    ask="If not, what is wrong with it?",
    type="tags",
    choices=("missing_section", "action_unclear", "text_unreadable", "layout_confusing"),
)
READY = {
    "ui": Labels(
        questions=(
            _yes_no("would_iterate", "Would you take this mockup into the next round of design?", VERDICT),
            _WHY_NOT,
            _clarity("How clear is it what to do on this screen?"),
        ),
        pairs=_pair("Which mockup would you take into the next round?"),
    ),
    "marketing": Labels(
        questions=(
            _yes_no("would_iterate", "Would you take this flyer into the next round?", VERDICT),
            _WHY_NOT,
            _clarity("How clear is its message at first glance?"),
        ),
        pairs=_pair("Which flyer would you publish?"),
    ),
    "try_on": Labels(
        questions=(
            _yes_no("identity_preserved", "Is it still the same person: face, hair, body and pose?"),
            _yes_no("garment_matches", "Is it the garment from the product image?"),
            LabelQuestion(
                key="garment_wrong",
                ask="If not, what is wrong with it?",
                type="tags",
                choices=("color", "pattern", "cut_or_length", "details", "logo_or_text"),
            ),
            LabelQuestion(
                key="artifacts", ask="Are there artifacts?", type="one_of", choices=("none", "minor", "major")
            ),
            _yes_no("usable_in_shop", "Could it be shown in a shop as is?", VERDICT),
        ),
        pairs=_pair("Which is more faithful to the product, with the person unchanged?"),
    ),
    "logo": Labels(
        questions=(
            _yes_no("edit_right", "Is the edit exactly as requested?", VERDICT),
            _yes_no("else_changed", "Has anything else changed?"),
            _yes_no("on_brand", "Does the result still look on brand?"),
        ),
        pairs=_pair("Which edit would you hand to the client?"),
    ),
}
BY_TASK = (
    _yes_no("as_asked", "Does it show everything that was asked for?", tasks=_GENERATED),
    _yes_no("motion", "Does it move as it should, without jumps or flicker?", tasks=(TaskType.VIDEO_GENERATION,)),
    _yes_no("edit_right", "Was the change made as requested?", tasks=(TaskType.IMAGE_EDITING,)),
    _yes_no(
        "else_changed", "Has anything else changed that should have stayed the same?", tasks=(TaskType.IMAGE_EDITING,)
    ),
)


def resolve_labels(
    labels: Labels | None, asked: Iterable[Mapping[str, LabelQuestion]], tasks: Iterable[TaskType]
) -> Labels:
    """The questions for raters: the suite's questions added to its preset, or else a default set.

    ``asked`` are the questions of each grader's judges. A question or pair of the suite replaces that of the preset
    with the same key.
    """
    if labels is None:  # usability, the questions for the tasks, those of judges, and a note
        by_key = {"usable": _yes_no("usable", "Would you use it as is?", VERDICT)}
        in_suite = frozenset(tasks)
        by_key |= {question.key: question for question in BY_TASK if in_suite & set(question.tasks)}
        for of_grader in asked:  # replaces a question of the same name, so that rater and judge can be compared
            by_key |= of_grader
        by_key.setdefault("note", LabelQuestion(key="note", ask="Any other comments?", type="text"))
        return Labels(questions=tuple(by_key.values()), pairs=_pair("Which is better?"))
    if labels.preset is None:
        return labels
    preset = READY[labels.preset]
    questions = {question.key: question for question in (*preset.questions, *labels.questions)}
    pairs = {question.key: question for question in (*preset.pairs, *labels.pairs)}
    return Labels(questions=tuple(questions.values()), pairs=tuple(pairs.values()), anchors=labels.anchors)
