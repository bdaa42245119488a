"""What ``action.yml`` runs in a job of GitHub Actions: all suites, with one outcome. ``pull_request`` publishes it.

The inputs of the action come in environment variables, so that a shell reads none of them as a command.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from visioneval.analysis.redaction import CASE
from visioneval.cli.options import pairs
from visioneval.cli.pull_request import RESULTS, notice, shortened, without_thumbnails
from visioneval.cli.workflows import baseline_names
from visioneval.errors import ExitCode, SuiteError, UsageError, VisionEvalError
from visioneval.records.model import read_info
from visioneval.suite.filters import chain_of

RUNS, SHARDS = Path("visioneval-runs"), Path("visioneval-shards")
"""Like ``RESULTS``, each has a folder for each use of the action in a job: none publishes what another redacts."""
_REFUSED_FLAGS = {
    "--runs": "each use of the action has its own folder",
    "--run-id": "the input 'name' is the end of the ID",
    "--markdown": "the action writes it",
    "--junit": "the action writes it",
    "--no-fail": "the gates decide",
    "--redact": "use the input 'redact', which reaches all commands",
    "--trust-suite": "suites of pull requests are never trusted",
}
"""The flags of ``run`` that ``run-flags`` may not have, with the reasons."""


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _flags(flag: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (flag, value)]


def _suite_names(text: str) -> dict[str, str]:
    """The names of suites, by path. Raises ``UsageError``."""
    if names := baseline_names(_lines(text), "suites:"):
        return names
    raise UsageError("suites: name at least one")


def _run_flags(text: str) -> list[str]:
    """The words of ``run-flags``, quoted as in a shell. Raises ``UsageError``."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"run-flags: {text!r}: {str(error).lower()}") from None
    for word in words:
        flag = word.partition("=")[0]
        if flag in _REFUSED_FLAGS:
            raise UsageError(f"run-flags: leave out {flag}: {_REFUSED_FLAGS[flag]}")
    return words


def _values_of(flag: str, words: Sequence[str]) -> list[str]:
    """The values of a flag, which may be a word of their own."""
    after = [value for word, value in pairwise(words) if word == flag]
    return after + [word.removeprefix(f"{flag}=") for word in words if word.startswith(f"{flag}=")]


def _is_true(name: str, values: Mapping[str, str]) -> bool:
    """An input that is true or false. Raises ``UsageError``."""
    if (value := values[name.upper()]) not in ("true", "false"):
        raise UsageError(f"{name}: true or false, not {value!r}")
    return value == "true"


