"""Loads a suite file and checks it, or reports every problem with its position."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from visioneval.bounds import CELLS
from visioneval.errors import Problem, SuiteError, UsageError
from visioneval.plugins import JUDGES, config_of, plugin_names
from visioneval.settings import SUITE_FILE
from visioneval.suite.checks import suite as check
from visioneval.suite.files import RunLabels, Trust
from visioneval.suite.loading.document import Document, Source, cut_texts, decode, parse_scalar, read_yaml
from visioneval.suite.loading.gather import gather_cases, read_bytes, render_output_paths, with_pinned_questions
from visioneval.suite.messages import NOTE, WARNING, Loc, SuiteNote, SuiteWarning
from visioneval.suite.model import Suite, suite_schema
from visioneval.suite.plugins import has_known_metrics, with_declarations
from visioneval.suite.remote import SECRET_NAME
from visioneval.templates.steps import suite_counted


@dataclass(frozen=True, slots=True)
class LoadedSuite:
    """A suite that passed every check. Its relative paths are relative to ``folder``."""

    suite: Suite
    path: Path
    folder: Path
    source_sha256: str
    trust: Trust
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Values of secret variables from flags, by name. Only prompts use them; no file contains them."""
    is_from_run: bool = False
    """Whether the suite was stored in a run, not read from its file."""
    warnings: tuple[Problem, ...] = ()
    """What may not be intended, although the suite can be run."""
    notes: tuple[Problem, ...] = ()
    """How the files of the suite are read, for ``validate``."""
    name: str = ""
    """Its file in messages, as the user named it; empty for ``path``."""

    def positions(self) -> Callable[[Loc], tuple[str, int, int]]:
        """Reads its file again. Returns a function that finds file, line and column of a path in the suite.

        Line and column are 0 if the suite is stored in a run.
        """
        name = self.name or str(self.path)
        if self.is_from_run:
            return lambda _: (name, 0, 0)
        return Source(name, decode(read_bytes(self.path), name)).position


SHORTEST_SECRET = 4
"""Characters of a secret variable: a shorter text cannot be hidden without hiding half of what is written."""
HIDDEN = "***"
"""Replaces a secret in everything that is written or printed."""


def load_suite(
    path: Path,
    *,
    trust: bool = False,
    variables: Mapping[str, str] | None = None,
    judges: Mapping[str, str] | None = None,
    run_labels: RunLabels,
) -> LoadedSuite:
    """Reads and checks a suite, or the ``suite.yaml`` of a folder. Raises ``SuiteError`` with all problems.

    ``variables`` override the suite's ``vars``; ``judges`` override judges by key, as ``provider:model``.
    """
    with suppress(OSError):  # such as a name that is too long, which reading reports
        path = path / SUITE_FILE if path.is_dir() else path
    try:
        data = read_bytes(path)
    except UsageError as error:
        raise SuiteError([Problem(str(path), 0, 0, str(error))]) from None
    document = _document(data, str(path))
    document.data.update(_apply_flags(document.data, variables or {}, judges or {}))
    folder = path.absolute().parent
    boundary = Trust(folder, Path.cwd(), everything=trust)
    gather_cases(document, boundary)
    render_output_paths(document)
    cases = document.data.get("cases")
    if isinstance(cases, list) and len(cases) > CELLS.limit:  # before any of them is checked
        message = f"{len(cases):,} cases exceed the limit of {CELLS.limit:,} cells ({CELLS.hint})"
        raise SuiteError([Problem(*document.source.position(("cases",)), message)])
    validated = _validated(document)
    validated = replace(validated, suite=with_pinned_questions(validated.suite, document, boundary))
    broken = validated.broken
    validated = _add_declarations(validated, document, folder, trust=trust)
    if not all(map(has_known_metrics, validated.suite.graders)):
        broken |= {"metrics"}
    warned: list[SuiteWarning] = []
    noted: list[SuiteNote] = []
    with suite_counted(len(validated.suite.cases)):
        for problem in check.problems(validated.suite, folder, boundary, run_labels, broken):
            if isinstance(problem, SuiteWarning):
                warned.append(problem)
            elif isinstance(problem, SuiteNote):
                noted.append(problem)
            elif isinstance(problem, Problem):
                document.problems.append(replace(problem, file=document.display_name(problem.file, folder, folder)))
            elif (loc := validated.origin(problem[0])) is not None:
                document.report(loc, problem[1])
    if document.problems:
        raise SuiteError(document.problems)
    secrets = _secrets(variables or {})
    warnings = (
        *(Problem(*document.position(warning.loc), f"{WARNING}{warning.message}") for warning in warned),
        *_cut_texts(document),
        *document.notes,
    )
    return LoadedSuite(
        suite=validated.suite,
        path=path.absolute(),
        folder=folder,
        source_sha256=sha256(data).hexdigest(),
        trust=boundary,
        secrets=secrets,
        warnings=warnings,
        notes=tuple(Problem(*document.position(note.loc), f"{NOTE}{note.message}") for note in noted),
        name=document.source.name,
    )


