"""The model of a suite. The loader validates against it, and the JSON Schema is generated from it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Discriminator, Field, StringConstraints, Tag

from visioneval.plugins import GRADERS, JUDGES, PROVIDERS, Part, config_of, plugin_names
from visioneval.settings import MAX_LAST
from visioneval.suite.case import Name, TestCase, Text
from visioneval.suite.entries.graders import BaseGrader, CustomGrader
from visioneval.suite.entries.judges import BaseJudge, CustomJudge
from visioneval.suite.entries.providers import (
    CELL_TIMEOUT_S,
    BaseProvider,
    CustomProvider,
    LimitName,
    Limits,
    Price,
    Seconds,
)
from visioneval.suite.files import CaseDataset, FilePath
from visioneval.suite.labels import Labels, resolve_labels
from visioneval.suite.prompts import PromptEntry
from visioneval.suite.rules import GateEntry, GateRule, MetricEntry, RuleEntry
from visioneval.suite.tracking import Tracking
from visioneval.types import CaseFiles, Frozen, TaskType

CUSTOM = "module:Class"
"""The name that represents every custom class, in the positions of errors."""


def _tagged(field: str, table: Mapping[str, Part], custom: type[Any]) -> Any:
    """The union of all options in a table, discriminated by ``field``; ``custom`` is for custom classes and plug-ins.

    A run can be read without the packages of its plug-ins, as it has what they declared.
    """

    def tag(value: Any) -> str | None:
        options = value if isinstance(value, dict) else vars(value) if isinstance(value, Frozen) else {}
        name = options.get(field)
        if not isinstance(name, str) or name in table:
            return name if isinstance(name, str) else None
        is_custom = ":" in name or options.get("declared") or name in plugin_names(custom.group)
        return CUSTOM if is_custom else None

    entries = [Annotated[config_of(table, name), Tag(name)] for name in table]
    return Annotated[Union[*entries, Annotated[custom, Tag(CUSTOM)]], Discriminator(tag)]


VarName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=60)]
if TYPE_CHECKING:
    ModelEntry = BaseProvider
    GraderEntry = BaseGrader
    JudgeEntry = BaseJudge
else:
    ModelEntry = _tagged("provider", PROVIDERS, CustomProvider)
    GraderEntry = _tagged("type", GRADERS, CustomGrader)
    JudgeEntry = _tagged("provider", JUDGES, CustomJudge)


_PASS_GATE = GateRule(rule="pass_rate == 1")


class CaseFile(Frozen):
    """Cases in a file of their own: a list like ``cases``."""

    file: FilePath = Field(description="A YAML file with a list of cases, relative to the file that names it.")


class CompareEntry(Frozen):
    """How ``compare`` decides about runs of the suite."""

    must_detect: Annotated[float, Field(gt=0, le=100)] | None = Field(
        default=None,
        description="Points of pass rate. `compare` exits 3 unless it detects such a drop with 80 % power "
        "(`--must-detect`).",
    )
    drift: Annotated[int, Field(ge=1, le=MAX_LAST, strict=True)] | None = Field(
        default=None,
        description="The number of runs that `compare --experiment` tests together, unless `--last` replaces it.",
    )


class Suite(Frozen):
    """A resolved suite: files and datasets are read and variables replaced."""

    name: Name = Field(description="Letters, digits, `_`, `-` and `.`; part of the id of each run.")
    experiment: Name | None = Field(default=None, description="Groups runs in lists.")
    description: str | None = Field(default=None, description="A note for readers.")
    task: TaskType | None = Field(default=None, description="The task of cases that name none.")
    vars: dict[VarName, Any] = Field(
        default_factory=dict,
        description="Variables for every template, by name. `--var NAME=VALUE` replaces one. These are secret: those "
        "that contain a secret of the environment, and those of `--var` whose names end in `api_key`, `token`, "
        "`secret` or `password`. Only prompts show these; elsewhere they are `***`.",
    )
    templates_dir: Text | None = Field(
        default=None,
        description="A folder of templates that is searched before the suite's folder and the built-in templates.",
    )
    judges: dict[Name, JudgeEntry] = Field(
        default_factory=dict, description="The judges that graders ask, by key. `--judge` replaces one."
    )
    cases: Annotated[tuple[TestCase, ...], Field(min_length=1)] = Field(
        description="What to generate or edit, and what is expected: cases, files of cases and datasets."
    )
    models: Annotated[tuple[ModelEntry, ...], Field(min_length=1)] = Field(
        description="What generates the outputs. Each entry is one provider, and each combination of its `grid` one "
        "model run."
    )
    prompts: tuple[PromptEntry, ...] = Field(
        default=(),
        description="Variants of the prompt that is sent. Each model that generates has one model run per variant.",
    )
    samples: Annotated[int, Field(ge=1, le=1000, strict=True)] = Field(
        default=1, description="Calls per case and model run."
    )
    graders: tuple[GraderEntry, ...] = Field(
        default=(),
        json_schema_extra={"minItems": 1},
        description="What measures or judges each output. Only a suite with `labels` can leave out both `graders` and "
        "`verdict`.",
    )
    metrics: Annotated[dict[Name, MetricEntry], Field(max_length=200)] = Field(
        default_factory=dict, description="Metrics that are computed from the scores of a cell, by name."
    )
    verdict: tuple[RuleEntry, ...] = Field(
        default=(),
        description="Rules. Every rule that applies must hold for `PASS`.",
        json_schema_extra={"minItems": 1},
    )
    gates: tuple[GateEntry, ...] = Field(
        default=(),
        description="Rules over the whole run, which decide the exit code. Default: `pass_rate == 1`. `error_rate == "
        "0` and `unmeasured_rate == 0` are always implied, unless a gate without a scope replaces them.",
        json_schema_extra={"minItems": 1},
    )
    same_question: Annotated[dict[Text, Text], Field(max_length=200)] = Field(
        default_factory=dict,
        exclude_if=lambda pairs: not pairs,
        description="Metrics of judges, each with the local measure that answers the same question: the summary lists "
        "the cells in which one passes and the other fails, and `agreement` compares them. No verdict depends on it.",
    )
    limits: dict[LimitName, Limits] = Field(
        default_factory=dict,
        description="Call rates, attempts and time limits, by provider (all its models together) or `provider:model`, "
        "separately for generations and judgments.",
    )
    cell_timeout_s: Seconds = Field(
        default=CELL_TIMEOUT_S, description="Time limit of one cell in seconds, with waiting and all attempts."
    )
    budget_usd: Annotated[float, Field(gt=0, strict=True)] | None = Field(
        default=None,
        description="The most that a run may cost in US dollars each time it is started or resumed. `--budget` "
        "replaces it. With calls of unknown price it is an error.",
    )
    prices: dict[LimitName, Price] = Field(
        default_factory=dict,
        description="Prices by `provider:model`, model, or provider (all its models and judges, also on other hosts). "
        "A call has the first one in this order, else the public one of genai-prices for a known model on the "
        "provider's own host.",
    )
    compare: CompareEntry = Field(default=CompareEntry(), description="How `compare` decides about runs of the suite.")
    labels: Labels | None = Field(
        default=None, description="The questions for human raters. Default: questions by task."
    )
    tracking: Tracking | None = Field(
        default=None, description="Where the results are sent after every run: to `mlflow`, `wandb` or `vertex`."
    )

    @property
    def has_rules(self) -> bool:
        """Whether outputs get a verdict. A suite for human labels alone has neither graders nor rules."""
        return bool(self.verdict)

    @property
    def declared_gates(self) -> tuple[GateRule, ...]:
        """Its gates, or that of a suite without any."""
        return self.gates or (_PASS_GATE,)

    @property
    def resolved_labels(self) -> Labels:
        """The questions for raters: the suite's, or else a default set by task."""
        asked = (grader.label_questions for grader in self.graders)
        return resolve_labels(self.labels, asked, (case.task_type for case in self.cases))

    def prompts_of(self, entry: BaseProvider) -> tuple[PromptEntry, ...]:
        """The prompts with which an entry of ``models`` has model runs; none if it is sent the case's own prompt."""
        labels = entry.prompt_labels([prompt.label for prompt in self.prompts])
        return tuple({prompt.label: prompt for prompt in self.prompts if prompt.label in labels}.values())

    def files_of(self, case: TestCase, folder: Path, source: TestCase | None = None) -> CaseFiles:
        """The files of a case of this suite in ``folder``; ``source`` is the case with the input images, if another."""
        inputs = source or case
        masks = inputs.masks.model_dump(exclude_none=True) if inputs.masks else {}
        return CaseFiles(
            images=tuple((image.role, folder / image.path) for image in inputs.images),
            masks={name: folder / path for name, path in masks.items()},
            reference=folder / case.reference if case.reference else None,
        )


