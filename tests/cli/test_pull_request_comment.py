"""What a pull request shows of its suites: a comment of the length that GitHub takes, its images, and a commit status."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from github_api import FORK_TOKEN, JOB_TOKEN, USER_TOKEN, FakeGitHub, fake_github
from test_action import environment_of

from visioneval.cli import pull_request

PAGE = "https://github.com/owner/shop/actions/runs/5"
COMMENT = "<!-- visioneval: visioneval -->\n"


def suite_text(rows: int) -> str:
    lines = "".join(f"| case{number} | a long reason of a judge |\n" for number in range(rows))
    return f"## A\n\n<details><summary>Rows</summary>\n\n{lines}\n</details>\n"


def test_a_comment_that_is_too_long_has_a_share_of_each_suite() -> None:
    short, long = suite_text(10), suite_text(2_000)
    assert pull_request.shortened([short, short]) == f"{short}\n{short}"
    for texts in ([short, long], [long], [long, long, short, long], ["x" * 70_000]):
        shortened = pull_request.shortened(texts)
        assert len(shortened) <= pull_request.MAX_COMMENT
        assert shortened.count("_Shortened: ") == sum(text != short for text in texts)
        assert shortened.count("<details>") == shortened.count("</details>")
        assert shortened.count("| case9 |") == shortened.count("## A")
        cut_lines = [line for line in shortened.splitlines() if line.startswith("| case")]
        assert all(line.endswith(" |") for line in cut_lines)


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGitHub]:
    (tmp_path / "bin").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    with fake_github(tmp_path / "bin") as server:
        yield server


def post(text: str | None, *, token: str = JOB_TOKEN, **inputs: str) -> None:
    """Runs the step after a run that wrote this text."""
    if text is not None:
        results = Path("visioneval-results/visioneval")
        results.mkdir(parents=True, exist_ok=True)
        (results / "comment.md").write_text(text, encoding="utf-8")
    pull_request.post(
        {
            **environment_of("python -P -m visioneval.cli.pull_request", **inputs),
            "TOKEN": token,
            "NUMBER": "7",
            "SHA": "0abc",
            "ARTIFACT": f"{PAGE}/artifacts/9",
            **dict.fromkeys(("CODE", "OUTCOME", "RESULTS"), ""),
            **({"CODE": "1", "OUTCOME": "A gate failed", "RESULTS": str(results)} if text is not None else {}),
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_REPOSITORY": "owner/shop",
            "GITHUB_RUN_ID": "5",
        }
    )


def test_a_comment_is_replaced_and_those_of_others_stay(github: FakeGitHub) -> None:
    others = [
        ("github-actions[bot]", "Coverage: 81 %"),
        ("eve", f"{COMMENT}All gates passed"),
        ("github-actions[bot]", "<!-- visioneval: nightly -->\nAll gates passed"),
    ]
    for login, body in others:
        github.add(login, body)
    post("## First\n")
    post("## Second\n")
    link = f"([all images and reports]({PAGE}/artifacts/9))"
    assert github.bodies == [*others, ("github-actions[bot]", f"{COMMENT}**A gate failed** {link}\n\n## Second\n")]


def test_the_status_of_the_commit_is_the_outcome(github: FakeGitHub) -> None:
    post("## Text\n")
    fields = {"state": "failure", "context": "visioneval", "description": "A gate failed", "target_url": PAGE}
    assert github.statuses == [("0abc", fields)]


def test_a_job_without_an_outcome_is_an_error(github: FakeGitHub) -> None:
    post(None)
    ((_, fields),) = github.statuses
    assert (fields["state"], fields["description"]) == ("error", "visioneval did not run: see the log of the job")
    assert "visioneval did not run" in github.bodies[0][1]


def test_a_token_of_a_fork_is_a_notice(github: FakeGitHub, capsys: pytest.CaptureFixture[str]) -> None:
    post("## Text\n", token=FORK_TOKEN)
    assert (github.comments, github.statuses) == ([], [])
    why = "gh: Resource not accessible by integration (HTTP 403): the token of a pull request from a fork only reads"
    assert capsys.readouterr().out.splitlines() == [
        f"::notice title=visioneval::no commit status: {why}. The summary of the job has the text",
        f"::notice title=visioneval::no comment: {why}. The summary of the job has the text",
    ]


@pytest.mark.parametrize("printed", ["<html>busy</html>", '{"message": "moved"}', "[null, 3]", '[{"id": 1}][{}]'])
def test_an_answer_of_another_form_costs_no_status(
    github: FakeGitHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], printed: str
) -> None:
    gh = pull_request._gh

    def answer(failure: str, *words: str, **settings: Any) -> str | None:
        return printed if "--paginate" in words else gh(failure, *words, **settings)

    monkeypatch.setattr(pull_request, "_gh", answer)
    post("## Text\n")
    assert (len(github.comments), len(github.statuses)) == (1, 1)
    is_json = printed[0] != "<"
    assert ("an answer of GitHub is no JSON, and is ignored" in capsys.readouterr().out) == (not is_json)


def test_without_the_earlier_comments_no_second_one_is_written(
    github: FakeGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    gh = pull_request._gh
    monkeypatch.setattr(
        pull_request, "_gh", lambda *words, **settings: None if "--paginate" in words else gh(*words, **settings)
    )
    post("## Text\n")
    assert (github.comments, len(github.statuses)) == ([], 1)


THUMBNAILS = (
    "| `bread` | ![bread: A, B](thumbnails/bread-1.webp) |\n| `soup` | ![soup \\[x\\]: B](thumbnails/soup-2.webp) |\n"
)
WITHOUT = "| `bread` | (image in the artifact) |\n| `soup` | (image in the artifact) |\n"


@pytest.fixture
def thumbnails(github: FakeGitHub) -> str:
    folder = Path("visioneval-results/visioneval/thumbnails")
    folder.mkdir(parents=True)
    for name in ("bread-1", "soup-2"):
        (folder / f"{name}.webp").write_bytes(name.encode())
    assert not github.assets
    return THUMBNAILS


def test_thumbnails_are_attached_with_the_token_of_a_user(github: FakeGitHub, thumbnails: str) -> None:
    github.add("ada", f"{COMMENT}Before")
    github.add("github-actions[bot]", f"{COMMENT}Before")
    inputs = {"images": "true", "images-token": USER_TOKEN}
    post(thumbnails, **inputs)
    assert list(github.assets.values()) == [b"bread-1", b"soup-2"]
    assert [login for login, _ in github.bodies] == ["github-actions[bot]", "ada"]
    assert [address in github.bodies[1][1] for address in github.assets] == [True, True]
    assert "thumbnails/" not in github.bodies[1][1]
    assert len(github.statuses) == 1


def test_nothing_is_attached_where_nothing_broke(github: FakeGitHub) -> None:
    github.add("ada", f"{COMMENT}Before")
    post("## Fine\n", **{"images": "true", "images-token": USER_TOKEN})
    assert [(login, body.endswith("## Fine\n")) for login, body in github.bodies] == [("ada", True)]


@pytest.mark.parametrize(
    ("token", "notice"),
    [
        ("", "no images in the comment: images-token is empty, as it is in pull requests from forks"),
        (JOB_TOKEN, "no images in the comment: unsupported authentication type."),
    ],
)
def test_without_a_token_of_a_user_the_comment_names_the_artifact(
    github: FakeGitHub, thumbnails: str, token: str, notice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    post(thumbnails, **{"images": "true", "images-token": token})
    assert github.assets == {}
    ((_, body),) = github.bodies
    assert body.endswith(WITHOUT)
    assert notice in capsys.readouterr().out


def test_a_comment_from_no_user_or_without_a_text_is_none_of_ours(github: FakeGitHub) -> None:
    github.comments.append({"id": 1, "user": None, "body": f"{COMMENT}Before"})
    github.comments.append({"id": 2, "user": {"login": "github-actions[bot]"}, "body": None})
    post("## Text\n")
    assert [comment["id"] for comment in github.comments] == [1, 2, 3]


def test_only_thumbnails_that_exist_are_attached(github: FakeGitHub, thumbnails: str) -> None:
    others = "![a](thumbnails/gone-3.webp) ![b](thumbnails/../secret.webp) ![c](thumbnails/a.png) ![](secret.webp)\n"
    Path("visioneval-results/visioneval/secret.webp").write_bytes(b"secret")
    post(thumbnails + others, **{"images": "true", "images-token": USER_TOKEN})
    assert list(github.assets.values()) == [b"bread-1", b"soup-2"]
    assert "\n(image in the artifact) ![b](thumbnails/../secret.webp)" in github.bodies[0][1]


def test_text_that_only_begins_like_thumbnails_is_read_once() -> None:
    """In quadratic time, this would take an hour."""
    text = "![" * 500_000
    assert pull_request.without_thumbnails(text) == text


def test_without_gh_there_is_a_notice(
    github: FakeGitHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(github.folder / "empty"))
    post("## Text\n")
    assert "no commit status: gh: No such file or directory" in capsys.readouterr().out