_FREE_TEXTS = {
    *("prompt", "turns", "criteria", "region", "question", "add_questions", "justification", "ask", "choices"),
    *("required", "forbidden", "allowed", "description", "pass_if", "fail_if"),
}
"""The keys of texts that a model, a judge or a rater reads."""
_APART = re.compile(r"(\t|[ \t]{2,})#([ \t#!]|$)")
"""A comment that stands apart from the value before it, as people write them."""


def _cut_texts(document: Document) -> Iterator[Problem]:
    """Warns of texts in YAML files that a '#' cuts. The names of columns are no texts."""
    sources = {origin.source.name: origin.source for origin in document.origins if not isinstance(origin.source, str)}
    for source in {document.source.name: document.source, **sources}.values():
        for path, position, comment in cut_texts(source.text):
            is_variable = not {"vars", "metadata"}.isdisjoint(step for step in path if isinstance(step, str))
            if _is_free_text(path) or (is_variable and not _APART.match(comment)):
                message = f"YAML reads {comment.strip():.60} as a comment, so the text ends before it"
                yield Problem(source.name, *position, f"{WARNING}{message}: put the text in quotes")


def _is_free_text(path: Loc) -> bool:
    """Whether a text at a path is written for a reader: by its key, or that of its list or mapping."""
    keys = [step for step in path if isinstance(step, str)]
    if not keys or not {"fields", "filter"}.isdisjoint(keys):
        return False
    if keys[-1] == "questions":
        return isinstance(path[-1], int)  # else a file of questions
    is_part = keys[-2:-1] == ["anchors"] or keys[-2:] == ["prompts", "template"]
    return is_part or keys[-1] in _FREE_TEXTS


def _add_declarations(validated: _Validated, document: Document, folder: Path, *, trust: bool) -> _Validated:
    has_cases = validated.remaining.get("cases") != []  # else there is only a placeholder, which classes may not fit
    known = validated.suite if has_cases else validated.suite.model_copy(update={"cases": ()})
    suite, problems = with_declarations(known, folder, trust=trust)
    for path, message in problems:
        if (loc := validated.origin(path)) is not None:
            document.report(loc, message)
    return replace(validated, suite=suite.model_copy(update={"cases": validated.suite.cases}))


