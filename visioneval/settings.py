"""The settings of runs. Each is declared here, once, beside its keyword in the Python API and its type.

A new one also has a field of its name, or a conversion, in ``api/options.py``. All else follows: the flags of every
command (``cli/options.py``), the checks of the API (``api/options.py``), bounds (``bounds.py``), what the command that
resumes a run repeats (``records/runs.py``) and the table in ``docs/reference/api.md``. A setting that the table lacks
cannot be a flag. ``_COMPLETIONS`` in ``cli/options.py`` completes its values, and ``scale/ray/jobs.py`` makes a path
absolute, as workers run in another folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, get_args, get_origin, get_type_hints

SUITE_FILE = Path("suite.yaml")
"""The suite of a folder."""
RUNS = Path("runs")
"""The folder of runs."""
LATEST = "latest"
"""The name of the newest run."""
MAX_CONCURRENCY = 64
"""Concurrent calls per model, separately for generation and judging."""
MAX_SAMPLES = 8
"""The most samples of a case with ``--until-decided``, by default."""
MAX_CONFIRM = 100
"""The most new samples per case that ``compare --confirm`` generates."""
MAX_GALLERY_CELLS = 10_000
"""Cells in the gallery of a report: what a browser and its user can take."""
BASELINE_RUNS = 5
"""The number of runs that a baseline keeps by default."""
MAX_LAST = 100
"""The most runs of an experiment that are tested together."""
MAX_BASELINE_RUNS = 20

SELECTION = "Selection"
OUTPUT = "Output"
CALLS = "Caching, resume, rate limits and cost"
CLUSTER = "Cluster"
DEBUGGING = "Debugging"
BOUNDS = "Bounds"
ADVANCED = (CLUSTER, DEBUGGING, BOUNDS)
"""The groups that only ``--help-all`` shows."""
ReuseChoice = Literal["all", "judges", "none"]
"""Which cached answers are reused:

- ``all``: Outputs, judges' answers and measurements.
- ``judges``: Judges' answers about identical images, and measurements. Outputs are generated.
- ``none``: Nothing: all is generated, asked and measured again.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """A flag of the command line, and a keyword of the Python API with the name and type that it is declared for."""

    flag: str
    metavar: str
    """What its value is called in the help; empty for a flag without a value."""
    help: str
    group: str | None = None
    """The heading of the flag in the help."""
    default: Any = None
    minimum: float | None = None
    maximum: float | None = None
    environment: str | None = None
    """The variable that changes the default."""
    resumed: Literal["always", "with_suite"] | None = None
    """When the command that resumes a run repeats the flag: the run would else stop, pay again, or be another one."""
    name: str = ""
    type: Any = None

    @property
    def is_list(self) -> bool:
        """Whether its value is a list of texts, and its flag can be repeated."""
        return get_origin(self.type) is Sequence

    @property
    def is_mapping(self) -> bool:
        """Whether its value is a dictionary, and its flag can be repeated as ``NAME=VALUE``."""
        return get_origin(self.type) is Mapping

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that it can have; empty if it can have others."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()


class CaseKeywords(TypedDict, total=False):
    """What to run. Lists of names select; patterns are globs."""

    cases: Annotated[Sequence[str], Setting("--case", "GLOB", "Only these cases. Repeatable.", SELECTION)]
    tags: Annotated[Sequence[str], Setting("--tag", "TAG", "Only cases with one of these tags. Repeatable.", SELECTION)]
    models: Annotated[
        Sequence[str], Setting("--model", "GLOB", "Only these model runs, by label. Repeatable.", SELECTION)
    ]
    graders: Annotated[Sequence[str], Setting("--grader", "GLOB", "Only these graders, by key. Repeatable.", SELECTION)]
    limit: Annotated[int, Setting("--limit", "N", "Only the first N selected cases.", SELECTION, minimum=1)]


class CallKeywords(TypedDict, total=False):
    """How providers are called."""

    variables: Annotated[
        Mapping[str, Any],
        Setting(
            "--var", "NAME=VALUE", "Override one of the suite's vars. Repeatable.", SELECTION, resumed="with_suite"
        ),
    ]
    """A text is read as YAML, as that of ``--var``."""
    runs: Annotated[
        Path | str, Setting("--runs", "DIR|URL", "The folder of runs, or its s3:// or gs:// URL.", default=RUNS)
    ]
    reuse: Annotated[
        ReuseChoice,
        Setting(
            "--reuse",
            "WHAT",
            "Cached answers to reuse: all, judges (only judges' answers about identical images, and measurements) or"
            " none.",
            CALLS,
            default="judges",
            resumed="always",
        ),
    ]
    offline: Annotated[
        bool,
        Setting(
            "--offline", "", "Make no network calls; take all answers from the cache.", CALLS, False, resumed="always"
        ),
    ]
    cache: Annotated[
        Path | str,
        Setting(
            "--cache",
            "DIR|URL",
            "The cache folder, or the s3:// or gs:// URL of a shared cache; default: the user's.",
            CALLS,
            resumed="always",
        ),
    ]
    budget_usd: Annotated[
        float,
        Setting(
            "--budget",
            "USD",
            "Maximum spend of this command, in US dollars; default: the suite's budget_usd.",
            CALLS,
            minimum=0.000001,
            resumed="always",
        ),
    ]
    max_concurrency: Annotated[
        int,
        Setting(
            "--max-concurrency",
            "N",
            "Maximum concurrent calls per model, counted separately for generation and judging.",
            CALLS,
            MAX_CONCURRENCY,
            minimum=1,
            maximum=4096,
        ),
    ]
    log_file: Annotated[
        Path | str,
        Setting(
            "--log-file",
            "FILE",
            "Append one line of JSON per call to this file, without the call's content.",
            DEBUGGING,
        ),
    ]
    trust_suite: Annotated[
        bool,
        Setting(
            "--trust-suite",
            "",
            "Allow the suite to run its own code and to read files outside its folder.",
            default=False,
            resumed="always",
        ),
    ]


