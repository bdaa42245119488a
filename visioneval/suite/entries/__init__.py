"""The entries of a suite: models, judges and graders. Here is what those with classes of other people share.

Such a class is of an installed plug-in, or ``my_package.module:Class``.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, StringConstraints, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from visioneval.plugins import MODULE_CLASS, NAME
from visioneval.types import Frozen, Metric

ClassName = Annotated[
    str,
    StringConstraints(pattern=rf"^({NAME}|{MODULE_CLASS})$", max_length=200),
    WithJsonSchema({"type": "string", "pattern": f"^{MODULE_CLASS}$", "maxLength": 200}),
]
"""The name of an installed plug-in, which ``json_schema`` adds, or ``module:Class``."""
CLASS = "The name of an installed plug-in, or your class, `module:Class`, which needs `--trust-suite`."


class Declared(Frozen):
    """What a custom class declares about itself. Runs store it, so that they can be read without the class.

    Every plug-in that was loaded has it, as its version is that of its package at least.
    """

    version: str | None = None
    metrics: dict[str, Metric] | None = None
    """The metrics that a grader writes; ``None`` if the suite's ``writes`` lists them."""
    cases: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Names of the metrics for each case, by case id."""


class CustomEntry(Frozen):
    """The keys and properties of an entry with such a class."""

    group: ClassVar[str]
    """The group of entry points that adds names of such classes."""
    name_key: ClassVar[str] = "provider"
    """The key that names the class."""
    runs_code: ClassVar[bool] = True

    options: dict[str, Any] = Field(
        default_factory=dict, description="Settings of the class, checked against its `Options` if it has them."
    )
    declared: SkipJsonSchema[Declared | None] = None

    @property
    def class_name(self) -> str:
        """The name of a plug-in, or ``module:Class``."""
        return str(getattr(self, self.name_key))

    @property
    def needs_trust(self) -> bool:
        """Whether only a trusted suite may use it: code of an installed package is trusted."""
        return ":" in self.class_name

    @property
    def version(self) -> str | None:
        """The version of its code, as far as it was loaded."""
        return self.declared.version if self.declared else None
