"""What ``action.yml`` shows on a pull request after its suites: a comment, and a status of the commit."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path("visioneval-results")
"""Has a folder for each use of the action in a job."""
MAX_COMMENT = 60_000
"""Characters of the suites; GitHub refuses a comment of more than 65,536."""
MAX_STATUS = 140
BOT = "github-actions[bot]"
"""The author of what the token of a job writes."""
_THUMBNAIL = re.compile(r"!\[(?:\\.|[^\[\]\\\n])*\]\((thumbnails/[a-z0-9-]+\.webp)\)")
"""An image that ``compare --thumbnails`` wrote."""
_NO_THUMBNAIL = "(image in the artifact)"


def shortened(texts: Sequence[str]) -> str:
    """The texts of all suites for a comment. If they are too long, each is cut to its share, and says so."""
    if sum(map(len, texts)) + len(texts) <= MAX_COMMENT:
        return "\n".join(texts)
    return "\n".join(_cut(text, MAX_COMMENT // len(texts)) for text in texts)


def _cut(text: str, share: int) -> str:
    """The first lines of a text, with a note if there are more. A block that can be folded is closed."""
    if len(text) < share:
        return text
    note = "\n\n_Shortened: the summary of the job and the artifact have the rest._\n"
    end = "\n\n</details>"
    shown = text[: max(share - len(note) - len(end) - 1, 0)].rpartition("\n")[0]
    is_open = shown.count("<details>") > shown.count("</details>")
    return f"{shown}{end * is_open}{note}"


def without_thumbnails(text: str) -> str:
    """A text for a place that shows no images of a job."""
    return _THUMBNAIL.sub(_NO_THUMBNAIL, text)


def post(values: Mapping[str, str]) -> None:
    """Writes the comment on the pull request and the status of its commit, or a notice that says why it cannot."""
    outcome = values["OUTCOME"] or "visioneval did not run: see the log of the job"
    results = Path(values["RESULTS"] or RESULTS)
    results.mkdir(parents=True, exist_ok=True)
    path = results / "comment.md"
    text = path.read_text(encoding="utf-8") if values["RESULTS"] and path.exists() else ""
    fields = {
        "state": {"0": "success", "1": "failure"}.get(values["CODE"], "error"),
        "context": values["NAME"],
        "description": outcome[:MAX_STATUS],
        "target_url": "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}".format_map(values),
    }
    address = f"repos/{values['GITHUB_REPOSITORY']}/statuses/{values['SHA']}"
    words = [f"--raw-field={name}={value}" for name, value in fields.items()]
    _gh("no commit status", "api", address, *words, token=values["TOKEN"])
    link = f" ([all images and reports]({values['ARTIFACT']}))" if values["ARTIFACT"] else ""
    marker = f"<!-- visioneval: {values['NAME']} -->"
    _comment(marker, f"{marker}\n**{outcome}**{link}\n\n{text}", results, values)


def _comment(marker: str, text: str, results: Path, values: Mapping[str, str]) -> None:
    """Replaces the comment that begins with the marker: by a new one with images, as ``gh`` attaches to no other."""
    has_images = values["IMAGES"] == "true" and bool(values["IMAGES_TOKEN"])
    token = values["IMAGES_TOKEN"] if has_images else values["TOKEN"]
    user = next(_objects(_gh("no name of a user", "api", "user", token=token)), {}) if has_images else {"login": BOT}
    comments = f"repos/{values['GITHUB_REPOSITORY']}/issues/{values['NUMBER']}/comments"
    listed = _gh("no comment, as the earlier ones were not read", "api", "--paginate", comments, token=token)
    if listed is None:  # a second comment would stay beside the first
        return
    earlier = [
        f"repos/{values['GITHUB_REPOSITORY']}/issues/comments/{comment['id']}"
        for comment in _objects(listed)
        if _is_by(user, comment) and (comment.get("body") or "").startswith(marker)
    ]
    files = [name for name in dict.fromkeys(_THUMBNAIL.findall(text)) if (results / name).is_file()]
    (results / "comment.md").write_text(
        _THUMBNAIL.sub(lambda match: match[0] if match[1] in files else _NO_THUMBNAIL, text), encoding="utf-8"
    )
    if has_images and files:
        words = (
            "--repo",
            values["GITHUB_REPOSITORY"],
            "--body-file",
            "comment.md",
            *(f"--attach={name}" for name in files),
        )
        pull_request = ("pr", "comment", values["NUMBER"])
        if _gh("no images in the comment", *pull_request, *words, token=token, folder=results) is not None:
            for address in earlier:
                _gh("an earlier comment stays", "api", "--method", "DELETE", address, token=token)
            return
    elif values["IMAGES"] == "true" and files:
        notice("no images in the comment: images-token is empty, as it is in pull requests from forks")
    (results / "comment.md").write_text(without_thumbnails(text), encoding="utf-8")
    where = ("--method", "PATCH", earlier[-1]) if earlier else ("--method", "POST", comments)
    _gh("no comment", "api", *where, "--field", "body=@comment.md", token=token, folder=results)


def _is_by(user: Mapping[str, Any], comment: Mapping[str, Any]) -> bool:
    """Whether a user wrote a comment, neither of whom may be known."""
    return user.get("login") is not None and (comment.get("user") or {}).get("login") == user["login"]


def _objects(printed: str | None) -> Iterator[dict[str, Any]]:
    """The objects that ``gh`` printed: one, or lists of them, a page after the other. What is no JSON has none."""
    rest = (printed or "").strip()
    while rest:
        try:
            page, end = json.JSONDecoder().raw_decode(rest)
        except ValueError:
            notice("an answer of GitHub is no JSON, and is ignored")
            return
        yield from (item for item in (page if isinstance(page, list) else [page]) if isinstance(item, dict))
        rest = rest[end:].lstrip()


def _gh(failure: str, *arguments: str, token: str, folder: Path | None = None) -> str | None:
    """What ``gh`` prints in a folder. A notice and ``None`` if it fails: a token that only reads fails no job."""
    try:
        done = subprocess.run(  # noqa: S603 - its own options
            ["gh", *arguments],  # noqa: S607 - found in the PATH, as on every runner of GitHub
            cwd=folder,
            env={**os.environ, "GH_TOKEN": token},
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        notice(f"{failure}: gh: {error.strerror}")
        return None
    if done.returncode:
        why = done.stderr.strip().partition("\n")[0] or f"gh exited with {done.returncode}"
        hint = ": the token of a pull request from a fork only reads" if "403" in why else ""
        notice(f"{failure}: {why}{hint}. The summary of the job has the text")
        return None
    return done.stdout


def notice(text: str) -> None:
    """An annotation of the job, which does not fail it."""
    print(f"::notice title=visioneval::{text}")


if __name__ == "__main__":
    post(os.environ)
