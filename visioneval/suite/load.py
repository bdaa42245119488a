"""From a file to a checked suite, or to every problem in it with its place."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from visioneval.bounds import CELLS
from visioneval.errors import Problem, SuiteError, UsageError
from visioneval.steps import suite_counted
from visioneval.suite import check
from visioneval.suite.document import Document, Source
from visioneval.suite.gather import gather_cases, read_bytes
from visioneval.suite.judges import JUDGES
from visioneval.suite.messages import Loc, suite_schema
from visioneval.suite.model import Suite
from visioneval.suite.paths import Trust
from visioneval.suite.pinned import with_pinned
from visioneval.suite.providers import SECRET_NAME
from visioneval.suite.runs import RunLabels
from visioneval.suite.yaml_reader import decode, plain, read_yaml


@dataclass(frozen=True, slots=True)
class LoadedSuite:
    """A suite that passed every check. ``folder`` is what its relative paths are relative to."""

    suite: Suite
    path: Path
    folder: Path
    source_sha256: str
    trust: Trust
    secrets: Mapping[str, str] = field(default_factory=dict)
    """The values of secret variables that were given, by name: they are for prompts alone, and no file holds them."""


SHORTEST_SECRET = 4
"""Characters of a secret variable: a shorter text cannot be hidden without hiding half of what is written."""
HIDDEN = "***"
"""What stands for a secret in everything that is written or printed."""


def load_suite(
    path: Path,
    *,
    trust: bool = False,
    variables: Mapping[str, str] | None = None,
    judges: Mapping[str, str] | None = None,
    run_labels: RunLabels,
) -> LoadedSuite:
    """Reads and checks a suite. Raises ``SuiteError`` with all problems, ``UsageError`` for a bad path.

    ``variables`` replace the suite's own; ``judges`` replace one each, as ``provider:model``.
    """
    try:
        data = read_bytes(path)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    document = _document(data, str(path))
    document.data.update(_replaced(document.data, variables or {}, judges or {}))
    folder = path.absolute().parent
    boundary = Trust(folder, Path.cwd(), everything=trust)
    gather_cases(document, boundary)
    _check_cases(document)
    found = _validated(document)
    found = replace(found, suite=with_pinned(found.suite, document, boundary))
    with suite_counted(len(found.suite.cases)):
        for problem in check.problems(found.suite, folder, boundary, run_labels, found.broken):
            if isinstance(problem, Problem):
                document.problems.append(replace(problem, file=document.shown(problem.file, folder, folder)))
            elif (loc := found.origin(problem[0])) is not None:
                document.report(loc, problem[1])
    if document.problems:
        raise SuiteError(document.problems)
    secrets = _secrets(variables or {})
    return LoadedSuite(found.suite, path.absolute(), folder, sha256(data).hexdigest(), boundary, secrets)


def held_suite(
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
    """A suite that a run holds, checked again: its files may have changed. Raises ``SuiteError``.

    Its paths are from the folder of ``path``; without ``trust`` it reads the working directory alone. ``variables``
    and ``judges`` as in ``load_suite``; ``hidden`` names variables whose values the run does not hold.
    """
    if variables or judges:
        data = suite.model_dump(mode="json", include={"vars", "judges"})
        changed = Suite.model_validate({**_STAND_INS, **data, **_replaced(data, variables or {}, judges or {})})
        suite = suite.model_copy(update={"vars": changed.vars, "judges": changed.judges})
    folder = path.absolute().parent
    boundary = Trust.of_held_suite(everything=trust)
    with suite_counted(len(suite.cases)):
        found = list(check.problems(suite, folder, boundary, run_labels))
    if found:
        told = (str(each) if isinstance(each, Problem) else each[1] for each in found)
        raise SuiteError(Problem(f"{path} as the run holds it", 0, 0, message) for message in told)
    secrets = _secrets(variables or {}, hidden)
    return LoadedSuite(suite, path.absolute(), folder, source_sha256, boundary, secrets)


def _check_cases(document: Document) -> None:
    """Raises ``SuiteError`` where there are more cases than a suite may have cells, before any is looked at."""
    cases = document.data.get("cases")
    if isinstance(cases, list) and len(cases) > CELLS.limit:
        message = f"{len(cases):,} cases, over the limit of {CELLS.limit:,} cells ({CELLS.hint})"
        raise SuiteError([Problem(*document.source.place(("cases",)), message)])


def _document(data: bytes, name: str) -> Document:
    source = Source(name, decode(data, name))
    raw = read_yaml(source.text, name)
    if raw is None:
        raise SuiteError([Problem(name, 1, 1, "the suite is empty: 'visioneval init' writes one to start from")])
    if not isinstance(raw, dict):
        message = "a suite is a mapping with name, cases, models, graders, verdict"
        raise SuiteError([Problem(*source.place(()), message)])
    return Document(source, raw)


def _replaced(data: Mapping[str, Any], variables: Mapping[str, str], judges: Mapping[str, str]) -> dict[str, Any]:
    """The parts of a raw suite that flags replace."""
    found = {"vars": _variables(data.get("vars"), variables)} if variables else {}
    return found | ({"judges": _judges(data.get("judges"), judges)} if judges else {})


def _variables(declared: Any, variables: Mapping[str, str]) -> dict[str, Any]:
    declared = declared if isinstance(declared, dict) else {}
    for name, text in variables.items():
        if name not in declared:
            known = ", ".join(map(str, declared)) or "none"
            raise UsageError(f"--var {name}: the suite has no such variable (it has: {known})")
        if text == HIDDEN:
            raise UsageError(
                f"--var {name}: {HIDDEN} stands for a secret value, which is not kept: give the value itself"
            )
        if SECRET_NAME.fullmatch(name) and len(text) < SHORTEST_SECRET:
            raise UsageError(f"--var {name}: a secret value has at least {SHORTEST_SECRET} characters: else it shows")
        if not text.isprintable() and any(0xD800 <= ord(sign) <= 0xDFFF for sign in text):
            raise UsageError(f"--var {name}: not UTF-8")
    return {**declared, **{name: plain(text) for name, text in variables.items()}}


def _secrets(variables: Mapping[str, str], hidden: Collection[str] = ()) -> dict[str, str]:
    return {name: text for name, text in variables.items() if name in hidden or SECRET_NAME.fullmatch(name)}


def _judges(declared: Any, judges: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = dict(declared) if isinstance(declared, dict) else {}
    for name, text in judges.items():
        provider, _, model = text.partition(":")
        if name not in found:
            known = ", ".join(map(str, found)) or "none"
            raise UsageError(f"--judge {name}: the suite has no such judge (it has: {known})")
        if provider not in JUDGES or not model or provider == "recorded":
            raise UsageError(f"--judge {name}={text}: write PROVIDER:MODEL with the provider openai or gemini")
        found[name] = {"provider": provider, "model": model}
    return found


@dataclass(frozen=True, slots=True)
class _Validated:
    """A suite that its model accepts: the whole, or what is left without the broken parts."""

    suite: Suite
    broken: frozenset[str] = frozenset()
    """The top-level keys that something is wrong in or missing from."""
    kept: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """For each list that lost entries: where the entries that are left stood."""

    def origin(self, loc: Loc) -> Loc | None:
        """A path in this suite as a path in the document; ``None`` for a part that the document does not have."""
        if len(loc) < 2 or loc[0] not in self.kept or not isinstance(loc[1], int):
            return loc
        kept = self.kept[str(loc[0])]
        return (loc[0], kept[loc[1]], *loc[2:]) if loc[1] < len(kept) else None


_LISTS = ("cases", "models", "graders", "verdict", "gates")
_STAND_INS: Mapping[str, Any] = {
    "name": "unnamed",
    "cases": [{"id": "none", "prompt": "none"}],
    "models": [{"provider": "sketch"}],
    "graders": [{"key": "image", "type": "image"}],
    "verdict": ["image"],
}


def _validated(document: Document) -> _Validated:
    """The suite, with a problem for everything that its model refuses; the rest of it can still be checked."""
    broken = {"cases"} if document.problems else set()
    try:
        return _Validated(Suite.model_validate(document.data), frozenset(broken))
    except ValidationError as error:
        errors = error.errors(include_url=False)
    if broken:  # a file of cases could not be read, which leaves no other reason to say that there are none
        errors = [each for each in errors if each["loc"] != ("cases",)]
    document.report_misfits(errors, suite_schema())
    bad = {tuple(each["loc"][:2]) for each in errors}
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
    return _Validated(Suite.model_validate({**_STAND_INS, **data}), frozenset(broken), kept)