def recheck_suite(
    suite: Suite,
    path: Path,
    *,
    source_sha256: str,
    trust: bool = False,
    variables: Mapping[str, str] | None = None,
    judges: Mapping[str, str] | None = None,
    hidden: Collection[str] = (),
    run_labels: RunLabels,
) -> LoadedSuite:
    """Checks a suite stored in a run again, since its files may have changed. Raises ``SuiteError``.

    Paths are relative to the folder of ``path``; without ``trust``, it may read only the working directory.
    ``variables`` and ``judges`` are as in ``load_suite``; ``hidden`` names variables whose values the run omits.
    """
    if variables or judges:
        data = suite.model_dump(mode="json", include={"vars", "judges"})
        changed = Suite.model_validate({**_PLACEHOLDERS, **data, **_apply_flags(data, variables or {}, judges or {})})
        suite = suite.model_copy(update={"vars": changed.vars, "judges": changed.judges})
    folder = path.absolute().parent
    boundary = Trust.for_run_suite(everything=trust)
    suite, misfits = with_declarations(suite, folder, trust=trust, is_from_run=True)
    with suite_counted(len(suite.cases)):
        # a selection may have left few cells of a suite with many samples: only their number is limited
        reported = list(check.problems(suite.model_copy(update={"samples": 1}), folder, boundary, run_labels))
    name = f"{path} as stored in the run"
    problems = [*misfits, *(problem for problem in reported if not isinstance(problem, SuiteWarning | SuiteNote))]
    if problems:
        messages = (str(problem) if isinstance(problem, Problem) else problem[1] for problem in problems)
        raise SuiteError(Problem(name, 0, 0, message) for message in messages)
    secrets = _secrets(variables or {}, hidden)
    warned = (f"{WARNING}{warning.message}" for warning in reported if isinstance(warning, SuiteWarning))
    return LoadedSuite(
        suite=suite,
        path=path.absolute(),
        folder=folder,
        source_sha256=source_sha256,
        trust=boundary,
        secrets=secrets,
        is_from_run=True,
        warnings=tuple(Problem(name, 0, 0, warning) for warning in warned),
    )


def _document(data: bytes, name: str) -> Document:
    source = Source(name, decode(data, name))
    raw = read_yaml(source.text, name)
    if raw is None:
        raise SuiteError([Problem(name, 1, 1, "the suite is empty: create a starting point with 'visioneval init'")])
    if not isinstance(raw, dict):
        message = "a suite must be a mapping with the keys name, cases, models, graders and verdict"
        raise SuiteError([Problem(*source.position(()), message)])
    return Document(source, raw)


def _apply_flags(data: Mapping[str, Any], variables: Mapping[str, str], judges: Mapping[str, str]) -> dict[str, Any]:
    """The parts of a raw suite that flags override."""
    parts = {"vars": _variables(data.get("vars"), variables)} if variables else {}
    return parts | ({"judges": _judges(data.get("judges"), judges)} if judges else {})


def _variables(declared: Any, variables: Mapping[str, str]) -> dict[str, Any]:
    declared = declared if isinstance(declared, dict) else {}
    for name, text in variables.items():
        if name not in declared:
            names = ", ".join(map(str, declared)) or "none"
            raise UsageError(f"--var {name}: the suite has no such variable (known: {names})")
        if text == HIDDEN:
            message = f"{HIDDEN} is a placeholder for a secret that is not stored: pass the actual value"
            raise UsageError(f"--var {name}: {message}")
        if SECRET_NAME.fullmatch(name) and len(text) < SHORTEST_SECRET:
            raise UsageError(f"--var {name}: a secret value needs at least {SHORTEST_SECRET} characters to be hidden")
        if not text.isprintable() and any(0xD800 <= ord(char) <= 0xDFFF for char in text):
            raise UsageError(f"--var {name}: the value is not valid UTF-8")
    return {**declared, **{name: parse_scalar(text) for name, text in variables.items()}}


def _secrets(variables: Mapping[str, str], hidden: Collection[str] = ()) -> dict[str, str]:
    return {name: text for name, text in variables.items() if name in hidden or SECRET_NAME.fullmatch(name)}