@dataclass(frozen=True)
class Inputs:
    """The inputs of the action, checked."""

    suites: Mapping[str, str]
    """The name of each suite, by path."""
    baselines: Mapping[str, str]
    is_offline: bool
    is_merge: bool
    has_images: bool
    cache: str
    budget: str
    confirm: str
    fail_on: list[str]
    allow: list[str]
    redact: list[str]
    run_flags: list[str]
    shard: str
    name: str

    @classmethod
    def read(cls, values: Mapping[str, str]) -> Inputs:
        """Raises ``UsageError``."""
        suites = _suite_names(values["SUITES"])
        baselines = _lines(values["BASELINE"]) or list(suites.values())
        if len(baselines) != len(suites):
            raise UsageError(f"baseline: {len(baselines)} for {len(suites)} suites: name one for each suite, or none")
        is_offline, is_merge, has_images, _ = (
            _is_true(name, values) for name in ("offline", "merge", "images", "comment")
        )
        if values["CONFIRM"] and is_offline:
            raise UsageError("confirm: new samples need calls: set 'offline' to false")
        if not re.fullmatch(r"(\d+/\d+)?", values["SHARD"]):
            raise UsageError(f"shard: {values['SHARD']!r}: the number of the shard and of all, such as 2/4")
        if values["SHARD"] and is_merge:
            raise UsageError("shard and merge: a job runs a shard or merges all, so leave one out")
        if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", values["NAME"]):
            raise UsageError(f"name: {values['NAME']!r}: use letters, digits, _ - and . (not first)")
        return cls(
            suites=suites,
            baselines=dict(zip(suites, baselines, strict=True)),
            is_offline=is_offline,
            is_merge=is_merge,
            has_images=has_images,
            cache=values["CACHE"],
            budget=values["BUDGET"],
            confirm=values["CONFIRM"],
            fail_on=_lines(values["FAIL_ON"]),
            allow=_lines(values["ALLOW"]),
            redact=_lines(values["REDACT"]),
            run_flags=_run_flags(values["RUN_FLAGS"]),
            shard=values["SHARD"],
            name=values["NAME"],
        )

    def run_id(self, suite: str) -> str:
        """The ID of a suite's run."""
        return f"{self.suites[suite]}-{self._shard_name or self.name}"

    @property
    def _shard_name(self) -> str:
        return self.shard and f"shard-{self.shard.partition('/')[0]}"

    @property
    def artifact(self) -> str:
        """The name of the artifact, and of the folders of runs and results."""
        return f"{self.name}-{self._shard_name}" if self.shard else self.name

    @property
    def runs(self) -> Path:
        return RUNS / self.artifact

    @property
    def results(self) -> Path:
        return RESULTS / self.artifact

    def overrides(self, flag: str) -> list[str]:
        """The values of ``--var`` or ``--judge`` in ``run-flags``."""
        return _values_of(flag, self.run_flags)

    def upload(self) -> dict[str, object]:
        """The artifact. Runs have all outputs: where cases are redacted, only shards are uploaded, for a day."""
        if self.shard:
            return {"artifact": self.artifact, "paths": self.runs, "days": 1 if self.redact else 0}
        paths = self.results if self.redact else f"{self.results}\n{self.runs}"
        return {"artifact": self.artifact, "paths": paths, "days": 0}


@dataclass(frozen=True)
class Evaluated:
    """A suite after its commands."""

    name: str
    code: ExitCode
    outcome: str
    markdown: str


