"""Images above what a judge accepts are scaled down for this judge alone, and the record says so."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_api import FakeAPI, JudgeRequest, Script
from PIL import Image
from suite_runner import LOOK, SuiteRunner

from visioneval import Question
from visioneval.providers import questions
from visioneval.providers.base import AddressPart, ImagePart, VideoPart
from visioneval.providers.gemini import GeminiJudge
from visioneval.providers.litellm import LiteLLMJudge
from visioneval.providers.openai import OpenAIJudge
from visioneval.providers.questions import TEXT_BYTES, ImageLimits, ScaledPart, base64_bytes, fitted, limits_of
from visioneval.records.between_cells import read_preferences

CLAUDE = "claude-sonnet-5-5"
SIZE = {"key": "image", "type": "properties"}
FORMATS = {"png": "PNG", "jpg": "JPEG", "webp": "WEBP"}


def judge(api: FakeAPI, model: str = CLAUDE) -> dict[str, Any]:
    host = {"base_url": api.openai_base_url, "api_key_env": "LOCAL_KEY"}
    return {"provider": "openai", "api": "chat", "model": model, **host}


def stored(path: Path, size: tuple[int, int], mode: str = "RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new(mode, size, (10, 90, 200, 120)[: len(mode)])
    image.paste((250, 240, 10, 255)[: len(mode)], (0, 0, size[0] // 2, size[1]))
    image.save(path, FORMATS[path.suffix[1:]])
    return path


def noise(path: Path, side: int) -> Path:
    """An image that hardly compresses."""
    pixels = np.random.default_rng(side).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


class Existing:
    """Runs a suite that judges existing outputs, ``outputs/CASE.EXT``."""

    def __init__(self, runner: SuiteRunner, api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runner, self.api, self.monkeypatch = runner, api, monkeypatch

    def write(self, suffix: str = "png", cases: Any = ({"id": "one", "prompt": "a tree"},), **changes: Any) -> None:
        models = [{"provider": "files", "label": "m", "path": f"outputs/{{case}}.{suffix}"}]
        suite = {
            "models": models,
            "judges": {"default": judge(self.api)},
            "graders": [LOOK, SIZE],
            "cases": list(cases),
            "prices": {},
        }
        self.runner.write(**{**suite, **changes})

    def run(self, *arguments: str, run_id: str = "r") -> None:
        result = self.runner.run(*arguments, run_id=run_id)
        assert result.exit_code == 0, result.output

    def scaled(self, run_id: str = "r") -> Any:
        """What the records say, by case."""
        return {
            case: record.graders[0].details.get("scaled") for (case, _), record in self.runner.records(run_id).items()
        }

    @property
    def questions(self) -> list[JudgeRequest]:
        return [entry.asked for entry in self.api.requests if isinstance(entry.asked, JudgeRequest)]

    def limit(self, model: str, **limits: Any) -> None:
        known = ((f".*{model}", ImageLimits(**{"judges": model, "request_bytes": 100_000_000, **limits})),)
        self.monkeypatch.setattr(questions, "JUDGES", known)


@pytest.fixture
def api() -> Iterator[FakeAPI]:
    with FakeAPI(Script(), models=[CLAUDE]) as server:
        yield server


@pytest.fixture
def existing(runner: SuiteRunner, api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> Existing:
    return Existing(runner, api, monkeypatch)


def size_of(data: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(data)) as image:
        return image.size


@pytest.mark.parametrize(("suffix", "mode"), [("png", "RGB"), ("png", "RGBA"), ("jpg", "RGB"), ("webp", "RGBA")])
def test_an_image_of_one_pixel_too_many_is_scaled_down(existing: Existing, suffix: str, mode: str) -> None:
    path = stored(existing.runner.folder / f"outputs/one.{suffix}", (8001, 16), mode)
    existing.write(suffix)
    existing.run()
    (question,) = existing.questions
    (image,) = question.images
    with Image.open(io.BytesIO(image.data)) as sent, Image.open(path) as whole:
        assert (sent.size, sent.format, sent.mode) == ((8000, 15), whole.format, mode)
    assert existing.scaled() == {"one": ["output: scaled from 8001x16 to 8000x15"]}
    (record,) = existing.runner.records().values()
    assert record.graders[1].details["size"] == "8001x16"


@pytest.mark.parametrize("size", [(8000, 16), (16, 8000)])
def test_an_image_at_the_limit_is_sent_as_it_is(existing: Existing, size: tuple[int, int]) -> None:
    path = stored(existing.runner.folder / "outputs/one.png", size)
    existing.write()
    existing.run()
    assert existing.questions[0].images[0].data == path.read_bytes()
    assert existing.scaled() == {"one": None}


def test_a_replay_says_the_same_and_another_limit_asks_again(existing: Existing) -> None:
    stored(existing.runner.folder / "outputs/one.png", (8001, 16))
    stored(existing.runner.folder / "outputs/two.png", (7000, 16))
    existing.write(cases=[{"id": "one", "prompt": "a tree"}, {"id": "two", "prompt": "a tree"}])
    existing.run()
    existing.run("--offline", run_id="again")
    assert len(existing.questions) == 2
    assert (
        existing.scaled("again")
        == existing.scaled()
        == {"one": ["output: scaled from 8001x16 to 8000x15"], "two": None}
    )
    existing.limit("claude", side=7000)
    existing.run(run_id="other")
    assert len(existing.questions) == 3
    assert existing.scaled("other") == {"one": ["output: scaled from 8001x16 to 7000x13"], "two": None}


def test_an_image_is_scaled_once_for_all_questions_about_it(
    existing: Existing, monkeypatch: pytest.MonkeyPatch
) -> None:
    scaled: list[tuple[int | None, int]] = []

    def scale(source: bytes, mime: str, side: int | None, most_bytes: int) -> Any:
        scaled.append((side, most_bytes))
        return whole(source, mime, side, most_bytes)

    whole = questions._scale
    questions._LATEST.clear()
    monkeypatch.setattr(questions, "_scale", scale)
    stored(existing.runner.folder / "outputs/one.png", (8001, 16))
    stored(existing.runner.folder / "outputs/two.png", (8002, 16))
    cases = [{"id": "one", "prompt": "a tree"}, {"id": "two", "prompt": "a tree"}]
    existing.write(cases=cases, graders=[{**LOOK, "votes": 3}])
    existing.run()
    assert (len(existing.questions), len(scaled)) == (6, 2)
    assert {question.images[0].data for question in existing.questions} == {
        data for data, *_ in questions._LATEST.values()
    }
    existing.limit("claude", side=7000)
    existing.run(run_id="other")
    assert len(scaled) == 4, "another limit scales again"
    monkeypatch.setattr(questions, "_LATEST_BYTES", 1)
    existing.run("--reuse", "none", run_id="small")
    assert len(questions._LATEST) == 1


def test_each_judge_of_a_panel_has_its_own_limits_and_local_graders_have_none(existing: Existing) -> None:
    path = stored(existing.runner.folder / "outputs/one.png", (9000, 30))
    judges = {"a": judge(existing.api, "gpt-5.4"), "b": judge(existing.api)}
    look = {**LOOK, "judge": ["a", "b"]}
    reference = {"key": "same", "type": "reference"}
    case = {"id": "one", "prompt": "a tree", "reference": "outputs/one.png"}
    existing.write(cases=[case], judges=judges, graders=[look, reference])
    existing.run()
    sent = {question.model: {size_of(image.data) for image in question.images} for question in existing.questions}
    assert sent == {"gpt-5.4": {(9000, 30)}, CLAUDE: {(8000, 26)}}
    assert path.read_bytes() in {image.data for question in existing.questions for image in question.images}
    (record,) = existing.runner.records().values()
    notes = {answer.judge: answer.details.get("scaled") for answer in record.graders[0].judges}
    assert notes == {"a": None, "b": ["output: scaled from 9000x30 to 8000x26"]}
    assert "scaled" not in record.graders[0].details
    assert record.graders[1].error is None
    assert "scaled" not in record.graders[1].details


def test_inputs_masks_and_references_are_scaled_too(existing: Existing) -> None:
    folder = existing.runner.folder
    stored(folder / "outputs/one.png", (40, 20))
    stored(folder / "base.png", (8010, 20))
    stored(folder / "truth.jpg", (16, 9000))
    mask = Image.new("RGBA", (8010, 20), "white")
    mask.putalpha(Image.linear_gradient("L").resize(mask.size).point(lambda value: 255 if value > 100 else 0))
    mask.save(folder / "mask.png")
    images = [{"role": "base", "path": "base.png"}]
    case = {"id": "one", "prompt": "x", "images": images, "masks": {"editable": "mask.png"}, "reference": "truth.jpg"}
    look = {**LOOK, "show": ["prompt", "criteria", "inputs", "masks", "reference", "output"]}
    existing.write(cases=[{"task": "image_editing", **case}], graders=[look])
    existing.run()
    assert existing.scaled() == {
        "one": [
            "ref_1: scaled from 8010x20 to 8000x19",
            "mask_editable: scaled from 8010x20 to 8000x19",
            "reference: scaled from 16x9000 to 14x8000",
        ]
    }


@pytest.mark.parametrize(("inputs", "note"), [(19, None), (20, ["output: scaled from 2001x12 to 2000x11"])])
def test_a_request_with_many_images_has_a_lower_limit(existing: Existing, inputs: int, note: Any) -> None:
    folder = existing.runner.folder
    stored(folder / "outputs/one.png", (2001, 12))
    stored(folder / "base.png", (2000, 12))
    images = [{"role": f"part{number}", "path": "base.png"} for number in range(inputs)]
    existing.write(cases=[{"id": "one", "prompt": "x", "task": "image_editing", "images": images}])
    existing.run()
    assert existing.scaled() == {"one": note}


@pytest.mark.parametrize("provider", ["openai", "gemini"])
def test_bytes_are_counted_as_they_are_sent(existing: Existing, provider: str) -> None:
    path = noise(existing.runner.folder / "x.png", 300)
    (existing.runner.folder / "outputs").mkdir()
    path.rename(existing.runner.folder / "outputs/one.png")
    size = base64_bytes((existing.runner.folder / "outputs/one.png").stat().st_size)
    model = {"openai": "gpt-5.4", "gemini": "gemini-3.5-flash"}[provider]
    known = judge(existing.api, model)
    if provider == "gemini":
        known = {"provider": "gemini", "model": model, "base_url": existing.api.url, "api_key_env": "LOCAL_KEY"}
    existing.write(judges={"default": known})
    existing.limit(model, image_bytes=size)
    existing.run()
    assert existing.scaled() == {"one": None}
    existing.limit(model, image_bytes=size - 1)
    existing.run(run_id="above")
    (note,) = existing.scaled("above")["one"]
    assert note.startswith(("output: scaled from 300x300 to 2", "output: encoded again at 300x300"))
    sent = existing.questions[-1].images[0].data
    assert base64_bytes(len(sent)) <= size - 1
    assert size_of(sent)[0] > 200


def test_an_image_that_was_badly_compressed_keeps_its_pixels(existing: Existing) -> None:
    path = existing.runner.folder / "outputs/one.png"
    path.parent.mkdir()
    Image.new("RGB", (300, 300), "red").save(path, compress_level=0)
    existing.write()
    existing.limit("claude", image_bytes=100_000)
    existing.run()
    assert existing.scaled() == {"one": ["output: encoded again at 300x300"]}
    sent = existing.questions[0].images[0].data
    with Image.open(io.BytesIO(sent)) as image:
        assert (image.size, image.getpixel((5, 5))) == ((300, 300), (255, 0, 0))


def test_pairs_have_both_images_scaled(existing: Existing) -> None:
    folder = existing.runner.folder
    for label in "xy":
        stored(folder / f"{label}/one.png", (8100, 20 if label == "x" else 30))
    existing.api.script.judge({"reason": "so it is", "answer": "A"})
    models = [{"provider": "files", "label": label, "path": f"{label}/{{case}}.png"} for label in "xy"]
    existing.write(models=models, graders=[SIZE], verdict=["image"])
    existing.run()
    result = existing.runner("pairwise", existing.runner.out / "r@x", existing.runner.out / "r@y")
    assert result.exit_code == 0, result.output
    assert {size_of(image.data) for question in existing.questions for image in question.images} == {
        (8000, 19),
        (8000, 29),
    }
    first, second = read_preferences(existing.runner.out / "r")
    assert {first.first, second.first} == {"a", "b"}
    assert sorted(note.partition(": ")[2] for note in first.scaled) == [
        "scaled from 8100x20 to 8000x19",
        "scaled from 8100x30 to 8000x29",
    ]


def claude(**options: Any) -> OpenAIJudge:
    return OpenAIJudge(provider="openai", model=CLAUDE, api="chat", **options)


@pytest.mark.parametrize(
    ("config", "known"),
    [
        (claude(), (32 << 20, 10 << 20, 8000)),
        (OpenAIJudge(provider="openai", model="anthropic/claude-opus-5", api="chat"), (32 << 20, 10 << 20, 8000)),
        (LiteLLMJudge(provider="litellm", model="anthropic/claude-sonnet-5-5"), (32 << 20, 10 << 20, 8000)),
        (LiteLLMJudge(provider="litellm", model="bedrock/eu.anthropic.claude-x"), (20_000_000, 5 << 20, 8000)),
        (LiteLLMJudge(provider="litellm", model="vertex_ai/claude-sonnet-5-5"), (30_000_000, 5 << 20, 8000)),
        (OpenAIJudge(provider="openai", model="gpt-5.4"), (47_000_000, None, None)),
        (LiteLLMJudge(provider="litellm", model="azure/gpt-5.4-mini"), (47_000_000, None, None)),
        (GeminiJudge(provider="gemini", model="gemini-3.5-flash"), (100_000_000, None, None)),
        (LiteLLMJudge(provider="litellm", model="gemini/gemini-3.5-flash"), (100_000_000, None, None)),
        (OpenAIJudge(provider="openai", model="qwen3-vl", api="chat"), None),
        (LiteLLMJudge(provider="litellm", model="xai/grok-5"), None),
    ],
)
def test_which_judges_have_known_limits(config: Any, known: Any) -> None:
    limits = limits_of(config)
    assert (limits and (limits.request_bytes, limits.image_bytes, limits.side)) == known


def parts(*sizes: int) -> Question:
    return Question(parts=tuple(ImagePart(bytes([at]) * size, "image/png") for at, size in enumerate(sizes)))


def test_a_question_within_the_limits_is_the_same_question() -> None:
    at_limit = parts((10 << 20) // 4 * 3)
    assert fitted(claude(), at_limit) == at_limit
    (part,) = fitted(claude(), parts((10 << 20) // 4 * 3 + 1)).parts
    assert isinstance(part, ScaledPart)
    for other in (VideoPart(bytes(40 << 20), "video/mp4"), AddressPart(b"", "image/png", "gs://a/b.png"), "text"):
        assert fitted(claude(), Question(parts=(other,))).parts == (other,)


@pytest.mark.parametrize(("extra", "scaled"), [(0, []), (3, [1, 2])])
def test_large_images_make_room_for_small_ones(extra: int, scaled: list[int]) -> None:
    room = (47_000_000 - TEXT_BYTES) // 4 * 3
    question = parts(300, (room - 300) // 2 // 3 * 3, (room - 300) // 2 // 3 * 3 + extra)
    judge = OpenAIJudge(provider="openai", model="gpt-5.4")
    sent = fitted(judge, question).parts
    at = [number for number, part in enumerate(sent) if isinstance(part, ScaledPart)]
    assert at == scaled or (extra and at == scaled[-1:])
    keys = [part.sha256 for part in sent if isinstance(part, ImagePart)]
    assert keys[0] == question.parts[0].sha256  # type: ignore[union-attr]


def test_probe_shows_the_judge_scaled_images_too(existing: Existing) -> None:
    stored(existing.runner.folder / "outputs/one.png", (200, 160))
    existing.write(graders=[LOOK])
    existing.limit("claude", side=100)
    arguments = ("--judges", "--kinds", "harmless.png", "--kinds", "pixels.flip")
    result = existing.runner("probe", existing.runner.folder / "suite.yaml", *arguments)
    assert existing.questions, result.output
    assert {size_of(image.data) for question in existing.questions for image in question.images} == {(100, 80)}
