"""Paid outputs that this machine cannot use yet: they stay in the cache, and are checked again without paying."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import paid_answers
import pytest
from paid_answers import IMAGE, Answers, PaidRun
from PIL import Image

from visioneval.media import svg as svg_media
from visioneval.running.calls.cache import open_folder

pytestmark = pytest.mark.slow

SVG = (
    b'<svg xmlns="http://www.w3.org/2000/svg" width="30" height="20">'
    b'<rect width="9" height="9"/><rect x="9" width="9" height="9" fill="red"/></svg>'
)


def large() -> bytes:
    """An image of a little over a million pixels."""
    image = Image.new("RGB", (1010, 1000), (9, 99, 199))
    image.paste((200, 20, 20), (0, 0, 300, 300))
    target = io.BytesIO()
    image.save(target, "PNG")
    return target.getvalue()


def moving() -> bytes:
    """An animation."""
    frames = [Image.new("RGB", (24, 24), color) for color in ("red", "blue", "green")]
    target = io.BytesIO()
    frames[0].save(target, "GIF", save_all=True, append_images=frames[1:], duration=100)
    return target.getvalue()


LARGE = large()
FAULTS = {"missing_extra": SVG, "over_limit": LARGE, "wrong_task": moving()}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Answers]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("LOCAL_KEY", "sk-paid-0123456789")
    svg_media.raster.cache_clear()
    svg_media.checked_raster.cache_clear()
    with paid_answers.answering() as server:
        yield server


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Makes this machine one without the extra and with a low limit, or one with both."""

    def switch(is_able: bool) -> None:
        svg_media.raster.cache_clear()
        svg_media.checked_raster.cache_clear()
        monkeypatch.setattr(svg_media, "has_extra", lambda _: is_able)
        monkeypatch.setenv("VISIONEVAL_MAX_MEGAPIXELS", "50" if is_able else "1")

    return switch


def item(data: bytes) -> dict[str, str]:
    return {"b64_json": base64.b64encode(data).decode()}


def kinds(run: PaidRun, run_id: str = "r") -> list[str]:
    """The verdict or the kind of error of each sample."""
    return [record.error.kind if record.error else str(record.verdict) for record in run.records(run_id)]


@pytest.mark.parametrize("kind", ["missing_extra", "over_limit"])
def test_what_this_machine_lacks_is_installed_and_not_paid_again(
    answers: Answers, machine: Callable[[bool], None], kind: str
) -> None:
    pytest.importorskip("resvg_py")
    machine(False)
    answers.send(paid_answers.openai(item(FAULTS[kind])))
    run = PaidRun(answers)
    assert run().exit_code == 3
    (record,) = run.records()
    assert record.error is not None
    assert (record.error.kind, record.reply_note) == (kind, None)
    assert "--resume RUN checks it again, and pays nothing" in record.error.message
    assert Path("runs/r", str(record.reply_path)).read_bytes() == FAULTS[kind]
    assert (run.resume().exit_code, run.calls, run.records()[0].error) == (3, 1, record.error)
    assert (run("--reuse", "all", run_id="early").exit_code, kinds(run, "early"), run.calls) == (3, [kind], 1)
    machine(True)
    resumed = run.resume()
    assert (resumed.exit_code, kinds(run), run.calls) == (0, ["PASS"], 1), resumed.output
    (mended,) = run.records()
    assert (mended.cost_usd, mended.reply_path) == (record.cost_usd, None)
    assert Path("runs/r", str(mended.artifact_path)).read_bytes() == FAULTS[kind]
    for flags in (("--reuse", "all"), ("--offline",)):
        assert run(*flags, run_id=flags[-1].strip("-")).exit_code == 0
        assert (kinds(run, flags[-1].strip("-")), run.calls) == (["PASS"], 1)
    machine(False)
    assert run("--offline", run_id="elsewhere").exit_code == 3
    assert kinds(run, "elsewhere") == [kind]


def test_an_animation_is_of_the_wrong_task_and_may_be_paid_again(answers: Answers) -> None:
    answers.send(paid_answers.openai(item(FAULTS["wrong_task"])))
    run = PaidRun(answers)
    assert run().exit_code == 3
    assert run.resume().exit_code == 3
    assert (kinds(run), run.calls) == (["wrong_task"], 1)
    answers.send(paid_answers.openai(item(IMAGE)))
    assert run.resume("--retry-unusable").exit_code == 0
    assert (kinds(run), run.calls) == (["PASS"], 2)


def test_a_damaged_image_is_unusable(answers: Answers) -> None:
    answers.send(paid_answers.openai(item(IMAGE[:-30])))
    run = PaidRun(answers)
    assert run().exit_code == 3
    assert run.resume().exit_code == 3
    assert (kinds(run), run.calls) == (["unusable"], 1)


@pytest.mark.parametrize(("data", "after"), [(LARGE, "PASS"), (LARGE[: len(LARGE) // 2], "unusable")])
def test_each_sample_keeps_its_output_and_its_share_of_the_cost(
    answers: Answers, machine: Callable[[bool], None], data: bytes, after: str
) -> None:
    machine(False)
    answers.send(paid_answers.openai(item(data), item(IMAGE)))
    run = PaidRun(answers, params={"n": 2})
    assert run().exit_code == 3
    first, second = run.records()
    assert (kinds(run), second.reply_path, second.reply_note) == (["over_limit", "PASS"], None, None)
    machine(True)
    run.resume()
    assert (kinds(run), run.calls) == ([after, "PASS"], 1)
    assert sum(record.cost_usd or 0 for record in run.records()) == pytest.approx(0.04005)
    assert run.records()[1] == second
    run("--reuse", "all", run_id="again")
    assert (kinds(run, "again"), run.calls) == ([after, "PASS"], 1)
    assert run.records("again")[1].artifact_sha256 == second.artifact_sha256
    assert run.records("again")[0].artifact_sha256 != second.artifact_sha256
    assert first.cell == run.records()[0].cell


def test_without_a_place_to_store_it_the_answer_is_not_bought_again(
    answers: Answers, machine: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(False)
    open_folder(Path("cache"))
    monkeypatch.setattr("visioneval.running.calls.cache.os.access", lambda *_: False)
    answers.send(paid_answers.openai(item(SVG)))
    run = PaidRun(answers)
    assert run().exit_code == 3
    (record,) = run.records()
    assert Path("runs/r", str(record.reply_path)).read_bytes() == SVG
    assert run.resume().exit_code == 3
    assert (kinds(run), run.calls) == (["unusable"], 1)