class SelectionKeywords(CaseKeywords, CallKeywords, total=False):
    """What is run or graded, and how."""

    judges: Annotated[
        Mapping[str, str],
        Setting(
            "--judge",
            "NAME=PROVIDER:MODEL",
            "Override one of the suite's judges. Repeatable.",
            SELECTION,
            resumed="with_suite",
        ),
    ]


class PlanKeywords(SelectionKeywords, total=False):
    """The settings of a plan."""

    samples: Annotated[
        int,
        Setting(
            "--samples",
            "N",
            "Samples per case and model run; default: the suite's.",
            SELECTION,
            minimum=1,
            maximum=1000,
            resumed="with_suite",
        ),
    ]
    until_decided: Annotated[
        bool,
        Setting(
            "--until-decided",
            "",
            "Generate further samples of the cases that a gate depends on, one at a time, until it is decided.",
            SELECTION,
            False,
            resumed="always",
        ),
    ]
    max_samples: Annotated[
        int,
        Setting(
            "--max-samples",
            "N",
            f"With --until-decided: the most samples per case and model run; default: {MAX_SAMPLES}.",
            SELECTION,
            minimum=2,
            maximum=1000,
            resumed="always",
        ),
    ]
    shard: Annotated[
        str,
        Setting(
            "--shard",
            "I/N",
            "Only shard I of N of the selected cases, such as 1/4. 'visioneval merge' combines all shards into one"
            " run.",
            SELECTION,
        ),
    ]


class GradeKeywords(SelectionKeywords, total=False):
    """The settings of grading a run again."""

    run_id: Annotated[str, Setting("--run-id", "ID", "Use this ID instead of a generated one.", OUTPUT)]
    note: Annotated[str, Setting("--note", "TEXT", "A note that is stored with the run and listed by 'runs'.", OUTPUT)]
    redact: Annotated[
        Sequence[str],
        Setting(
            "--redact",
            "TAG",
            "Leave out the images of cases with this tag, or of one case (case:ID), and text about them. For photos of"
            " people. Repeatable.",
            OUTPUT,
            resumed="always",
        ),
    ]


class RunKeywords(PlanKeywords, GradeKeywords, total=False):
    """All settings of a run."""

    resume: Annotated[
        Path | str, Setting("--resume", "RUN", "Resume a run, with its own suite or the given one.", CALLS)
    ]
    keep_errors: Annotated[
        bool, Setting("--keep-errors", "", "With --resume: do not repeat cells that ended in an error.", CALLS, False)
    ]
    baseline: Annotated[
        str,
        Setting(
            "--baseline",
            "NAME",
            "With --until-decided: then compare with this baseline, with new samples of what is uncertain, as"
            " 'compare --confirm' does.",
            SELECTION,
            resumed="always",
        ),
    ]
    retry_unusable: Annotated[
        bool,
        Setting(
            "--retry-unusable", "", "Generate again, and pay again, where an answer had no usable image.", CALLS, False
        ),
    ]
    ray: Annotated[
        bool,
        Setting(
            "--ray",
            "",
            "Run the cells on a Ray cluster that is started on this machine.",
            CLUSTER,
            False,
            resumed="always",
        ),
    ]
    ray_address: Annotated[
        str,
        Setting("--ray-address", "ADDRESS", "With --ray: join the cluster at HOST:PORT.", CLUSTER, resumed="always"),
    ]
    workers: Annotated[
        int,
        Setting(
            "--workers",
            "N",
            "With --ray: processes, of one core each; default: all cores.",
            CLUSTER,
            minimum=1,
            maximum=10_000,
            resumed="always",
        ),
    ]


class CommandKeywords(RunKeywords, total=False):
    """All settings of a run from the command line."""

    debug: Annotated[
        bool, Setting("--debug", "", "Print each call, and full tracebacks of unexpected errors.", DEBUGGING, False)
    ]


def settings_of(keywords: type) -> dict[str, Setting]:
    """The settings that a class of keywords declares or inherits, by name."""
    hints = get_type_hints(keywords, include_extras=True)
    return {name: replace(hint.__metadata__[0], name=name, type=hint.__origin__) for name, hint in hints.items()}


SETTINGS = settings_of(CommandKeywords)
"""All settings of runs, by name."""


def as_words(values: Mapping[str, Any]) -> Iterator[str]:
    """The words of a command line with these settings, by name; none for those that have their default."""
    for name, value in values.items():
        setting = SETTINGS[name]
        if value is None or value == setting.default:
            continue
        if setting.type is bool:
            yield setting.flag
            continue
        items: Iterable[Any] = (value,)
        if setting.is_list:
            items = value
        elif setting.is_mapping:
            items = (f"{key}={as_text(item)}" for key, item in value.items())
        for item in items:
            yield from (setting.flag, str(item))


def as_text(value: Any) -> str:
    """The value of a variable as ``--var`` takes it."""
    return value if isinstance(value, str) else json.dumps(value)
