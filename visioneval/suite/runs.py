"""The model runs of a suite, which cases each has cells of, how many, and outputs that need no download.

Also the part of a suite that runs: by the flags that restrict a run (``--case``, ``--model``, ...), and by shard.
Shards are parts of a suite's cases for several machines, by content, so that an added case moves no other.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from visioneval.bounds import CELLS, MODEL_RUNS
from visioneval.errors import UsageError, did_you_mean
from visioneval.suite.case import TestCase, with_output_sources
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.entries.judges import BaseJudge
from visioneval.suite.entries.providers import BaseProvider, GeneratingProvider
from visioneval.suite.files import Finished, RunLabels
from visioneval.suite.filters import any_case, any_glob, chain_of, first_turn
from visioneval.suite.messages import Loc
from visioneval.suite.model import Suite
from visioneval.types import Frozen, ModelRun, TaskType


def model_runs(entry: BaseProvider, suite: Suite, folder: Path, run_labels: RunLabels) -> list[ModelRun]:
    """Every model run of one entry of ``models``, in order: prompts vary fastest.

    Each has its own config with a label, one prompt at most and without a grid, so that the resolved suite expands to
    the same runs. Raises ``VisionEvalError`` if another run or a dataset cannot be read.
    """
    name = entry.provider_name
    return [
        ModelRun(label, name, changes.get("params", {}), entry.model_copy(update={"label": label, **changes}))
        for base, base_changes in entry.model_runs(suite.cases, folder, run_labels)
        for label, changes in _with_prompts(base, base_changes, entry, suite)
    ]


def _with_prompts(
    label: str, changes: dict[str, Any], entry: BaseProvider, suite: Suite
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Label and changes of a model run with each prompt of its entry that some case of its tasks has."""
    prompts = suite.prompts_of(entry)
    if not prompts:
        yield label, changes
    deciding = [case for case in suite.cases if case.output_of is None and case.previous_turn is None]
    for prompt in prompts:
        if any(entry.does(case.task_type) and prompt.is_for(case) for case in deciding):
            yield prompt.model_run_label(label), {**changes, "prompts": (prompt.label,)}


class RunCoverage:
    """Which cases each model run of a suite has cells of: by its tasks, and by its prompt's ``when``.

    A case with ``output_of`` has the cells of the case that generates its outputs, and a later turn those of the first.
    """

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        has_scopes = any(prompt.when is not None for prompt in suite.prompts)
        self._generating = {case.id: case for case in suite.cases} if has_scopes else {}
        self._cases: dict[tuple[tuple[TaskType, ...], tuple[str, ...]], frozenset[int]] = {}

    def has_cells(self, entry: BaseProvider, case: TestCase) -> bool:
        """Whether a model run, or any model run of an entry that is not expanded, has cells of a case."""
        if not entry.does(case.task_type):
            return False
        if not self._generating or not (prompts := self._suite.prompts_of(entry)):
            return True
        generating = self._generating.get(first_turn(case.output_of or case.id), case)
        return any(prompt.is_for(generating) for prompt in prompts)

    def cases_of(self, entry: BaseProvider) -> frozenset[int]:
        """The indices of the cases that it has cells of. Computed once for all entries with the same ones."""
        prompts = self._suite.prompts_of(entry) if self._generating else ()
        key = (tuple(filter(entry.does, TaskType)), tuple(prompt.label for prompt in prompts))
        if key not in self._cases:
            indices = (index for index, case in enumerate(self._suite.cases) if self.has_cells(entry, case))
            self._cases[key] = frozenset(indices)
        return self._cases[key]


def dataset_outputs(run: ModelRun, suite: Suite, folder: Path) -> Finished:
    """The existing outputs of a model run in its dataset or in the cases' ``outputs``."""
    config: BaseProvider = run.config
    return config.existing_outputs(run.label, suite.cases, suite.vars, folder)


def grid_problems(suite: Suite) -> Iterator[tuple[Loc, str]]:
    """Reports grids and prompts that result in too many model runs, without expanding them."""
    grids = [entry.grid if isinstance(entry, GeneratingProvider) else {} for entry in suite.models]
    sizes = [
        prod(map(len, grid.values())) * max(1, len(suite.prompts_of(entry)))
        for grid, entry in zip(grids, suite.models, strict=True)
    ]
    if sum(sizes) <= MODEL_RUNS.limit:
        return
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    loc: Loc = ("models", largest, "grid") if grids[largest] else ("models",)
    yield loc, f"the suite has {sum(sizes):,} model runs, over the limit of {MODEL_RUNS.limit:,} ({MODEL_RUNS.hint})"


def cell_problem(suite: Suite, runs: Sequence[ModelRun]) -> str | None:
    """The message for a suite with too many cells; ``None`` otherwise."""
    cells = count_cells(suite, runs)
    if cells <= CELLS.limit:
        return None
    return (
        f"{len(suite.cases):,} cases on {len(runs):,} model runs result in {cells:,} cells,"
        f" over the limit of {CELLS.limit:,} ({CELLS.hint})"
    )


