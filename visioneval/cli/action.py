"""What ``action.yml`` runs in a job of GitHub Actions: all suites, and then a comment with a commit status.

The inputs of the action come in environment variables, so that a shell reads none of them as a command.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visioneval.cli.start import baseline_names
from visioneval.errors import ExitCode, SuiteError, UsageError

RESULTS = Path("visioneval-results")
"""Where a job writes what it uploads beside the runs."""
SHARDS = Path("visioneval-shards")
MAX_COMMENT = 60_000
"""Characters; GitHub refuses more than 65,536."""
MAX_STATUS = 140
BOT = "github-actions[bot]"
"""The author of what the token of a job writes."""
_THUMBNAIL = re.compile(r"!\[(?:\\.|[^\]\\])*\]\((thumbnails/[^)]+)\)")


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _flags(flag: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (flag, value)]


def _suite_names(text: str) -> dict[str, str]:
    """The names of suites, by path. Raises ``UsageError``."""
    names = baseline_names([line.removeprefix("./") for line in _lines(text)])
    if not names:
        raise UsageError("suites: name at least one")
    for suite, name in names.items():
        if list(names.values()).count(name) > 1:
            raise UsageError(f"suites: {suite}: {name!r} would name two baselines: rename the file")
    return names


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
        is_offline, is_merge = _is_true("offline", values), _is_true("merge", values)
        if values["CONFIRM"] and is_offline:
            raise UsageError("confirm: new samples need calls: set 'offline' to false")
        if not re.fullmatch(r"(\d+/\d+)?", values["SHARD"]):
            raise UsageError(f"shard: {values['SHARD']!r}: the number of the shard and of all, such as 2/4")
        if values["SHARD"] and is_merge:
            raise UsageError("shard and merge: a job runs a shard or merges all, so leave one out")
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", values["NAME"]):
            raise UsageError(f"name: {values['NAME']!r}: use letters, digits, _ - and .")
        return cls(
            suites=suites,
            baselines=dict(zip(suites, baselines, strict=True)),
            is_offline=is_offline,
            is_merge=is_merge,
            has_images=_is_true("images", values),
            cache=values["CACHE"],
            budget=values["BUDGET"],
            confirm=values["CONFIRM"],
            fail_on=_lines(values["FAIL_ON"]),
            allow=_lines(values["ALLOW"]),
            redact=_lines(values["REDACT"]),
            run_flags=values["RUN_FLAGS"].split(),
            shard=values["SHARD"],
            name=values["NAME"],
        )

    def run_id(self, suite: str) -> str:
        """The ID of a suite's run."""
        return f"{self.suites[suite]}-{self._shard_name or self.name}"

    @property
    def _shard_name(self) -> str:
        return self.shard and f"shard-{self.shard.partition('/')[0]}"

    def upload(self) -> dict[str, object]:
        """The artifact. Runs have all outputs: where cases are redacted, only shards are uploaded, for a day."""
        if self.shard:
            return {"artifact": f"{self.name}-{self._shard_name}", "paths": "runs", "days": 1 if self.redact else 0}
        paths = RESULTS if self.redact else f"{RESULTS}\nruns"
        return {"artifact": self.name, "paths": paths, "days": 0}


@dataclass(frozen=True)
class Evaluated:
    """A suite after its commands."""

    name: str
    code: int
    outcome: str
    markdown: str


