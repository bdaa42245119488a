"""Preset questions for raters: a set for each workflow, and the default questions of a suite without ``labels``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.labels import VERDICT, LabelPair, LabelQuestion, Labels
from visioneval.types import TaskType

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
_BY_TASK = (
    _yes_no("as_asked", "Does it show everything that was asked for?", tasks=_GENERATED),
    _yes_no("motion", "Does it move as it should, without jumps or flicker?", tasks=(TaskType.VIDEO_GENERATION,)),
    _yes_no("edit_right", "Was the change made as requested?", tasks=(TaskType.IMAGE_EDITING,)),
    _yes_no(
        "else_changed", "Has anything else changed that should have stayed the same?", tasks=(TaskType.IMAGE_EDITING,)
    ),
)


def resolve_labels(labels: Labels | None, graders: Sequence[BaseGrader], tasks: Iterable[TaskType]) -> Labels:
    """The questions for raters: the suite's questions added to its preset, or else a default set.

    A question or pair of the suite replaces the preset's one with the same key.
    """
    if labels is None:
        return _default(graders, frozenset(tasks))
    if labels.preset is None:
        return labels
    preset = READY[labels.preset]
    questions = {question.key: question for question in (*preset.questions, *labels.questions)}
    pairs = {question.key: question for question in (*preset.pairs, *labels.pairs)}
    return Labels(questions=tuple(questions.values()), pairs=tuple(pairs.values()), anchors=labels.anchors)


def _default(graders: Sequence[BaseGrader], tasks: frozenset[TaskType]) -> Labels:
    """Usability, the questions for the tasks, the rubrics' questions, and a note."""
    questions = {"usable": _yes_no("usable", "Would you use it as is?", VERDICT)}
    questions |= {question.key: question for question in _BY_TASK if tasks & set(question.tasks)}
    for grader in graders:
        questions |= (
            grader.label_questions
        )  # replaces a question of the same name, so that rater and judge can be compared
    questions.setdefault("note", LabelQuestion(key="note", ask="Any other comments?", type="text"))
    return Labels(questions=tuple(questions.values()), pairs=_pair("Which is better?"))