def count_cells(suite: Suite, runs: Sequence[ModelRun]) -> int:
    """The number of cells of a suite. Existing outputs count once per case, since their files are bounded."""
    coverage = RunCoverage(suite)
    return sum(len(coverage.cases_of(run.config)) * samples_of(run, suite.samples) for run in runs)


def samples_of(run: ModelRun, samples: int) -> int:
    """The number of cells of a case on a model run. Existing outputs count once, since their files are bounded."""
    config = run.config
    if config.reads_outputs:
        return samples if config.path_of("", "", 0) is not None or not config.has_outputs else 1
    if not isinstance(config, GeneratingProvider):
        return samples
    params = dict(run.params)
    if not isinstance(params.get("n") or 1, int):  # reported separately
        return samples
    return samples * config.outputs_per_call(params) * config.calls_per_sample(params)


def cells_per_sample(suite: Suite) -> dict[str, int]:
    """By the label of each model run of a suite: the cells of a case that one of the suite's samples has.

    ``suite`` has one entry per model run.
    """
    runs = (ModelRun(_label(entry), entry.provider_name, getattr(entry, "params", {}), entry) for entry in suite.models)
    return {run.label: samples_of(run, 1) for run in runs}


def address_of(params: Mapping[str, Any]) -> str | None:
    """The URI under which Gemini can read an existing output."""
    path = params.get("path")
    return path if isinstance(path, str) and path.startswith("gs://") else None


def addressed(
    params: Mapping[str, Any], graders: Iterable[BaseGrader], judges: Mapping[str, BaseJudge]
) -> Mapping[str, Any]:
    """The parameters of an existing output, with ``by_address`` if it need not be downloaded.

    This is the case if its type is known and every grader has only judges that read remote URIs.
    """
    path = address_of(params)
    mime = params.get("mime") or (mimetypes.guess_type(path)[0] if path else None)
    if path is None or mime is None:
        return params
    watching = {name for name, judge in judges.items() if judge.watches}
    needs_bytes = (
        not grader.needs_no_bytes or not grader.judge_names or not watching.issuperset(grader.judge_names)
        for grader in graders
    )
    return params if any(needs_bytes) else {**params, "mime": mime, "by_address": True}


MAX_SHARDS = 100_000
_Count = Annotated[int, Field(ge=1, le=MAX_SHARDS)]


class Shard(Frozen):
    """Part ``number`` of ``count``, counted from 1."""

    number: _Count
    count: _Count

    @model_validator(mode="after")
    def _check_number(self) -> Self:
        if self.number > self.count:
            raise ValueError(f"shard {self.number} of {self.count} does not exist")
        return self

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads ``I/N``. Raises ``UsageError``."""
        match = re.fullmatch(r"([0-9]{1,18})/([0-9]{1,18})", text.strip())
        number, count = (int(part) for part in match.groups()) if match else (0, 0)
        if count > MAX_SHARDS:
            raise UsageError(f"--shard {text:.40}: there can be {MAX_SHARDS:,} shards at most")
        if not 1 <= number <= count:
            raise UsageError(f"--shard {text:.40}: use I/N, such as 1/4, with I from 1 to N")
        return cls(number=number, count=count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def cases_of_shard(cases: Sequence[TestCase], shard: Shard) -> frozenset[str]:
    """The ids of a suite's cases that belong to a shard.

    All cells of a case stay together, and so do turns of a case, and cases that share outputs (``output_of``) or a
    prompt, whose questions they share. A group belongs to a shard by a hash of its prompts.
    """
    groups = case_groups(cases)
    keys: dict[str, str] = {}
    for case in cases:
        if case.output_of is None:  # a case that uses another's output moves with it
            prompt = sha256(case.prompt.encode()).hexdigest()
            keys[groups[case.id]] = min(keys.get(groups[case.id], prompt), prompt)
    return frozenset(case.id for case in cases if int(keys[groups[case.id]][:16], 16) % shard.count == shard.number - 1)


def case_groups(cases: Sequence[TestCase]) -> dict[str, str]:
    """By the id of each case of a suite: the name of its group.

    The cases of a group are turns of a case, or share outputs (``output_of``) or a prompt, so that their cells may ask
    a judge the same.
    """
    groups = _Groups()
    for case in cases:
        groups.join(case.id, f"prompt {sha256(case.prompt.encode()).hexdigest()}")
        if (used := case.output_of or case.previous_turn) is not None:
            groups.join(case.id, used)
    return {case.id: groups.of(case.id) for case in cases}


class _Groups:
    """Disjoint sets of names."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def of(self, name: str) -> str:
        """The name that stands for the set of ``name``."""
        root = name
        while (parent := self._parents.get(root, root)) != root:
            root = parent
        while (parent := self._parents.get(name, name)) != root:
            self._parents[name], name = root, parent
        return root

    def join(self, first: str, second: str) -> None:
        """Unites the sets of two names."""
        self._parents[self.of(first)] = self.of(second)


