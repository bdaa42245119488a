"""How the labeling page is displayed: hostile text, hidden model names, small screens, accessible names and focus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import PHONE
from label_server import QUESTIONS, READY, SECRET_A, SECRET_B, Server, secrets_in, wait_for_progress, write_run
from PIL import Image

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

Serve = Callable[..., Server]
OpenPage = Callable[..., "Page"]

HOSTILE = '<img src=x onerror="window.owned=1"><script>window.owned=1</script>&lt;b&gt; \' " `</textarea>'


def test_hostile_text_is_not_markup(rate: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
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
    page = rate(serve(run), HOSTILE.replace("&", "%26").replace("#", "%23")[:60])
    for done in (1, 2):
        assert page.inner_text("#prompt") == HOSTILE
        assert page.locator("legend").first.inner_text() == HOSTILE
        page.keyboard.press("1")
        page.keyboard.press("/")
        page.keyboard.type(HOSTILE)
        page.keyboard.press("Enter")
        wait_for_progress(page, done, 2)
        assert page.evaluate("window.owned") is None
        assert page.locator("script").count() == 1
    page.keyboard.press("u")
    wait_for_progress(page, 1, 2)
    assert page.input_value("textarea") == HOSTILE
    assert page.evaluate("window.owned") is None


def test_page_and_responses_hide_the_model(open_page: OpenPage, serve: Serve, tmp_path: Path) -> None:
    run = write_run(tmp_path, [{"id": name} for name in ("one", "two", "three")], [SECRET_A, SECRET_B])
    server = serve(run)
    custom = f"http://127.0.0.1:{server.port}/"
    page = open_page("about:blank", allowed=(custom, f"blob:{custom}", "about:"))
    seen: list[str] = []
    page.on("response", lambda reply: seen.append(f"{reply.url} {reply.headers} {reply.body().decode('latin-1')}"))
    page.goto(f"{server.url}?rater=ann")
    for done in range(1, 7):
        page.wait_for_selector(READY)
        seen.append(page.content())
        page.keyboard.type("y3")
        page.keyboard.press("Enter")
        wait_for_progress(page, done, 6)
    page.keyboard.press("u")
    wait_for_progress(page, 5, 6)
    seen += [page.content(), server.output]
    page.wait_for_load_state("networkidle")
    assert len(seen) > 20
    assert [secrets_in(text) for text in seen] == [[]] * len(seen)


def test_no_horizontal_scrolling_on_a_phone(rate: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    which = {"key": "of", "ask": "Which?", "type": "one_of", "choices": ["long words " * 5, "b"]}
    asked = {**QUESTIONS, "questions": [*QUESTIONS["questions"], which]}
    run = write_run(tmp_path, [{"id": "one", "criteria": "very-long-word-" * 20}], labels=asked)
    page = rate(serve(run), "ann", viewport=PHONE, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    small = page.evaluate(
        "[...document.querySelectorAll('button, .choice')].filter((each) => each.offsetParent"
        " && (each.offsetHeight < 44 || each.offsetWidth < 44)).map((each) => each.textContent)"
    )
    assert small == []
    assert page.locator("#next").is_visible()


def test_names_roles_and_contrast(rate: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    page = rate(serve(write_run(tmp_path)), "ann")
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


def test_phone_scrolls_to_the_image_of_each_item(rate: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    labels = {"preset": "ui"}
    page = rate(serve(write_run(tmp_path, [{"id": "one"}, {"id": "two"}], labels=labels)), "ann", viewport=PHONE)
    for done in (0, 1):
        assert page.evaluate("scrollY") == 0
        assert page.locator(".choice", has_text="missing section").count() == 1
        page.locator(".choice", has_text="Yes").click()
        page.locator(".choice", has_text="5").click()
        assert page.evaluate("scrollY") > 0
        page.locator("#next").click()
        wait_for_progress(page, done + 1, 2)


def test_wide_images_are_stacked(rate: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    for name, size in (("wide", (400, 100)), ("tall", (100, 400))):
        (tmp_path / name).mkdir()
        old, new = (
            write_run(tmp_path / name, [{"id": "one"}], [entry], run_id=entry) for entry in (SECRET_A, SECRET_B)
        )
        for run in (old, new):
            Image.new("RGB", size, "red").save(next(run.rglob("*.png")))
        page = rate(serve(old, "--pairs", new), "ann")
        boxes = [page.locator(".frame").nth(at).bounding_box() for at in (0, 1)]
        assert boxes[0] is not None
        assert boxes[1] is not None
        assert (boxes[0]["x"] == boxes[1]["x"]) is (name == "wide")
        assert (boxes[0]["y"] == boxes[1]["y"]) is (name == "tall")


def test_the_ends_of_a_scale_are_named(rate: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    scale = {"type": "scale", "scale": [1, 5]}
    asked = {
        "questions": [
            {"key": "clarity", "ask": "How clear is it?", **scale, "ends": ["unclear", "clear at once"]},
            {"key": "order", "ask": "How tidy is it?", **scale},
            {"key": "usable", "ask": "Would you use it?", "type": "yes_no"},
        ]
    }
    page = rate(serve(write_run(tmp_path, labels=asked)), "ann")
    ends = [box.locator(".ends span").all_inner_texts() for box in page.locator("fieldset.ask").all()]
    assert ends == [["1 = unclear", "5 = clear at once"], ["1 = least", "5 = most"], []]
    described = page.locator("fieldset.ask").first.get_attribute("aria-describedby")
    assert page.locator(f"#{described}").inner_text().split("\n") == ["1 = unclear", "5 = clear at once"]