def template_folders(suite: Suite, folder: Path, builtin: Path) -> tuple[Path, ...]:
    """The folders to search for a suite's templates: ``templates_dir``, the suite's folder, the built-in folder."""
    suite_folders = (folder / suite.templates_dir,) if suite.templates_dir else ()
    return (*suite_folders, folder, builtin)


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a suite file."""
    schema = Suite.model_json_schema(mode="validation")
    entries: list[dict[str, Any]] = [schema["properties"]["cases"]["items"]]
    for model in (CaseFile, CaseDataset):
        part = model.model_json_schema()
        schema["$defs"].update(part.pop("$defs", {}))
        schema["$defs"][model.__name__] = part
        entries.append({"$ref": f"#/$defs/{model.__name__}"})
    schema["properties"]["cases"]["items"] = {"anyOf": entries}
    for key in ("gates", "graders", "verdict"):
        schema["properties"][key].pop("default", None)
    schema["dependentRequired"] = {"graders": ["verdict"], "verdict": ["graders"]}
    schema |= {"if": {"required": ["labels"]}, "else": {"required": ["graders", "verdict"]}}
    for custom, field in ((CustomProvider, "provider"), (CustomGrader, "type"), (CustomJudge, "provider")):
        if names := plugin_names(custom.group):
            properties = schema["$defs"][custom.__name__]["properties"]
            texts = {key: properties[field].pop(key) for key in ("title", "description") if key in properties[field]}
            properties[field] = {**texts, "anyOf": [{"enum": names}, properties[field]]}
    _close(schema)
    for model in schema["$defs"].values():
        for entry in model.get("properties", {}).values():
            if "const" in entry:  # a key with one value, such as ``type: text``, selects its model
                entry.setdefault("description", model["description"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "visioneval suite",
        "description": "What to generate or edit, with which models, how to measure the outputs, and what passes.",
        **{key: value for key, value in schema.items() if key not in ("title", "description")},
    }


@cache
def suite_schema() -> Mapping[str, Any]:
    """``json_schema``, cached."""
    return json_schema()


def _close(node: Any) -> None:
    """Forbids keys that match no pattern, like the loader. Pydantic's schema leaves such mappings open."""
    if isinstance(node, dict) and "patternProperties" in node:
        node.setdefault("additionalProperties", False)
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        _close(child)