class Selection(Frozen):
    """The flags that restricted a run."""

    cases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    graders: tuple[str, ...] = ()
    limit: int | None = None
    samples: int | None = None
    """Replaces the suite's number, from which it differs; fewer samples than that leave cells out."""
    shard: Shard | None = None
    """Which part of the selected cases runs. What they leave out is in the other shards."""

    @property
    def narrows(self) -> bool:
        """Whether any flag restricts the run."""
        return bool(self.narrows_cases or self.models or self.graders)

    @property
    def narrows_cases(self) -> bool:
        """Whether any flag selects cases."""
        return bool(self.cases or self.tags or self.limit is not None or self.shard is not None)


def selected(suite: Suite, selection: Selection) -> Suite:
    """The suite with the selected cases, model runs and graders only. Other entries may still name what is left out.

    ``suite`` has one entry per model run. Leaves out cases without cells on the selected model runs, model runs without
    cells, and graders without anything to grade; adds the cases whose outputs the selected cases use or edit. A case
    and its turns count once for the limit. A shard can have no cases.
    """
    models = [entry for entry in suite.models if not selection.models or any_glob(selection.models, _label(entry))]
    cases = [case for case in suite.cases if not selection.cases or any_case(selection.cases, case.id)]
    if selection.tags:
        cases = [case for case in cases if not set(case.tags).isdisjoint(selection.tags)]
    coverage = RunCoverage(suite)
    cases = [case for case in cases if any(coverage.has_cells(entry, case) for entry in models)]
    limited = frozenset(list(dict.fromkeys(chain_of(case.id) for case in cases))[: selection.limit])
    chosen = with_output_sources([case for case in cases if chain_of(case.id) in limited], suite.cases)
    models = [entry for entry in models if any(coverage.has_cells(entry, case) for case in chosen)]
    labels = [_label(entry) for entry in models]
    graders = (grader for grader in suite.graders if not selection.graders or any_glob(selection.graders, grader.key))
    narrowed = tuple(each for grader in graders if (each := grader.narrowed(labels)))
    if selection.shard is not None:
        ids = cases_of_shard(suite.cases, selection.shard)
        chosen = tuple(case for case in chosen if case.id in ids)
    return suite.model_copy(update={"cases": chosen, "models": tuple(models), "graders": narrowed})


def check_selection(suite: Suite, selection: Selection) -> None:
    """Raises ``UsageError`` for a flag that matches nothing, and if nothing is left of the suite."""
    for flag, patterns, names in (
        ("--model", selection.models, [_label(entry) for entry in suite.models]),
        ("--grader", selection.graders, [grader.key for grader in suite.graders]),
        ("--case", selection.cases, [name for case in suite.cases for name in (case.id, chain_of(case.id))]),
    ):
        for pattern in patterns:
            if not any(any_glob([pattern], name) for name in names):
                raise UsageError(f"{flag}: no match for {pattern!r}{did_you_mean(pattern, names[:200])}")
    tags = {tag for case in suite.cases for tag in case.tags}
    for tag in selection.tags:
        if tag not in tags:
            raise UsageError(f"--tag: no case has the tag {tag!r}{did_you_mean(tag, tags)}")
    narrowed = selected(suite, selection.model_copy(update={"shard": None}))
    if not narrowed.cases or not narrowed.models:
        raise UsageError("nothing to run: no selected model run supports the task of any selected case")
    if suite.graders and not narrowed.graders:
        raise UsageError("nothing to grade: a comparison needs at least two model runs")


def narrowed_further(suite: Suite, before: Selection, flags: Selection) -> Selection:
    """The selection of a run that regrades a part of another: ``flags`` select among the cells that ``before`` left.

    Every grader of the suite can be selected, since its cells need not have been graded by it before. Raises
    ``UsageError`` for a flag that matches nothing.
    """
    cells = selected(suite, before.model_copy(update={"graders": ()}))
    unlimited = cells.model_copy(update={"graders": suite.graders})
    check_selection(unlimited, flags.model_copy(update={"samples": None}))
    changes: dict[str, object] = {"graders": flags.graders or before.graders}
    if flags.models:
        changes["models"] = flags.models if not before.models else tuple(map(_label, selected(unlimited, flags).models))
    if flags.narrows_cases or (flags.models and before.limit is not None):
        part = selected(unlimited, flags.model_copy(update={"graders": ()}))
        by_id = {"cases": tuple(case.id for case in part.cases), "tags": (), "limit": None}
        by_flag = flags.model_dump(include={"cases", "tags", "limit"})
        changes |= by_id if before.narrows_cases else by_flag
    return before.model_copy(update=changes)


def merged(before: Selection, flags: Selection) -> Selection:
    """The selection for another suite: that of ``flags``, and where they select no cases or models, of ``before``."""
    cases = flags if flags.narrows_cases else before
    return before.model_copy(
        update={
            **{name: getattr(cases, name) for name in ("cases", "tags", "limit")},
            "models": flags.models or before.models,
            "graders": flags.graders,
        }
    )


def _label(entry: BaseProvider) -> str:
    return str(entry.label)
