"""The labelling page in a real browser, against the server as a program of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import PHONE
from labelled import ASKED, SECRET_A, SECRET_B, Server, lines, secrets_in, write_run

from visioneval.labels import newest, read_labels

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Serve = Callable[..., Server]
OpenPage = Callable[..., "Page"]
READY = "#work:not([hidden]) .frame img, #end:not([hidden])"
TWENTY = [{"id": f"case{at}"} for at in range(20)]


def count(page: Page) -> str:
    return page.inner_text("#count")


def waited(page: Page, done: int, total: int) -> None:
    """Waits for a progress, and for its picture."""
    expect = pytest.importorskip(
        "playwright.sync_api"
    ).expect  # what waits in the page is forbidden there: it uses eval
    expect(page.locator("#count")).to_have_text(f"{done} of {total}", timeout=20_000)
    page.wait_for_selector(READY)


def answers(run: Path, rater: str) -> dict[tuple[str, str], Any]:
    found = [label for label in newest(read_labels(run / "labels.jsonl")) if label.rater == rater]
    return {(label.test_id, label.question): label.answer for label in found}


@pytest.fixture
def label(open_page: OpenPage) -> Callable[..., Page]:
    """``label(server, rater)`` opens the page as a rater and waits for the first picture."""

    def opened(server: Server, rater: str, **context: Any) -> Page:
        own = f"http://127.0.0.1:{server.port}/"
        page: Page = open_page(f"{server.url}&rater={rater}", allowed=(own, f"blob:{own}"), **context)
        page.wait_for_selector(READY)
        return page

    return opened


@contextmanager
def alone(browser: Browser, server: Server, rater: str) -> Iterator[Page]:
    """A page that may complain in the console: its server is going to be killed."""
    context = browser.new_context()
    context.set_default_timeout(20_000)
    page = context.new_page()
    page.goto(f"{server.url}&rater={rater}")
    page.wait_for_selector(READY)
    yield page
    context.close()


def test_two_raters_label_twenty_cells_by_keyboard_with_a_reload_and_a_kill(
    browser: Browser, serve: Serve, tmp_path: Path
) -> None:
    run = write_run(tmp_path, TWENTY)
    server = serve(run)
    sent: dict[str, dict[str, bool]] = {"ann": {}, "ben": {}}
    with alone(browser, server, "ann") as ann, alone(browser, server, "ben") as ben:
        pages = {"ann": ann, "ben": ben}
        for at in range(20):
            for rater, page in pages.items():
                case = page.inner_text("#facts dd")
                sent[rater][case] = (at + (rater == "ben")) % 3 > 0
                page.keyboard.press("y" if sent[rater][case] else "n")
                page.keyboard.press(str(at % 5 + 1))
                if at % 4 == 0:
                    page.keyboard.press("m")
                if at == 7:
                    page.reload()
                    page.wait_for_selector(READY)
                    assert page.locator("input:checked").count() == 2, "what was chosen outlives a reload"
                if at == 12 and rater == "ann":
                    server.kill()
                    page.keyboard.press("Enter")
                    page.wait_for_selector("#trouble:not([hidden])")
                    assert "Nothing is lost" in page.inner_text("#trouble")
                    server.restart()
                    for name, each in pages.items():
                        each.goto(f"{server.url}&rater={name}")
                        each.wait_for_selector(READY)
                    assert page.inner_text("#facts dd") == case
                    assert page.locator("input:checked").count() == 3, "what was chosen outlives the server"
                page.keyboard.press("Enter")
                waited(page, at + 1, 20)
    for rater, chosen in sent.items():
        found = answers(run, rater)
        assert {case: found[case, "usable"] for case, _ in found} == chosen
        assert len(chosen) == 20
    order = [line["test_id"] for line in lines(run / "labels.jsonl") if line["question"] == "usable"]
    assert len(order) == 40
    assert list(sent["ann"]) != list(sent["ben"])


def test_a_kill_right_after_an_answer_loses_nothing(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    run = write_run(tmp_path, TWENTY[:4])
    server = serve(run)
    with alone(browser, server, "ann") as page:
        for done in range(1, 5):
            case = page.inner_text("#facts dd")
            page.keyboard.type("y3")
            page.keyboard.press("Enter")
            waited(page, done, 4)
            server.kill()
            assert answers(run, "ann")[case, "clarity"] == 3
            server.restart()
            page.goto(f"{server.url}&rater=ann")
            waited(page, done, 4)
    assert len(answers(run, "ann")) == 12


def test_the_page_asks_for_a_name_and_keeps_it(open_page: OpenPage, serve: Serve, tmp_path: Path) -> None:
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
    assert page.inner_text("#who") == "Ann Ó'Neil & co"


def test_a_rater_named_on_the_command_line_is_not_asked(open_page: OpenPage, serve: Serve, tmp_path: Path) -> None:
    server = serve(write_run(tmp_path), "--rater", "ann")
    page = open_page(server.url, allowed=(f"http://127.0.0.1:{server.port}/",))
    page.wait_for_selector(READY)
    assert page.inner_text("#who") == "ann"


def test_undo_skip_and_the_end(label: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    run = write_run(tmp_path, TWENTY[:3])
    page = label(serve(run), "ann")
    first = page.inner_text("#facts dd")
    page.keyboard.type("y5o/")
    page.keyboard.type("sun and sea, s u y")
    page.keyboard.press("Enter")
    waited(page, 1, 3)
    page.keyboard.press("u")
    waited(page, 0, 3)
    assert page.inner_text("#facts dd") == first
    assert page.input_value("textarea") == "sun and sea, s u y"
    assert page.locator("input:checked").count() == 3
    page.keyboard.press("n")
    page.keyboard.press("Enter")
    waited(page, 1, 3)
    skipped = page.inner_text("#facts dd")
    page.keyboard.press("s")
    waited(page, 2, 3)
    page.keyboard.type("y1")
    page.keyboard.press("Enter")
    waited(page, 3, 3)
    assert "1 was skipped" in page.inner_text("#end")
    page.click("#reopen")
    waited(page, 2, 3)
    assert page.inner_text("#facts dd") == skipped
    page.keyboard.press("s")
    waited(page, 3, 3)
    page.keyboard.press("u")
    waited(page, 2, 3)
    found = answers(run, "ann")
    assert (found[first, "usable"], found[first, "clarity"], found[first, "wrong"]) == (False, 5, ("odd colours",))
    assert not [case for case, _ in found if case == skipped]


def test_next_waits_for_what_is_required(label: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    run = write_run(tmp_path)
    page = label(serve(run), "ann")
    page.keyboard.press("y")
    page.keyboard.press("Enter")
    assert page.inner_text("#trouble") == "Still open: How clear is it?"
    assert page.locator("fieldset.active legend").inner_text().startswith("How clear is it?")
    page.keyboard.press("9")
    assert page.is_visible("#trouble")
    page.keyboard.press("2")
    assert not page.is_visible("#trouble")
    page.keyboard.press("Enter")
    waited(page, 1, 1)


def test_the_mouse_alone_is_enough_and_enter_after_a_click_goes_on(
    label: Callable[..., Page], serve: Serve, tmp_path: Path
) -> None:
    run = write_run(tmp_path, TWENTY[:2])
    page = label(serve(run), "ann")
    page.get_by_role("radio", name="No", exact=True).check()
    page.get_by_role("radio", name="4").check()
    page.get_by_role("checkbox", name="odd colours").check()
    page.get_by_role("button", name=re.compile("^Next")).click()
    waited(page, 1, 2)
    page.keyboard.type("y4")
    page.click("#fit")
    page.keyboard.press("Enter")
    waited(page, 2, 2)


def test_time_counts_while_the_page_is_in_sight(label: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    run = write_run(tmp_path)
    page = label(serve(run), "ann")
    page.wait_for_timeout(600)
    page.evaluate(
        "Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.wait_for_timeout(3000)
    page.keyboard.type("y4")
    page.keyboard.press("Enter")
    waited(page, 1, 1)
    seconds = {line["seconds"] for line in lines(run / "labels.jsonl")}
    assert len(seconds) == 1
    assert 0.4 <= seconds.pop() < 3


def test_a_pair_is_asked_with_its_sides(label: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    cases = TWENTY[:8]
    old = write_run(tmp_path, cases, [SECRET_A], run_id="old")
    write_run(tmp_path, cases, [SECRET_B], run_id="new")
    page = label(serve(old, "--pairs", "new", "--out", tmp_path, "--seed", "1"), "ann")
    assert page.locator(".pane figcaption").all_inner_texts() == ["A", "B"]
    for done, key in enumerate("abtabtab", 1):
        page.keyboard.press(key)
        page.keyboard.press("/")
        page.keyboard.type("a better tie")
        page.keyboard.press("Enter")
        waited(page, done, 8)
    found = lines(old / "labels.jsonl")
    said = [line["answer"] for line in found if line["question"] == "preferred"]
    assert {line["answer"] for line in found if line["question"] == "preferred.why"} == {"a better tie"}
    assert [answer == "tie" for answer in said] == [False, False, True, False, False, True, False, False]
    assert said != ["a", "b", "tie"] * 2 + ["a", "b"], "sides are shuffled"


def test_inputs_and_mask_are_shown_with_their_roles(
    label: Callable[..., Page], serve: Serve, tmp_path: Path, picture: Callable[..., Path], mask: Callable[..., Path]
) -> None:
    picture("base.png")
    picture("coat.png", color="red")
    mask("mask.png")
    images = [{"path": "base.png"}, {"path": "coat.png", "role": "garment"}]
    case = {"id": "one", "images": images, "mask": "mask.png", "region": "the coat", "reference": "gone.png"}
    page = label(serve(write_run(tmp_path, [case])), "ann")
    shown = page.locator("#stages button")
    titles = ["Result", "Input", "Side by side", "Input: garment", "Mask: may change", "Expected"]
    assert [text.split(" I")[0] if at == 0 else text for at, text in enumerate(shown.all_inner_texts())] == titles
    for at in range(1, 5):
        page.keyboard.press("i")
        page.wait_for_selector(f"#stages button:nth-child({at + 1})[aria-pressed=true]")
        page.wait_for_selector(f".pane:nth-child({2 if at == 2 else 1}):last-child .frame img")
    page.keyboard.press("i")
    page.wait_for_selector("text=This picture cannot be shown")
    page.keyboard.press("i")
    page.wait_for_selector(".frame img[alt=Result]")
    assert "the coat" in page.inner_text("#facts")


def test_zoom_by_key_wheel_and_drag(label: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    page = label(serve(write_run(tmp_path)), "ann")
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


HOSTILE = '<img src=x onerror="window.owned=1"><script>window.owned=1</script>&lt;b&gt; \' " `</textarea>'


def test_what_is_hostile_stays_text(label: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    asked = {"questions": [
        {"key": "q", "ask": HOSTILE, "type": "one_of", "choices": [HOSTILE, "fine"]},
        {"key": "t", "ask": HOSTILE, "type": "tags", "choices": [HOSTILE]},
        {"key": "note", "ask": HOSTILE, "type": "text"},
    ]}  # fmt: skip

    def change(number: int) -> dict[str, Any]:
        ocr = {"key": "look", "type": "text", "details": {"lines": [HOSTILE]}, "fingerprint": {"config_sha256": "0"}}
        return {"prompt": HOSTILE, "reasons": {"look": HOSTILE}, "tags": (HOSTILE,), "graders": (ocr,)}

    case = {"id": "one", "criteria": HOSTILE.replace("{", ""), "region": HOSTILE}
    run = write_run(tmp_path, [case, {"id": "two"}], labels=asked, change=change)
    results = run / "results.jsonl"
    found = results.read_text().replace('"test_id":"two"', '"test_id":"<script>window.owned=1</script>"')
    results.write_text(found)
    page = label(serve(run), HOSTILE.replace("&", "%26").replace("#", "%23")[:60])
    for done in (1, 2):
        assert page.inner_text("#prompt") == HOSTILE
        assert page.locator("legend").first.inner_text() == HOSTILE
        page.keyboard.press("1")
        page.keyboard.press("/")
        page.keyboard.type(HOSTILE)
        page.keyboard.press("Enter")
        waited(page, done, 2)
        assert page.evaluate("window.owned") is None
        assert page.locator("script").count() == 1
    page.keyboard.press("u")
    waited(page, 1, 2)
    assert page.input_value("textarea") == HOSTILE
    assert page.evaluate("window.owned") is None


def test_nothing_on_the_page_or_the_wire_tells_the_model(open_page: OpenPage, serve: Serve, tmp_path: Path) -> None:
    run = write_run(tmp_path, TWENTY[:3], [SECRET_A, SECRET_B])
    server = serve(run)
    own = f"http://127.0.0.1:{server.port}/"
    page = open_page("about:blank", allowed=(own, f"blob:{own}", "about:"))
    seen: list[str] = []
    page.on("response", lambda reply: seen.append(f"{reply.url} {reply.headers} {reply.body().decode('latin-1')}"))
    page.goto(f"{server.url}&rater=ann")
    for done in range(1, 7):
        page.wait_for_selector(READY)
        seen.append(page.content())
        page.keyboard.type("y3")
        page.keyboard.press("Enter")
        waited(page, done, 6)
    page.keyboard.press("u")
    waited(page, 5, 6)
    seen.append(page.content())
    page.wait_for_load_state("networkidle")
    assert len(seen) > 20
    assert [secrets_in(text) for text in seen] == [[]] * len(seen)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_all_without_sideways_scrolling(
    label: Callable[..., Page], serve: Serve, tmp_path: Path, scheme: str
) -> None:
    asked = {
        **ASKED,
        "questions": [
            *ASKED["questions"],
            {"key": "of", "ask": "Which?", "type": "one_of", "choices": ["long words " * 5, "b"]},
        ],
    }
    run = write_run(tmp_path, [{"id": "one", "criteria": "very-long-word-" * 20}], labels=asked)
    page = label(serve(run), "ann", viewport=PHONE, color_scheme=scheme, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    small = page.evaluate(
        "[...document.querySelectorAll('button, .choice')].filter((each) => each.offsetParent"
        " && (each.offsetHeight < 44 || each.offsetWidth < 44)).map((each) => each.textContent)"
    )
    assert small == []
    assert page.locator("#next").is_visible()


def test_names_roles_and_contrast(label: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    page = label(serve(write_run(tmp_path)), "ann")
    assert page.get_by_role("group", name="Would you use it?").get_by_role("radio").count() == 2
    assert page.get_by_role("textbox", name="Anything else?").count() == 1
    assert page.get_by_role("progressbar", name="Items done").get_attribute("aria-valuemax") == "1"
    assert page.get_by_role("img", name="Result").count() == 1
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input, textarea, select, a')].filter((each) => each.offsetParent &&"
        " !(each.ariaLabel || each.textContent.trim() || each.labels?.length)).length"
    )
    assert unnamed == 0
    for _ in range(7):
        page.keyboard.press("Tab")
        outline = page.evaluate(
            "(() => { const at = document.activeElement; const box = at.closest('.choice') ?? at;"
            " return getComputedStyle(box).outlineStyle; })()"
        )
        assert outline != "none"


def test_an_old_address_is_told(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    server = serve(write_run(tmp_path))
    with alone(browser, server, "ann") as page:
        server.kill()
        server.restart()
        page.keyboard.type("y4")
        page.keyboard.press("Enter")
        page.wait_for_selector("#broken:not([hidden])")
        assert "open the address that the command printed" in page.inner_text("#broken")
