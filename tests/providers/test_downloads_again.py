"""Paid outputs named by URL that could not be downloaded: another attempt is free, and is made when the run is resumed."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paid_answers
import pytest
from paid_answers import IMAGE, OTHER, Answers, PaidRun
from typer.testing import CliRunner
from web_pages import Page, Web, web

from visioneval.cli import app
from visioneval.providers import image_replies
from visioneval.running.calls.cache import open_folder

pytestmark = pytest.mark.slow

SIGNED = "?sig=s3cr3t"
HOSTS = ("127.0.0.1",)
DOWN = Page(status=503)
FREE = "; run SUITE --resume RUN downloads it again, and pays nothing"
PAID = "; --resume RUN --retry-unusable pays for another"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Answers]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("LOCAL_KEY", "sk-paid-0123456789")
    monkeypatch.setattr(image_replies, "WAITS_S", (0.0, 0.0))
    with paid_answers.answering() as server:
        yield server


@pytest.fixture
def files() -> Iterator[Web]:
    with web(image=Page(IMAGE), other=Page(OTHER)) as server:
        yield server


def run_of(answers: Answers, hosts: tuple[str, ...] = HOSTS, params: dict[str, Any] | None = None) -> PaidRun:
    """A run whose outputs may be read from these hosts."""
    run = PaidRun(answers, params=params)
    allow(hosts)
    return run


def allow(hosts: tuple[str, ...]) -> None:
    """Changes the hosts in the suite."""
    suite = json.loads(Path("suite.yaml").read_text())
    suite["models"][0]["output_hosts"] = list(hosts)
    Path("suite.yaml").write_text(json.dumps(suite))


def named(files: Web, *names: str) -> dict[str, Any]:
    return paid_answers.openai(*({"url": f"{files.url}/{name}.png{SIGNED}"} for name in names))


def outcomes(run: PaidRun, run_id: str = "r") -> list[str]:
    return [record.error.kind if record.error else str(record.verdict) for record in run.records(run_id)]


def message(run: PaidRun, run_id: str = "r") -> str:
    return str(next(record.error.message for record in run.records(run_id) if record.error))


def costs(run: PaidRun) -> list[float | None]:
    return [record.cost_usd for record in run.records()]


def image_of(run: PaidRun, sample: int = 0) -> bytes:
    return Path("runs/r", str(run.records()[sample].artifact_path)).read_bytes()


def test_a_host_is_added_and_the_image_is_not_paid_again(answers: Answers, files: Web) -> None:
    answers.send(named(files, "image"))
    run = run_of(answers, ())
    first = run()
    assert (first.exit_code, outcomes(run), len(files.seen)) == (3, ["pending"], 0), first.output
    (record,) = run.records()
    assert "add its host to output_hosts" in message(run)
    assert message(run).endswith(f"; the answer is in {record.reply_path}{FREE}")
    assert b"?***" in Path("runs/r", str(record.reply_path)).read_bytes()
    paid = costs(run)
    assert paid[0]
    assert (run.resume().exit_code, outcomes(run), run.calls) == (3, ["pending"], 1)  # nothing has changed
    allow(HOSTS)
    resumed = CliRunner().invoke(
        app, ["run", "suite.yaml", "--resume", "r", "--cache", "cache"], catch_exceptions=False
    )
    assert (resumed.exit_code, run.calls, len(files.seen)) == (0, 1, 1), resumed.output
    (record,) = run.records()
    assert (image_of(run), costs(run)) == (IMAGE, paid)
    assert (record.reply_path, record.reply_note, record.error) == (None, None, None)
    for number, flag in enumerate(("--offline", "--reuse=all")):  # the cache has it from now on
        assert run(flag, run_id=f"again{number}").exit_code == 0
    assert run.resume("--retry-unusable").exit_code == 0
    assert (run.calls, len(files.seen)) == (1, 1)


@pytest.mark.parametrize("flags", [(), ("--retry-unusable",)])
def test_a_server_is_back_and_the_image_is_not_paid_again(answers: Answers, files: Web, flags: tuple[str, ...]) -> None:
    files.pages["/image"] = DOWN
    answers.send(named(files, "image"))
    run = run_of(answers)
    assert (run().exit_code, outcomes(run), len(files.seen)) == (3, ["pending"], 3)
    assert "it answers 503" in message(run)
    assert (run.resume().exit_code, outcomes(run), len(files.seen)) == (3, ["pending"], 6)
    files.pages["/image"] = Page(IMAGE)
    assert (run.resume(*flags).exit_code, image_of(run), run.calls, len(files.seen)) == (0, IMAGE, 1, 7)


def test_what_still_cannot_be_read_is_paid_again_only_if_that_is_asked_for(answers: Answers, files: Web) -> None:
    files.pages["/image"] = DOWN
    answers.send(named(files, "image"))
    run = run_of(answers)
    assert run().exit_code == 3
    answers.send(named(files, "other"))
    assert (run.resume().exit_code, run.calls) == (3, 1)
    assert (run.resume("--retry-unusable").exit_code, run.calls, image_of(run)) == (0, 2, OTHER)


@pytest.mark.parametrize("status", [403, 404, 410])
def test_an_expired_url_is_final(answers: Answers, files: Web, status: int) -> None:
    files.pages["/image"] = DOWN
    answers.send(named(files, "image"))
    run = run_of(answers)
    assert run().exit_code == 3
    files.pages["/image"] = Page(status=status)
    asked = len(files.seen)
    assert (run.resume().exit_code, outcomes(run), len(files.seen)) == (3, ["unusable"], asked + 1)
    (record,) = run.records()
    assert f"it answers {status}: the URL may have expired" in message(run)
    assert message(run).endswith(f"; the answer is in {record.reply_path}{PAID}")
    assert (run.resume().exit_code, len(files.seen), run.calls) == (3, asked + 1, 1)
    answers.send(named(files, "other"))
    assert (run.resume("--retry-unusable").exit_code, run.calls, image_of(run)) == (0, 2, OTHER)


def test_a_url_that_has_expired_at_once_is_not_tried_again(answers: Answers, files: Web) -> None:
    files.pages["/image"] = Page(status=410)
    answers.send(named(files, "image"))
    run = run_of(answers)
    assert (run().exit_code, outcomes(run)) == (3, ["unusable"])
    assert (run.resume().exit_code, run.calls, len(files.seen)) == (3, 1, 1)
    assert list(Path("runs").rglob("operation-*")) == []


def test_only_the_sample_without_an_image_is_downloaded_again(answers: Answers, files: Web) -> None:
    files.pages["/image"] = DOWN
    answers.send(named(files, "image", "other"))
    run = run_of(answers, params={"n": 2})
    assert (run().exit_code, outcomes(run)) == (3, ["PASS", "pending"])
    paid, asked = costs(run), len(files.seen)
    files.pages["/image"] = Page(IMAGE)
    assert (run.resume().exit_code, outcomes(run), run.calls) == (0, ["PASS", "PASS"], 1)
    assert (image_of(run, 0), image_of(run, 1), len(files.seen)) == (OTHER, IMAGE, asked + 1)
    assert costs(run) == paid


def test_the_other_sample_of_an_expired_one_keeps_its_image(answers: Answers, files: Web) -> None:
    files.pages |= {"/image": DOWN, "/other": DOWN}
    answers.send(named(files, "image", "other"))
    run = run_of(answers, params={"n": 2})
    assert (run().exit_code, outcomes(run)) == (3, ["pending", "pending"])
    files.pages |= {"/image": Page(status=404), "/other": Page(OTHER)}
    assert (run.resume().exit_code, outcomes(run), run.calls) == (3, ["unusable", "PASS"], 1)
    assert image_of(run, 1) == OTHER


def test_another_run_does_not_have_the_url(answers: Answers, files: Web) -> None:
    files.pages["/image"] = DOWN
    answers.send(named(files, "image"))
    run = run_of(answers)
    assert run().exit_code == 3
    files.pages["/image"] = Page(IMAGE)
    asked = len(files.seen)
    assert (run("--reuse", "all", run_id="b").exit_code, outcomes(run, "b")) == (3, ["unusable"])
    assert "its URL is only in the run that paid for it: resume that one" in message(run, "b")
    assert run("--offline", run_id="c").exit_code == 3
    assert (run.calls, len(files.seen)) == (1, asked)
    assert run.resume().exit_code == 0
    assert run("--reuse", "all", run_id="d").exit_code == 0
    assert (run.calls, len(files.seen)) == (1, asked + 1)


def test_a_proxy_is_back_and_the_image_is_not_paid_again(
    answers: Answers, files: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1,localhost")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    answers.send(paid_answers.openai({"url": f"{files.url.replace('127.0.0.1', 'localhost')}/image.png{SIGNED}"}))
    run = run_of(answers, ("localhost",))
    assert (run().exit_code, outcomes(run), len(files.seen)) == (3, ["pending"], 0)
    assert "proxy" in message(run)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    assert (run.resume().exit_code, image_of(run), run.calls) == (0, IMAGE, 1)


@pytest.mark.parametrize("is_up", [True, False])
def test_a_lost_record_costs_nothing_either(answers: Answers, files: Web, is_up: bool) -> None:
    files.pages["/image"] = DOWN
    answers.send(named(files, "image"))
    run = run_of(answers)
    assert run().exit_code == 3
    paid = costs(run)
    Path("runs/r/results.jsonl").write_text("")
    files.pages["/image"] = Page(IMAGE) if is_up else DOWN
    assert (run.resume().exit_code, outcomes(run)) == ((0, ["PASS"]) if is_up else (3, ["pending"]))
    assert (run.calls, costs(run)) == (1, paid)


def test_a_cache_that_cannot_store_the_answer_promises_nothing(answers: Answers, files: Web) -> None:
    files.pages["/image"] = DOWN
    answers.send(named(files, "image"))
    run = run_of(answers)
    open_folder(Path("cache"))
    Path("cache/answers").write_text("in the way")
    assert run().exit_code != 0
    assert outcomes(run) == ["unusable"]


def test_an_older_answer_without_an_image_does_not_count(answers: Answers, files: Web) -> None:
    answers.send(paid_answers.openai(None))
    run = run_of(answers)
    assert (run().exit_code, outcomes(run)) == (3, ["unusable"])
    files.pages["/image"] = DOWN
    answers.send(named(files, "image"))
    assert (run.resume("--retry-unusable").exit_code, outcomes(run)) == (3, ["pending"])
    assert (run.resume().exit_code, outcomes(run)) == (3, ["pending"])
    files.pages["/image"] = Page(IMAGE)
    assert (run.resume().exit_code, image_of(run), run.calls) == (0, IMAGE, 2)


def test_an_image_that_comes_later_is_checked_as_any_other(answers: Answers, files: Web) -> None:
    files.pages["/image"] = DOWN
    answers.send(named(files, "image"))
    run = run_of(answers)
    assert run().exit_code == 3
    files.pages["/image"] = Page(b"<!doctype html><title>Sign in</title>")
    assert (run.resume().exit_code, outcomes(run), run.calls) == (3, ["unusable"], 1)


def test_only_the_file_of_the_download_has_the_signature(answers: Answers, files: Web) -> None:
    files.pages["/image"] = DOWN
    answers.send(named(files, "image"))
    run = run_of(answers)
    printed = run("--log-file", "calls.jsonl").output + run.resume().output
    printed += CliRunner().invoke(app, ["report", "r"], catch_exceptions=False).output
    assert "s3cr3t" not in printed
    written = [path for path in Path().rglob("*") if path.is_file()]
    with_signature = [path for path in written if b"s3cr3t" in path.read_bytes()]
    assert [path.parent.parts[:2] for path in with_signature] == [("runs", "r")]
    assert with_signature[0].name.startswith("operation-download-")


def test_a_changed_file_of_a_download_is_not_followed(answers: Answers, files: Web) -> None:
    files.pages["/image"] = DOWN
    answers.send(named(files, "image"))
    run = run_of(answers)
    assert run().exit_code == 3
    (file,) = Path("runs/r").rglob("operation-download-*")
    file.write_text(f"{files.url}/other.png")
    asked = len(files.seen)
    assert (run.resume().exit_code, outcomes(run), run.calls, len(files.seen)) == (3, ["unusable"], 1, asked)


def test_a_url_with_the_key_is_in_no_file(answers: Answers, files: Web) -> None:
    files.pages["/image"] = DOWN
    answers.send(paid_answers.openai({"url": f"{files.url}/image.png?key=sk-paid-0123456789"}))
    run = run_of(answers)
    assert run().exit_code == 3
    assert [path for path in Path().rglob("*") if path.is_file() and b"sk-paid" in path.read_bytes()] == []
    assert (run.resume().exit_code, outcomes(run), run.calls) == (3, ["unusable"], 1)


ERROR = {"error": {"message": "the second image failed", "code": "internal"}}
GOOD = {"b64_json": base64.b64encode(IMAGE).decode()}


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (lambda: paid_answers.openai(GOOD), "images requested: 2, received: 1"),
        (lambda: paid_answers.openai(GOOD, **ERROR),
         "images requested: 2, received: 1; the answer has an error: the second image failed"),
        (lambda: paid_answers.openai(GOOD, ERROR), "item 2: it is an error: the second image failed"),
    ],
)  # fmt: skip
def test_a_missing_image_has_the_answer_and_its_words(answers: Answers, answer: Callable[[], Any], note: str) -> None:
    answers.send(answer())
    run = run_of(answers, params={"n": 2})
    assert (run().exit_code, outcomes(run)) == (3, ["PASS", "unusable"])
    good, missing = run.records()
    assert (good.reply_path, good.reply_note, missing.reply_note) == (None, note, note)
    assert Path("runs/r", str(missing.reply_path)).read_bytes() == answers.body
    assert message(run) == f"{note}; the answer is in {missing.reply_path}{PAID}"
    assert (run.resume().exit_code, run.calls) == (3, 1)


def test_an_error_beside_all_images_is_no_note(answers: Answers) -> None:
    answers.send(paid_answers.openai(GOOD, **ERROR))
    run = run_of(answers)
    assert run().exit_code == 0
    assert [(record.reply_path, record.reply_note) for record in run.records()] == [(None, None)]
