"""Two label servers on one run, as two raters start them: no answer is lost, and each sees the other's."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from label_server import Server, ServerProcess, lines, write_run

pytestmark = pytest.mark.slow

Serve = Callable[..., Server]
CASES = [{"id": f"case-{at:02}"} for at in range(12)]
GOOD: dict[str, Any] = {"usable": True, "clarity": 4}


def answer(server: Server, rater: str, item: str | None = None, **given: Any) -> dict[str, Any]:
    item = item or server.next_item(rater)["item"]["id"]
    body = {"rater": rater, "item": item, "seconds": 1.5, "answers": {**GOOD, **given}}
    status, _, text = server.ask("/api/answer", body)
    assert status == 200, text
    result: dict[str, Any] = json.loads(text)
    return result


def notes_by_case(run: Path, rater: str) -> dict[str, list[Any]]:
    """A rater's notes by case, in file order."""
    result: dict[str, list[Any]] = {}
    for line in lines(run / "labels.jsonl"):
        if line["rater"] == rater and line["question"] == "note":
            result.setdefault(line["test_id"], []).append(line["answer"])
    return result


@pytest.fixture
def two(serve: Serve, tmp_path: Path) -> tuple[Server, Server, Path]:
    run = write_run(tmp_path, CASES)
    return serve(run), serve(run), run


@pytest.fixture
def processes(serve: Serve, tmp_path: Path) -> tuple[Server, Server, Path]:
    run = write_run(tmp_path, CASES)
    return serve(run, kind=ServerProcess), serve(run, kind=ServerProcess), run


def test_servers_share_progress(two: tuple[Server, Server, Path]) -> None:
    first, second, run = two
    for done in range(1, 7):
        assert answer(first, "ann", note="first")["done"] == 2 * done - 1
        assert answer(second, "ann", note="second")["done"] == 2 * done
    assert first.next_item("ann")["item"] is None
    assert sorted(notes_by_case(run, "ann").values()) == [["first"]] * 6 + [["second"]] * 6


def test_undo_across_servers(two: tuple[Server, Server, Path]) -> None:
    first, second, _ = two
    item = first.next_item("ann")["item"]["id"]
    answer(first, "ann", note="mine")
    shown = json.loads(second.ask("/api/undo", {"rater": "ann"})[2])
    assert (shown["item"]["id"], shown["item"]["given"]["note"], shown["done"]) == (item, "mine", 0)
    assert first.next_item("ann")["item"]["id"] == item


def test_item_answered_on_both_servers_is_saved_twice(two: tuple[Server, Server, Path]) -> None:
    first, second, run = two
    item = first.next_item("ann")["item"]
    answer(first, "ann", item["id"], note="at the first")
    assert answer(second, "ann", item["id"], note="at the second")["done"] == 1
    assert notes_by_case(run, "ann") == {item["case"]: ["at the first", "at the second"]}


def test_concurrent_servers_lose_nothing(processes: tuple[Server, Server, Path]) -> None:
    first, second, run = processes

    def label(server: Server, rater: str, words: str) -> list[str]:
        text = []
        while (item := server.next_item(rater)["item"]) is not None:
            note = f"{words} {item['case']} {len(text)} {'x' * 2000}"
            answer(server, rater, item["id"], note=note)
            text.append(note)
        return text

    shares = [(first, "ann", "a1"), (second, "ann", "a2"), (first, "bo", "b1"), (second, "cy", "c2")]
    with ThreadPoolExecutor(4) as pool:
        text = [entry.result() for entry in [pool.submit(label, *share) for share in shares]]
    saved = {rater: notes_by_case(run, rater) for rater in ("ann", "bo", "cy")}
    assert sorted(note for notes in saved["ann"].values() for note in notes) == sorted(text[0] + text[1])
    assert sorted(note for notes in saved["bo"].values() for note in notes) == sorted(text[2])
    assert sorted(note for notes in saved["cy"].values() for note in notes) == sorted(text[3])
    assert all(set(entry) == {case["id"] for case in CASES} for entry in saved.values())


def test_a_killed_server_leaves_the_other_with_all_of_its_answers(processes: tuple[Server, Server, Path]) -> None:
    first, second, run = processes
    answer(first, "ann", note="before")
    first.kill()
    with (run / "labels.jsonl").open("ab") as file:
        file.write(b'{"schema_version":2,"rater":"ann","test')
    assert second.next_item("ann")["done"] == 1
    assert answer(second, "ann", note="after")["done"] == 2
    assert sorted(notes_by_case(run, "ann").values()) == [["after"], ["before"]]


def test_deleted_answer_file_is_recreated(two: tuple[Server, Server, Path]) -> None:
    first, _, run = two
    answer(first, "ann")
    (run / "labels.jsonl").unlink()
    (run / "labeling.jsonl").unlink()
    assert first.next_item("ann")["done"] == 0
    assert answer(first, "ann")["done"] == 1
    assert len(lines(run / "labels.jsonl")) == 4


def test_invalid_line_is_reported_and_loses_nothing_else(two: tuple[Server, Server, Path]) -> None:
    first, _, run = two
    answer(first, "ann")
    good = (run / "labels.jsonl").read_bytes()
    with (run / "labels.jsonl").open("ab") as file:
        file.write(b'{"schema_version":2}\n')
    status, _, text = first.ask("/api/item?rater=ann")
    assert (status, "labels.jsonl:5: " in json.loads(text)["error"]) == (400, True)
    (run / "labels.jsonl").write_bytes(good)
    assert first.next_item("ann")["done"] == 1
