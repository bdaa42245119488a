"""The log of provider calls."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from visioneval import UsageError
from visioneval.running.calls.limiters import RateLimitKey
from visioneval.running.calls.log import CallLog

KEY = RateLimitKey("openai", "gpt-5.4", "judge")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_call_is_a_line_of_json(tmp_path: Path) -> None:
    log = CallLog(tmp_path / "logs" / "calls.jsonl")
    log.call(KEY, "judge:1", "ok", 2, 0.12345678, usage={"prompt_tokens": 3}, cost=0.5)
    log.close()
    (line,) = lines(tmp_path / "logs" / "calls.jsonl")
    assert line.pop("at").endswith("+00:00")
    tokens = line.pop("tokens")
    assert (tokens["input_tokens"], tokens["output_tokens"]) == (3, 0)
    assert line == {
        "provider": "openai", "model": "gpt-5.4", "kind": "judge", "status": "ok", "attempt": 2, "seconds": 0.123457,
        "cost_usd": 0.5, "key": "judge:1",
    }  # fmt: skip


def test_a_cached_reply_has_no_attempt(tmp_path: Path) -> None:
    log = CallLog(tmp_path / "calls.jsonl")
    log.hit(KEY, "judge:1")
    log.close()
    (line,) = lines(tmp_path / "calls.jsonl")
    assert (line["status"], line["key"], "attempt" in line) == ("cached", "judge:1", False)


def test_a_log_is_continued(tmp_path: Path) -> None:
    for status in ("ok", "rate_limit"):
        log = CallLog(tmp_path / "calls.jsonl")
        log.call(KEY, "judge:1", status, 1, 0.0)
        log.close()
    assert [line["status"] for line in lines(tmp_path / "calls.jsonl")] == ["ok", "rate_limit"]


def test_calls_are_echoed_without_a_file() -> None:
    echo = io.StringIO()
    CallLog(echo=echo).call(KEY, "judge:1", "ok", 1, 0.0)
    assert json.loads(echo.getvalue())["key"] == "judge:1"


def test_without_file_and_echo_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    log = CallLog()
    log.call(KEY, "judge:1", "ok", 1, 0.0)
    log.close()
    assert capsys.readouterr() == ("", "")


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--log-file .*: cannot write: "):
        CallLog(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--log-file"):
        CallLog(tmp_path / "file" / "calls.jsonl")


def test_a_full_disk_ends_the_log_but_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class FullDisk(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    echo, log = io.StringIO(), CallLog(tmp_path / "calls.jsonl")
    log.close()
    monkeypatch.setattr(log, "_file", FullDisk())
    monkeypatch.setattr(log, "_echo", echo)
    log.call(KEY, "judge:1", "ok", 1, 0.0)
    log.call(KEY, "judge:2", "ok", 1, 0.0)
    assert capsys.readouterr().err == "--log-file: cannot write; logging stopped: No space left on device\n"
    assert len(echo.getvalue().splitlines()) == 2