def run(values: Mapping[str, str]) -> ExitCode:
    """Evaluates all suites, also after one that failed. Returns the most severe exit code."""
    try:
        inputs = Inputs.read(values)
        _clear(inputs)
        redact = _redacted(inputs)
    except UsageError as error:
        print(f"::error title=visioneval::{error}")
        _output(values, code=ExitCode.USAGE, outcome=str(error))
        return ExitCode.USAGE
    done = [_evaluate(suite, inputs, redact[suite]) for suite in inputs.suites]
    with_run = [suite for suite in inputs.suites if (inputs.runs / inputs.run_id(suite)).is_dir()]
    if with_run and not inputs.shard:
        tags = dict.fromkeys(tag for suite in with_run for tag in redact[suite].of_run)
        site = ("site", "--output", inputs.results / "site", "--runs", inputs.runs)
        if _visioneval(*site, *_flags("--redact", list(tags))):
            notice("the site was not written: see the log")
    code = ExitCode.most_severe(suite.code for suite in done)
    outcome = _outcome(done, code)
    (inputs.results / "comment.md").write_text(shortened([suite.markdown for suite in done]), encoding="utf-8")
    with Path(values["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as file:
        file.write(without_thumbnails("\n".join(suite.markdown for suite in done)))
    print(f"visioneval: {outcome}")
    _output(values, code=code, outcome=outcome, results=inputs.results, **inputs.upload())
    return code


def _clear(inputs: Inputs) -> None:
    """Deletes what an earlier job, or a commit, left in the folders of runs and results. Raises ``UsageError``."""
    try:
        for folder in (inputs.runs, inputs.results):
            if folder.exists():
                shutil.rmtree(folder)
        inputs.results.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot empty this folder: {error.strerror or error}") from None


@dataclass(frozen=True)
class _Redacted:
    """The values of ``--redact`` for a suite's commands, which refuse one that no case has."""

    of_run: tuple[str, ...]
    """Tags of the suite, and as ``case:ID`` the cases of the same name that have lost one since the baseline."""
    of_comparison: tuple[str, ...]
    """Tags of the suite or of its baseline."""


def _redacted(inputs: Inputs) -> dict[str, _Redacted]:
    """What is redacted of each suite.

    A suite that cannot be loaded gets all tags: its commands fail too. Raises ``UsageError`` for a tag that neither a
    loaded suite nor its baseline has, as a mistyped one would hide nothing.
    """
    from visioneval.suite.load import load_suite

    flags = {flag: pairs(flag, "NAME=VALUE", inputs.overrides(flag)) for flag in ("--var", "--judge")}
    known: dict[str, dict[str, set[str]]] = {}
    before = {suite: _baseline_cases(inputs, suite) for suite in inputs.suites if inputs.redact}
    broken: list[str] = []
    for suite in before:
        try:
            loaded = load_suite(Path(suite), variables=flags["--var"], judges=flags["--judge"], run_labels=lambda _: [])
            known[suite] = _by_case((case.id, case.tags) for case in loaded.suite.cases)
        except SuiteError:
            broken.append(suite)
    for tag in inputs.redact:
        if known and not any(tag in tags for suite in known for tags in _tags(known[suite], before[suite])):
            but = f"; {', '.join(broken)} cannot be read: see 'visioneval validate'" if broken else ""
            raise UsageError(f"redact: {tag!r}: no case of any suite has this tag{but}")
    return {suite: _redacted_of(inputs.redact, known.get(suite), before.get(suite, {})) for suite in inputs.suites}


def _redacted_of(
    chosen: Sequence[str], cases: Mapping[str, set[str]] | None, before: Mapping[str, set[str]]
) -> _Redacted:
    """What is redacted of a suite with these tags of cases, which are ``None`` if it is broken, and of its baseline."""
    if cases is None:
        return _Redacted(tuple(chosen), tuple(chosen))
    of_run = [tag for tag in chosen if any(tag in tags for tags in cases.values())]
    lost = [f"{CASE}{name}" for name in cases if (before.get(name, set()) - cases[name]).intersection(chosen)]
    of_comparison = [tag for tag in chosen if any(tag in tags for tags in _tags(cases, before))]
    return _Redacted((*of_run, *lost), tuple(of_comparison))


def _tags(*sides: Mapping[str, set[str]]) -> Iterator[set[str]]:
    return (tags for side in sides for tags in side.values())


def _baseline_cases(inputs: Inputs, suite: str) -> dict[str, set[str]]:
    """The tags of the cases of a suite's baseline, as the suite may have lost one. A broken baseline has none."""
    from visioneval.analysis.run_lookup import read_side

    with suppress(VisionEvalError):
        cells = read_side(f"baseline:{inputs.baselines[suite]}", inputs.runs).cells
        return _by_case((cell.test_id, cell.tags) for cell in cells)
    return {}


def _by_case(tags: Iterable[tuple[str, Iterable[str]]]) -> dict[str, set[str]]:
    """The tags of each case, of all of its turns together, as they are redacted together."""
    cases: dict[str, set[str]] = {}
    for case_id, of_case in tags:
        cases.setdefault(chain_of(case_id), set()).update(of_case)
    return cases


def _secret_variables(inputs: Inputs, run_id: str) -> list[str]:
    """``--var`` of ``run-flags`` for the variables whose values the run does not store, as new samples need them."""
    with suppress(VisionEvalError):
        hidden = read_info(inputs.runs / run_id).hidden_vars
        return [value for value in inputs.overrides("--var") if value.partition("=")[0] in hidden]
    return []


def _evaluate(suite: str, inputs: Inputs, redact: _Redacted) -> Evaluated:
    """Runs a suite or merges its shards, and compares the run with the baseline."""
    name, run_id, results = inputs.suites[suite], inputs.run_id(suite), inputs.results
    files = {
        kind: results / f"{name}-{kind}" for kind in ("run.md", "run.xml", "compare.md", "compare.xml", "compare.html")
    }
    runs, hidden = ("--runs", inputs.runs), _flags("--redact", redact.of_run)
    report = ("--run-id", run_id, *runs, "--markdown", files["run.md"], "--junit", files["run.xml"])
    calls = () if inputs.is_offline else ("--budget", inputs.budget)
    validated = ExitCode.PASSED
    if inputs.is_merge:
        start = f"{name}-shard-"
        folders = sorted((SHARDS / inputs.name).glob(f"{start}*"))
        shards = [folder for folder in folders if folder.name.removeprefix(start).isdigit()]
        if shards:
            evaluated = _visioneval("merge", *shards, *report, *hidden)
        else:
            print(f"::error title=visioneval::{suite}: this workflow run has no shards of it to merge")
            evaluated = ExitCode.USAGE
    else:
        replay = ("--offline", "--cache", inputs.cache) if inputs.is_offline else ()
        shard = ("--shard", inputs.shard) if inputs.shard else ()
        overrides = [word for flag in ("--var", "--judge") for word in _flags(flag, inputs.overrides(flag))]
        validated = _visioneval("validate", suite, "--format", "github", *overrides)
        evaluated = _visioneval("run", suite, *report, *shard, *replay, *calls, *inputs.run_flags, *hidden)
    compared = ExitCode.PASSED
    if not inputs.shard:
        secrets = _flags("--var", _secret_variables(inputs, run_id))
        compared = _visioneval(
            *("compare", f"baseline:{inputs.baselines[suite]}", run_id),
            *_flags("--redact", redact.of_comparison),
            *(*_flags("--fail-on", inputs.fail_on), *_flags("--allow", inputs.allow)),
            *runs,
            *(("--confirm", inputs.confirm, *calls, *secrets) if inputs.confirm else ()),
            *("--markdown", files["compare.md"], "--junit", files["compare.xml"], "--html", files["compare.html"]),
            *(("--thumbnails", results / "thumbnails") if inputs.has_images else ()),
            *(("--cache", inputs.cache) if inputs.has_images and inputs.is_offline else ()),
        )
    code = ExitCode.most_severe([validated, evaluated, compared])
    texts = {kind: files[kind].read_text(encoding="utf-8") for kind in ("compare.md", "run.md") if files[kind].exists()}
    by_file = {"compare.md": compared, "run.md": evaluated}
    decisive = next((kind for kind in texts if by_file[kind] == code), None)
    if validated == code == ExitCode.USAGE:
        outcome = "The suite is not valid: see the log of the job"
    elif decisive is None:
        outcome = f"exit code {code}, see the log of the job"
    else:
        title, *rest = texts[decisive].splitlines()
        outcome = " ".join(title.lstrip("# ").partition(": ")[2].replace("`", "").split())
        if decisive == "compare.md" and (counts := re.fullmatch(r"- \*\*(.+)\*\*", "".join(rest[1:2]))):
            outcome += f": {counts[1]}"
    return Evaluated(name, code, outcome, "\n".join(texts.values()))


def _outcome(done: Sequence[Evaluated], code: int) -> str:
    """The outcome of all suites in one line, with that of the first of the most severe ones."""
    worst = next(suite for suite in done if suite.code == code)
    if len(done) == 1:
        return worst.outcome
    failed = sum(suite.code != ExitCode.PASSED for suite in done)
    if not failed:
        return f"All gates of {len(done)} suites passed"
    return f"{failed} of {len(done)} suites did not pass; {worst.name}: {worst.outcome}"


def _visioneval(*arguments: str | Path) -> ExitCode:
    """Runs a command. Its exit code; one that the system killed, such as without memory, is ``INCOMPLETE``."""
    words = list(map(str, arguments))
    print("[command]visioneval", *words, flush=True)
    command = [sys.executable, "-P", "-m", "visioneval", *words]
    code = subprocess.run(command, check=False).returncode  # noqa: S603 - Python itself, without a shell
    if code in {*ExitCode}:
        return ExitCode(code)
    reason = f"signal {-code}" if code < 0 else f"exit code {code}"
    print(f"::error title=visioneval::{words[0]} was ended by {reason}", flush=True)
    return ExitCode.INCOMPLETE


def _output(values: Mapping[str, str], *, code: ExitCode, **outputs: object) -> None:
    """Sets outputs of the step. None has a line ``END``."""
    with Path(values["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
        file.writelines(f"{name}<<END\n{value}\nEND\n" for name, value in {"code": int(code), **outputs}.items())


if __name__ == "__main__":
    raise SystemExit(run(os.environ))
