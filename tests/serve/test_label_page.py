"""The labeling page in a real browser, against the server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from label_server import READY, SECRET_A, SECRET_B, Server, ServerProcess, lines, wait_for_progress, write_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

Serve = Callable[..., Server]
OpenPage = Callable[..., "Page"]
CASES = [{"id": f"case{at}"} for at in range(8)]


def answers(run: Path, rater: str) -> dict[tuple[str, str], Any]:
    written = [line for line in lines(run / "labels.jsonl") if line["rater"] == rater]
    last = {(line["test_id"], line["question"]): line["answer"] for line in written}
    return {key: answer for key, answer in last.items() if answer is not None}


@contextmanager
def open_unchecked_page(browser: Browser, server: Server, rater: str) -> Iterator[Page]:
    """A page without console checks, as its server will be killed."""
    context = browser.new_context()
    context.set_default_timeout(20_000)
    page = context.new_page()
    page.goto(f"{server.url}?rater={rater}")
    page.wait_for_selector(READY)
    yield page
    context.close()


def test_two_raters_with_reload_and_restart(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    run = write_run(tmp_path, CASES[:5])
    server = serve(run, kind=ServerProcess)
    sent: dict[str, dict[str, bool]] = {"ann": {}, "ben": {}}
    with open_unchecked_page(browser, server, "ann") as ann, open_unchecked_page(browser, server, "ben") as ben:
        pages = {"ann": ann, "ben": ben}
        for at in range(5):
            for rater, page in pages.items():
                case = page.inner_text("#facts dd")
                sent[rater][case] = (at + (rater == "ben")) % 3 > 0
                page.keyboard.press("y" if sent[rater][case] else "n")
                page.keyboard.press(str(at % 5 + 1))
                if at in (0, 4):
                    page.keyboard.press("m")
                if at == 3:
                    page.reload()
                    page.wait_for_selector(READY)
                    assert page.locator("input:checked").count() == 2, "what was chosen outlives a reload"
                if at == 4 and rater == "ann":
                    server.kill()
                    page.keyboard.press("Enter")
                    page.wait_for_selector("#trouble:not([hidden])")
                    assert "Your answers are safe" in page.inner_text("#trouble")
                    server.restart()
                    for name, entry in pages.items():
                        entry.goto(f"{server.url}?rater={name}")
                        entry.wait_for_selector(READY)
                    assert page.inner_text("#facts dd") == case
                    assert page.locator("input:checked").count() == 3, "what was chosen outlives the server"
                page.keyboard.press("Enter")
                wait_for_progress(page, at + 1, 5)
    for rater, chosen in sent.items():
        result = answers(run, rater)
        assert {case: result[case, "usable"] for case, _ in result} == chosen
        assert len(chosen) == 5
    order = [line["test_id"] for line in lines(run / "labels.jsonl") if line["question"] == "usable"]
    assert len(order) == 10
    assert list(sent["ann"]) != list(sent["ben"])


def test_page_asks_for_a_name_and_remembers_it(open_page: OpenPage, serve: Serve, tmp_path: Path) -> None:
    server = serve(write_run(tmp_path))
    page = open_page(server.url, allowed=(f"http://127.0.0.1:{server.port}/",))
    page.wait_for_selector("#start:not([hidden])")
    page.keyboard.press("Enter")
    assert page.is_visible("#start")
    page.keyboard.type("Ann Ó'Neil & co")
    page.keyboard.press("Enter")
    page.wait_for_selector(READY)
    page.reload()
    page.wait_for_selector(READY)
    assert page.inner_text("#rater") == "Ann Ó'Neil & co"


def test_a_rater_named_on_the_command_line_is_not_asked(open_page: OpenPage, serve: Serve, tmp_path: Path) -> None:
    server = serve(write_run(tmp_path), "--rater", "ann")
    page = open_page(server.url, allowed=(f"http://127.0.0.1:{server.port}/",))
    page.wait_for_selector(READY)
    assert page.inner_text("#rater") == "ann"


def test_undo_skip_and_the_end(rate: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    run = write_run(tmp_path, CASES[:3])
    page = rate(serve(run), "ann")
    first = page.inner_text("#facts dd")
    page.keyboard.type("y5o/")
    page.keyboard.type("sun and sea, s u y")
    page.keyboard.press("Enter")
    wait_for_progress(page, 1, 3)
    page.keyboard.press("u")
    wait_for_progress(page, 0, 3)
    assert page.inner_text("#facts dd") == first
    assert page.input_value("textarea") == "sun and sea, s u y"
    assert page.locator("input:checked").count() == 3
    page.keyboard.press("n")
    page.keyboard.press("Enter")
    wait_for_progress(page, 1, 3)
    skipped = page.inner_text("#facts dd")
    page.keyboard.press("s")
    wait_for_progress(page, 2, 3)
    page.keyboard.type("y1")
    page.keyboard.press("Enter")
    wait_for_progress(page, 3, 3)
    assert page.inner_text("#end-title") == "Done, except for skipped items"
    assert page.inner_text("#end-text").startswith("2 of 3 answered; 1 was skipped.")
    assert page.locator("#command").inner_text().startswith("visioneval agreement /")
    assert page.locator("#after-link").is_hidden()
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    page.click("#reopen")
    wait_for_progress(page, 2, 3)
    assert page.inner_text("#facts dd") == skipped
    page.keyboard.press("s")
    wait_for_progress(page, 3, 3)
    page.keyboard.press("u")
    wait_for_progress(page, 2, 3)
    result = answers(run, "ann")
    assert (result[first, "usable"], result[first, "clarity"], result[first, "wrong"]) == (False, 5, ["odd colours"])
    assert not [case for case, _ in result if case == skipped]


def test_next_requires_all_required_answers(rate: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    run = write_run(tmp_path)
    page = rate(serve(run), "ann")
    page.keyboard.press("y")
    page.keyboard.press("Enter")
    assert page.inner_text("#trouble") == "Not answered: How clear is it?"
    assert page.locator("fieldset.active legend").inner_text().startswith("How clear is it?")
    page.keyboard.press("9")
    assert page.is_visible("#trouble")
    page.keyboard.press("2")
    assert not page.is_visible("#trouble")
    page.keyboard.press("Enter")
    wait_for_progress(page, 1, 1)


def test_a_digit_is_that_number_or_begins_one(rate: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    scales = {"clear": [1, 5], "percent": [0, 100], "tenths": [0, 10]}
    labels: list[dict[str, Any]] = [
        {"key": key, "ask": f"{key}?", "type": "scale", "scale": scale} for key, scale in scales.items()
    ]
    labels.append({**labels[0], "key": "halves", "ask": "halves?", "step": 0.5})
    run = write_run(tmp_path, [{"id": "one"}], labels={"questions": labels})
    page = rate(serve(run), "ann")
    for key in ("3", "5", "0", "Escape", "ArrowDown", "9", "2"):
        page.keyboard.press(key)
    assert page.locator("fieldset").nth(2).locator("kbd").count() == 0
    page.keyboard.press("Enter")
    page.wait_for_selector("#end:not([hidden])")
    assert answers(run, "ann") == {
        ("one", "clear"): 3, ("one", "percent"): 50, ("one", "tenths"): 9, ("one", "halves"): 2
    }  # fmt: skip


def test_queued_keys_apply_to_the_next_item(rate: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    run = write_run(tmp_path, CASES[:6])
    page = rate(serve(run), "ann")
    for at in range(1, 7):
        for key in ("y" if at % 2 else "n", str(at % 5 + 1), "Enter"):
            page.keyboard.press(key)
    wait_for_progress(page, 6, 6)
    result = [line["answer"] for line in lines(run / "labels.jsonl") if line["question"] in ("usable", "clarity")]
    assert result == [True, 2, False, 3, True, 4, False, 5, True, 1, False, 2]


def test_next_image_is_prefetched(rate: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    server = serve(write_run(tmp_path, CASES[:3]))
    with_next = server.next_item("ann")
    page = rate(server, "ann")
    page.wait_for_load_state("networkidle")
    fetched = page.evaluate("performance.getEntriesByType('resource').map((each) => each.name)")
    assert [name for name in fetched if name.endswith(with_next["soon"][0])]


def test_mouse_only_and_enter_after_a_click(rate: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    run = write_run(tmp_path, CASES[:2])
    page = rate(serve(run), "ann")
    page.get_by_role("radio", name="No", exact=True).check()
    page.get_by_role("radio", name="4").check()
    page.get_by_role("checkbox", name="odd colours").check()
    page.get_by_role("button", name=re.compile("^Next")).click()
    wait_for_progress(page, 1, 2)
    page.keyboard.type("y4")
    page.click("#fit")
    page.keyboard.press("Enter")
    wait_for_progress(page, 2, 2)


def test_time_counts_while_the_page_is_visible(rate: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    run = write_run(tmp_path)
    page = rate(serve(run), "ann")
    page.wait_for_timeout(600)
    page.evaluate(
        "Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.wait_for_timeout(3000)
    page.keyboard.type("y4")
    page.keyboard.press("Enter")
    wait_for_progress(page, 1, 1)
    seconds = {line["seconds"] for line in lines(run / "labels.jsonl")}
    assert len(seconds) == 1
    assert 0.4 <= seconds.pop() < 3


def test_shows_both_sides_of_a_pair(rate: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    cases = CASES[:8]
    old = write_run(tmp_path, cases, [SECRET_A], run_id="old")
    write_run(tmp_path, cases, [SECRET_B], run_id="new")
    page = rate(serve(old, "--pairs", "new", "--runs", tmp_path, "--seed", "1"), "ann")
    assert page.locator(".pane figcaption").all_inner_texts() == ["A", "B"]
    for done, key in enumerate("abtabtab", 1):
        page.keyboard.press(key)
        page.keyboard.press("/")
        page.keyboard.type("a better tie")
        page.keyboard.press("Enter")
        wait_for_progress(page, done, 8)
    result = lines(old / "labels.jsonl")
    text = [line["answer"] for line in result if line["question"] == "preferred"]
    assert {line["answer"] for line in result if line["question"] == "preferred.why"} == {"a better tie"}
    assert [answer == "tie" for answer in text] == [False, False, True, False, False, True, False, False]
    assert text != ["a", "b", "tie"] * 2 + ["a", "b"], "sides are shuffled"


def test_inputs_and_mask_are_shown_with_their_roles(
    rate: Callable[..., Page],
    serve: Serve,
    tmp_path: Path,
    save_image: Callable[..., Path],
    mask: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # inputs are shown only from the working directory
    save_image("base.png")
    save_image("coat.png", color="red")
    mask("mask.png")
    images = [{"path": "base.png"}, {"path": "coat.png", "role": "garment"}, {"path": "coat.png"}]
    case = {"id": "one", "images": images, "mask": "mask.png", "region": "the coat", "reference": "gone.png"}
    page = rate(serve(write_run(tmp_path, [case])), "ann")
    shown = page.locator("#stages button")
    titles = ["Result", "Input", "Both", "Input: garment", "Input: image 3", "Mask: may change", "Expected"]
    assert [text.split(" I")[0] if at == 0 else text for at, text in enumerate(shown.all_inner_texts())] == titles
    for at in range(1, 6):
        page.keyboard.press("i")
        page.wait_for_selector(f"#stages button:nth-child({at + 1})[aria-pressed=true]")
        page.wait_for_selector(f".pane:nth-child({2 if at == 2 else 1}):last-child .frame img")
    page.keyboard.press("i")
    page.wait_for_selector("text=This image cannot be shown")
    page.keyboard.press("i")
    page.wait_for_selector(".frame img[alt=Result]")
    assert "the coat" in page.inner_text("#facts")


def test_the_required_text_and_the_places_with_text(rate: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    lines = [{"text": "SOLE", "confidence": 0.9, "box": [[20, 20], [90, 20], [90, 40], [20, 40]]}]
    copy = {"key": "copy", "type": "text", "details": {"lines": lines}, "fingerprint": {"config_sha256": "0"}}
    case = {"id": "one", "expect": {"text": {"required": ["SALE", "TODAY"]}}}
    page = rate(serve(write_run(tmp_path, [case], change=lambda _: {"graders": (copy,)})), "ann")
    assert page.locator("#facts div", has_text="Text").locator("dd").inner_text() == "SALE\nTODAY"
    page.get_by_role("button", name="Text").click()
    page.wait_for_selector(".frame img[alt=Text]")
    assert page.locator(".frame img").evaluate("image => image.naturalWidth / image.naturalHeight") > 2
    assert "SOLE" not in page.content()


def test_zoom_by_key_wheel_and_drag(rate: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    page = rate(serve(write_run(tmp_path)), "ann")
    fit = page.inner_text("#percent")
    page.keyboard.press("z")
    assert page.inner_text("#percent") != fit
    box = page.locator(".frame").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    page.mouse.wheel(0, -600)
    page.wait_for_timeout(100)
    assert int(page.inner_text("#percent").rstrip("%")) > 2 * int(fit.rstrip("%"))
    before = page.locator(".frame img").get_attribute("style")
    page.mouse.down()
    page.mouse.move(box["x"] + 320, box["y"] + 260, steps=4)
    page.mouse.up()
    assert page.locator(".frame img").get_attribute("style") != before
    page.keyboard.press("z")
    assert page.inner_text("#percent") == fit


def test_reports_an_outdated_url(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    server = serve(write_run(tmp_path))
    with open_unchecked_page(browser, server, "ann") as page:
        server.kill()
        server.start(server.port)
        page.keyboard.type("y4")
        page.keyboard.press("Enter")
        page.wait_for_selector("#broken:not([hidden])")
        assert "open the URL that the command printed" in page.inner_text("#broken")