def run(values: Mapping[str, str]) -> ExitCode:
    """Evaluates all suites, also after one that failed. Returns the most severe exit code."""
    RESULTS.mkdir(exist_ok=True)
    try:
        inputs = Inputs.read(values)
        redact = _redacted_tags(inputs)
    except UsageError as error:
        print(f"::error title=visioneval::{error}")
        _output(values, code=ExitCode.USAGE, outcome=str(error))
        return ExitCode.USAGE
    done = [_evaluate(suite, inputs, redact[suite]) for suite in inputs.suites]
    if not inputs.shard and any(Path("runs", inputs.run_id(suite)).is_dir() for suite in inputs.suites):
        tags = dict.fromkeys(tag for of_suite in redact.values() for tag in of_suite)
        _visioneval("site", "--output", RESULTS / "site", *_flags("--redact", list(tags)))
    code = ExitCode.most_severe(suite.code for suite in done)
    outcome = _outcome(done, code)
    markdown = "\n".join(suite.markdown for suite in done)
    (RESULTS / "comment.md").write_text(markdown, encoding="utf-8")
    with Path(values["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as file:
        file.write(without_thumbnails(markdown))
    print(f"visioneval: {outcome}")
    _output(values, code=code, outcome=outcome, **inputs.upload())
    return code


def _redacted_tags(inputs: Inputs) -> dict[str, list[str]]:
    """The tags to redact of each suite, as a command refuses one that no case has.

    A suite that cannot be loaded gets all of them: its commands fail too. Raises ``UsageError`` for a tag of no suite.
    """
    from visioneval.suite.load import load_suite

    known: dict[str, set[str]] = {}
    for suite in inputs.suites:
        try:
            cases = load_suite(Path(suite), run_labels=lambda _: []).suite.cases if inputs.redact else []
            known[suite] = {tag for case in cases for tag in case.tags}
        except SuiteError:
            known[suite] = set(inputs.redact)
    for tag in inputs.redact:
        if not any(tag in tags for tags in known.values()):
            raise UsageError(f"redact: {tag!r}: no case of any suite has this tag")
    return {suite: [tag for tag in inputs.redact if tag in tags] for suite, tags in known.items()}


def _evaluate(suite: str, inputs: Inputs, redact: list[str]) -> Evaluated:
    """Runs a suite or merges its shards, and compares the run with the baseline."""
    name, run_id = inputs.suites[suite], inputs.run_id(suite)
    files = {
        kind: RESULTS / f"{name}-{kind}" for kind in ("run.md", "run.xml", "compare.md", "compare.xml", "compare.html")
    }
    hidden = _flags("--redact", redact)
    report = ("--run-id", run_id, "--markdown", files["run.md"], "--junit", files["run.xml"])
    calls = () if inputs.is_offline else ("--budget", inputs.budget)
    if inputs.is_merge:
        codes = [_visioneval("merge", *sorted(SHARDS.glob(f"{name}-shard-*")), *report, *hidden)]
    else:
        replay = ("--offline", "--cache", inputs.cache) if inputs.is_offline else ()
        shard = ("--shard", inputs.shard) if inputs.shard else ()
        codes = [
            _visioneval("validate", suite, "--format", "github"),
            _visioneval("run", suite, *report, *shard, *replay, *calls, *inputs.run_flags, *hidden),
        ]
    compared = None
    if not inputs.shard and Path("runs", run_id).is_dir():
        compared = _visioneval(
            *("compare", f"baseline:{inputs.baselines[suite]}", run_id, *hidden),
            *(*_flags("--fail-on", inputs.fail_on), *_flags("--allow", inputs.allow)),
            *(("--confirm", inputs.confirm, *calls) if inputs.confirm else ()),
            *("--markdown", files["compare.md"], "--junit", files["compare.xml"], "--html", files["compare.html"]),
            *(("--thumbnails", RESULTS / "thumbnails") if inputs.has_images else ()),
            *(("--cache", inputs.cache) if inputs.has_images and inputs.is_offline else ()),
        )
    code = ExitCode.most_severe([*codes, compared or 0])
    texts = {kind: files[kind].read_text(encoding="utf-8") for kind in ("compare.md", "run.md") if files[kind].exists()}
    decided = "compare.md" if compared == code else "run.md"
    title, *rest = texts.get(decided, f"visioneval: exit code {code}, see the log of the job").splitlines()
    outcome = " ".join(title.lstrip("# ").partition(": ")[2].replace("`", "").split())
    if compared == code and (counts := re.fullmatch(r"- \*\*(.+)\*\*", "".join(rest[1:2]))):
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
    return f"{failed} of {len(done)} suites failed; {worst.name}: {worst.outcome}"


def without_thumbnails(markdown: str) -> str:
    """Markdown for a place that cannot show the files of thumbnails."""
    return _THUMBNAIL.sub("(image in the artifact)", markdown)


def _visioneval(*arguments: str | Path) -> int:
    words = list(map(str, arguments))
    print("[command]visioneval", *words, flush=True)
    command = [sys.executable, "-P", "-m", "visioneval", *words]
    return subprocess.run(command, check=False).returncode  # noqa: S603 - Python itself, without a shell


def _output(values: Mapping[str, str], *, code: ExitCode, **outputs: object) -> None:
    """Sets outputs of the step. None has a line ``END``."""
    with Path(values["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
        file.writelines(f"{name}<<END\n{value}\nEND\n" for name, value in {"code": int(code), **outputs}.items())


def post(values: Mapping[str, str]) -> None:
    """Writes the comment on the pull request and the status of its commit, or a notice that says why it cannot."""
    outcome = values["OUTCOME"] or "visioneval did not run: see the log of the job"
    path = RESULTS / "comment.md"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    link = f" ([all images and reports]({values['ARTIFACT']}))" if values["ARTIFACT"] else ""
    marker = f"<!-- visioneval: {values['NAME']} -->"
    _comment(marker, f"{marker}\n**{outcome}**{link}\n\n{text}"[:MAX_COMMENT], values)
    fields = {
        "state": {"0": "success", "1": "failure"}.get(values["CODE"], "error"),
        "context": values["NAME"],
        "description": outcome[:MAX_STATUS],
        "target_url": "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}".format_map(values),
    }
    address = f"repos/{values['GITHUB_REPOSITORY']}/statuses/{values['SHA']}"
    words = [f"--raw-field={name}={value}" for name, value in fields.items()]
    _gh("no commit status", "api", address, *words, token=values["TOKEN"])


def _comment(marker: str, text: str, values: Mapping[str, str]) -> None:
    """Replaces the comment that begins with the marker: by a new one with images, as ``gh`` attaches to no other."""
    has_images = values["IMAGES"] == "true" and bool(values["IMAGES_TOKEN"])
    token = values["IMAGES_TOKEN"] if has_images else values["TOKEN"]
    author = (
        json.loads(_gh("no name of a user", "api", "user", token=token) or "{}").get("login") if has_images else BOT
    )
    comments = f"repos/{values['GITHUB_REPOSITORY']}/issues/{values['NUMBER']}/comments"
    listed = _gh("no earlier comment was read", "api", "--paginate", comments, token=token) or ""
    earlier = [
        f"repos/{values['GITHUB_REPOSITORY']}/issues/comments/{comment['id']}"
        for comment in _items(listed)
        if comment["user"]["login"] == author and comment["body"].startswith(marker)
    ]
    files = dict.fromkeys(_THUMBNAIL.findall(text))
    (RESULTS / "comment.md").write_text(text, encoding="utf-8")
    if has_images and files:
        words = ("--repo", values["GITHUB_REPOSITORY"], "--body-file", "comment.md", *_flags("--attach", list(files)))
        if _gh("no images in the comment", "pr", "comment", values["NUMBER"], *words, token=token) is not None:
            for address in earlier:
                _gh("an earlier comment stays", "api", "--method", "DELETE", address, token=token)
            return
    elif values["IMAGES"] == "true" and files:
        _notice("no images in the comment: images-token is empty, as it is in pull requests from forks")
    (RESULTS / "comment.md").write_text(without_thumbnails(text), encoding="utf-8")
    where = ("--method", "PATCH", earlier[-1]) if earlier else ("--method", "POST", comments)
    _gh("no comment", "api", *where, "--field", "body=@comment.md", token=token)


def _items(listed: str) -> Iterator[dict[str, Any]]:
    """The items of all pages, which ``gh`` prints one after the other."""
    while listed := listed.lstrip():
        page, end = json.JSONDecoder().raw_decode(listed)
        yield from page
        listed = listed[end:]


def _gh(failure: str, *arguments: str, token: str) -> str | None:
    """What ``gh`` prints; after a notice ``None`` if it fails, as a token that only reads must not fail the job."""
    try:
        done = subprocess.run(  # noqa: S603 - its own options
            ["gh", *arguments],  # noqa: S607 - found in the PATH, as on every runner of GitHub
            cwd=RESULTS,
            env={**os.environ, "GH_TOKEN": token},
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        _notice(f"{failure}: gh: {error.strerror}")
        return None
    if done.returncode:
        why = done.stderr.strip().partition("\n")[0] or f"gh exited with {done.returncode}"
        _notice(
            f"{failure}: {why}. The token of a pull request from a fork only reads; the summary of the job has the text"
        )
        return None
    return done.stdout


def _notice(text: str) -> None:
    print(f"::notice title=visioneval::{text}")


if __name__ == "__main__":
    if sys.argv[1:] == ["post"]:
        post(os.environ)
    else:
        raise SystemExit(run(os.environ))