def _judges(declared: Any, judges: Mapping[str, str]) -> dict[str, Any]:
    entries: dict[str, Any] = dict(declared) if isinstance(declared, dict) else {}
    for name, text in judges.items():
        if name not in entries:
            names = ", ".join(map(str, entries)) or "none"
            raise UsageError(f"--judge {name}: the suite has no such judge (known: {names})")
        entries[name] = judge_of_flag(name, text)
    return entries


def judge_of_flag(name: str, text: str) -> dict[str, str]:
    """The entry of a judge from ``--judge NAME=PROVIDER:MODEL``. Raises ``UsageError``."""
    provider, _, model = text.partition(":")
    known = [judge for judge in JUDGES if not config_of(JUDGES, judge).is_recorded]
    known += plugin_names("visioneval.judges")
    if provider not in known or not model:
        raise UsageError(
            f"--judge {name}={text}: write PROVIDER:MODEL with the provider {', '.join(known[:-1])} or {known[-1]};"
            " without a key, give the suite's judge recorded answers: {provider: recorded, path: answers.csv}"
        )
    return {"provider": provider, "model": model}


@dataclass(frozen=True, slots=True)
class _Validated:
    """A suite that its model accepts: complete, or without its invalid parts."""

    suite: Suite
    broken: frozenset[str] = frozenset()
    """The top-level keys with problems or missing entries."""
    remaining: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """For each list that lost entries: the original indices of the remaining entries."""

    def origin(self, loc: Loc) -> Loc | None:
        """Translates a path in this suite to a path in the document; ``None`` if the document has no such part."""
        if len(loc) < 2 or loc[0] not in self.remaining or not isinstance(loc[1], int):
            return loc
        indices = self.remaining[str(loc[0])]
        return (loc[0], indices[loc[1]], *loc[2:]) if loc[1] < len(indices) else None


_LISTS = ("cases", "models", "graders", "verdict", "gates")
_PLACEHOLDERS: Mapping[str, Any] = {
    "name": "unnamed",
    "cases": [{"id": "none", "prompt": "none"}],
    "models": [{"provider": "mock"}],
    "graders": [{"key": "image", "type": "properties"}],
    "verdict": ["image"],
}


def _missing_rules(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Missing and empty graders, rules and gates, as errors of pydantic. Only a suite with labels can do without."""
    is_for_labels = "labels" in data and data.keys().isdisjoint(("graders", "verdict"))
    for key in ("graders", "verdict", "gates"):
        if key not in data and key != "gates" and not is_for_labels:
            yield {"type": "missing", "loc": (key,), "msg": "Field required", "input": data}
        elif data.get(key) == []:
            yield {"type": "too_short", "loc": (key,), "msg": "too short", "input": [], "ctx": {"min_length": 1}}


def _validated(document: Document) -> _Validated:
    """Validates the suite and reports everything that its model rejects. The valid parts can still be checked."""
    broken = {"cases"} if document.problems else set()
    errors: list[Mapping[str, Any]] = list(_missing_rules(document.data))
    try:
        suite = Suite.model_validate(document.data)
    except ValidationError as error:
        errors += error.errors(include_url=False)
    if not errors:
        return _Validated(suite, frozenset(broken))
    if broken:  # a case file could not be read: do not also report that there are no cases
        errors = [entry for entry in errors if entry["loc"] != ("cases",)]
    document.report_errors(errors, suite_schema())
    bad = {tuple(entry["loc"][:2]) for entry in errors}
    broken |= {str(loc[0]) for loc in bad}
    data = {
        key: value
        for key, value in document.data.items()
        if key in Suite.model_fields and (key not in broken or (key in _LISTS and (key,) not in bad))
    }
    kept = {}
    for key in _LISTS:
        if isinstance(data.get(key), list):
            kept[key] = [index for index in range(len(data[key])) if (key, index) not in bad]
            data[key] = [data[key][index] for index in kept[key]]
        if not data.get(key):
            kept[key] = []
            data.pop(key, None)
    return _Validated(Suite.model_validate({**_PLACEHOLDERS, **data}), frozenset(broken), kept)
