"""The configuration of the mock provider, and the graders that detect its flaws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import ValidationError

from visioneval.suite.cases.case import Size
from visioneval.suite.entries.providers import GeneratingProvider
from visioneval.suite.loading.messages import explain
from visioneval.types import Frozen, TaskType

Flaw = Literal["none", "typo", "missing_line", "extra_text", "spill", "drift", "blank", "wrong_size"]

_NONE: frozenset[str] = frozenset()
_TEXT = frozenset({"text"})
_PROPERTIES = frozenset({"properties"})
_LOCALITY = frozenset({"locality"})

SEEN_BY: Mapping[TaskType, Mapping[Flaw, frozenset[str]]] = {
    TaskType.IMAGE_GENERATION: {
        "none": _NONE,
        "typo": _TEXT,
        "missing_line": _TEXT,
        "extra_text": _TEXT,
        "spill": _NONE,
        "drift": _NONE,
        "blank": _TEXT | _PROPERTIES,
        "wrong_size": _PROPERTIES,
    },
    TaskType.IMAGE_EDITING: {
        "none": _NONE,
        "typo": _TEXT,
        "missing_line": _TEXT,
        "extra_text": _TEXT | _LOCALITY,
        "spill": _LOCALITY,
        "drift": _LOCALITY,
        "blank": _TEXT | _PROPERTIES | _LOCALITY,
        "wrong_size": _PROPERTIES | _LOCALITY,
    },
}
"""The grader types that detect a flaw, if the case gives them something to measure.

``text`` needs the line in ``expect.text.required``, and for ``extra_text`` either a forbidden line or
``extra: forbid``. ``properties`` needs ``expect.size`` or ``expect.aspect_ratio`` to see ``wrong_size``. ``locality``
needs an editable mask. A flaw with nothing to act on, such as a typo where the case has no copy, renders as ``none``.
"""


class MockParams(Frozen):
    """The parameters of a mock."""

    model: Literal["mock"] = "mock"
    flaw: Flaw = "none"
    size: Size = "1024x1024"
    """Of a generation; an edit keeps the size of its base image."""
    seed: int = 0


class MockProvider(GeneratingProvider):
    """A stand-in that renders plain layouts. It is not a model; it shows that graders and rules work."""

    stand_in: ClassVar[bool] = True
    is_free: ClassVar[bool] = True

    provider: Literal["mock"]

    def param_problems(self, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        try:
            MockParams.model_validate(params)
        except ValidationError as error:
            for part in error.errors(include_url=False):
                yield str(part["loc"][0]), explain(part, MockParams.model_json_schema())
