"""What every provider and every judge must do, as tests. Each is a subclass, with an entry for what it cannot do."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fake_api import FakeAPI, Fault, JudgeRequest, Script, ToolCall
from fake_api.samples import CROP, SCHEMA, asked_generate, asked_judge, encode
from PIL import Image
from toys import Toy

from visioneval import (
    CaseFiles,
    CellRef,
    Generation,
    GenerationRequest,
    ProviderError,
    Question,
    Reply,
    TaskType,
    TestCase,
    read_records,
)
from visioneval.providers.base import ImagePart, Part, Tool
from visioneval.providers.questions import converse

KEY = "sk-fake-0123456789abcdef"
"""The key of the fake API."""
VARIABLE = "PAID_KEY"
GOOD = {"verdict": "PASS", "quality": 4, "tags": []}
OUTPUT = ImagePart(encode(), "image/png")
QUESTION = Question(("Judge this.", "output:", OUTPUT), schema=SCHEMA, names=("verdict", "quality", "tags"))
METRIC = {"type": "score", "scale": [0, 5], "description": "How good is it?"}
FAULTS: Mapping[str, tuple[Fault, str, float | None]] = {
    "rate limit": (Fault("rate_limit"), "rate_limit", None),
    "rate limit with a wait": (Fault("rate_limit", retry_after=0.25), "rate_limit", 0.25),
    "rate limit with a header": (Fault("rate_limit", retry_after_header="7"), "rate_limit", 7.0),
    "rate limit until a past date": (
        Fault("rate_limit", retry_after_header="Wed, 21 Oct 2015 07:28:00 GMT"), "rate_limit", 0.0,
    ),
    "spent quota": (Fault("quota"), "quota", None),
    "overload with a wait": (Fault("unavailable", retry_after=3), "transient", 3.0),
    "failing server": (Fault("server_error"), "transient", None),
    "failing gateway": (Fault("bad_gateway"), "transient", None),
    "lost connection": (Fault("reset"), "transient", None),
    "cut answer": (Fault("truncated_body"), "transient", None),
    "refused key": (Fault("unauthorized"), "auth", None),
    "missing right": (Fault("forbidden"), "invalid", None),
    "unknown model": (Fault("model_not_found"), "invalid", None),
    "bad request": (Fault("bad_request"), "invalid", None),
    "redirect": (Fault("redirect", location="http://elsewhere.example/?token=abc"), "invalid", None),
}  # fmt: skip
"""Faults of a server, with the kind of the error and the wait in seconds that each must become."""
LOCAL = "it calls no server"


@dataclass(frozen=True)
class Scene:
    """What a test may use: the server, a folder, images to send, and how to wait for a coroutine."""

    api: FakeAPI
    script: Script
    toy: Toy
    wait_for: Callable[[Any], Any]
    save_image: Callable[..., Path]
    mask: Callable[..., Path]


class Conformance:
    """The behaviors of one provider or judge. ``cannot`` has the reason for each that it cannot show."""

    cannot: ClassVar[Mapping[str, str]] = {}
    faults: ClassVar[Mapping[str, str]] = {}
    """The beginning of the message for each fault."""
    timeout_s: ClassVar[int] = 1
    """A time within which a call begins."""
    says_no_wait: ClassVar[frozenset[str]] = frozenset()
    """The faults for which its server says no wait."""

    def __init_subclass__(cls) -> None:
        for name in cls.cannot:
            assert callable(getattr(cls, f"test_{name}")), name
            setattr(cls, f"test_{name}", None)

    @pytest.fixture
    def scene(
        self,
        api: FakeAPI,
        script: Script,
        toy: Toy,
        wait_for: Callable[[Any], Any],
        save_image: Callable[..., Path],
        mask: Callable[..., Path],
        monkeypatch: pytest.MonkeyPatch,
    ) -> Scene:
        monkeypatch.setenv(VARIABLE, KEY)
        monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
        return Scene(api, script, toy, wait_for, save_image, mask)

    def call(self, scene: Scene) -> object:
        """Makes one plain call."""
        raise NotImplementedError

    def suite(self, scene: Scene, **changes: Any) -> Path:
        """A suite with one cell that makes such a call."""
        raise NotImplementedError

    def failed(self, scene: Scene, fault: Fault) -> ProviderError:
        scene.api.faults.queue(fault)
        with pytest.raises(ProviderError) as caught:
            self.call(scene)
        return caught.value

    def run(self, scene: Scene, *flags: str, **changes: Any) -> Any:
        """The one record of a run of the suite."""
        (record,) = self.records(scene, *flags, **changes)
        return record

    def records(self, scene: Scene, *flags: str, **changes: Any) -> list[Any]:
        """The records of a run of the suite, by sample."""
        cache = scene.toy.folder / f"cache{len(list(scene.toy.folder.glob('cache*')))}"
        path = self.suite(scene, **changes)
        self.result = scene.toy("run", path, "--quiet", "--trust-suite", "--cache", cache, *flags)
        assert cache.is_dir(), self.result.output
        return sorted(read_records(scene.toy.latest), key=lambda record: record.sample_index)

    @pytest.mark.parametrize("name", FAULTS)
    def test_faults(self, scene: Scene, name: str) -> None:
        """Each is reported after one call, in the words of the server, with its wait and without the key."""
        fault, kind, wait = FAULTS[name]
        error = self.failed(scene, fault)
        assert (error.kind, error.retry_after) == (kind, None if name in self.says_no_wait else wait)
        assert str(error).lower().startswith(self.faults[name].lower()), str(error)
        assert KEY not in str(error)
        assert "token=abc" not in str(error)
        assert len(scene.api.requests) == 1

    def test_retries(self, scene: Scene) -> None:
        """A call that is limited is made again after the wait, and one that is not is made once."""
        scene.api.faults.queue(Fault("rate_limit", retry_after=0.01))
        assert self.run(scene).error is None
        assert len(scene.api.requests) == 2
        scene.api.faults.when(lambda _asked: True, Fault("quota"))
        records = self.records(scene)
        assert (self.result.exit_code, len(scene.api.requests)) == (3, 3)
        assert all(record.verdict == "ERROR" for record in records)

    def test_cancellation(self, scene: Scene) -> None:
        """A call that takes too long is given up: its connection is closed, and the cell is an error."""
        scene.api.faults.when(lambda _asked: True, Fault("hang"))
        name = json.loads(self.suite(scene).read_text())
        entry = (name.get("judges") or {}).get("eye") or name["models"][0]
        record = self.run(scene, limits={entry["provider"]: {"timeout_s": self.timeout_s, "max_attempts": 1}})
        assert record.verdict == "ERROR"
        assert f"no answer within {self.timeout_s} s" in record.error.message
        assert self.result.exit_code == 3
        assert len(scene.api.requests) == 1

    def test_key_is_never_written(self, scene: Scene) -> None:
        """Neither a good run nor a refused key that the server repeats is printed, logged, recorded or cached."""
        log = scene.toy.folder / "calls.jsonl"
        assert self.run(scene, "--log-file", str(log)).error is None
        scene.api.faults.when(lambda _asked: True, Fault("unauthorized", text=f"{KEY} is unknown"))
        self.records(scene, "--log-file", str(log))
        assert self.result.exit_code == 3
        assert "the provider refused the API key: " in self.result.output
        assert KEY not in self.result.output
        files = [path for path in scene.toy.folder.rglob("*") if path.is_file()]
        assert len(files) > 5
        assert [path for path in files if KEY.encode() in path.read_bytes()] == []


class GenerationConformance(Conformance):
    """What a provider of models must do."""

    params: ClassVar[Mapping[str, Any]] = {}
    model: ClassVar[str] = ""
    """The model as its server sees it."""
    calls_for_three: ClassVar[int] = 3
    lost_of_three: ClassVar[int] = 1
    """Samples that lack an image if one answer has an image too few."""
    mask_mode: ClassVar[str] = "send"
    usd: ClassVar[float] = 0
    """The cost of one image and its prompt, at a dollar a token."""
    no_image: ClassVar[Mapping[str, str]] = {}
    """Faults with an answer that has no usable image, and the beginning of the message for each."""
    refusals: ClassVar[Mapping[str, str]] = {"": ""}
    """Reasons of refusals, and the beginning of the message for each."""

    def entry(self, scene: Scene) -> dict[str, Any]:
        """The entry of ``models`` in a suite."""
        raise NotImplementedError

    def open(self, entry: Mapping[str, Any]) -> Any:
        """The provider of an entry."""
        raise NotImplementedError

    def generate(self, scene: Scene, files: CaseFiles | None = None, **options: Any) -> Generation:
        entry = {**self.entry(scene), **options}
        params = entry.get("params", {})
        request = GenerationRequest(
            case=TestCase(id="one", prompt="a tree"),
            task_type=TaskType.IMAGE_EDITING if files else TaskType.IMAGE_GENERATION,
            prompt="a tree",
            model_label="m",
            params=params,
            files=files or CaseFiles(),
            samples=(0,),
            folder=scene.toy.folder,
        )
        provider = self.open(entry)
        work = (provider.edit if files else provider.generate)(request)
        result: Generation = scene.wait_for(work) if asyncio.iscoroutine(work) else work
        return result

    def call(self, scene: Scene) -> Generation:
        return self.generate(scene)

    def suite(self, scene: Scene, **changes: Any) -> Path:
        models = [{**self.entry(scene), "label": "m"}]
        text = {
            "name": "s", "cases": [{"id": "one", "prompt": "a tree"}], "models": models,
            "graders": [{"key": "file", "type": "properties"}], "verdict": ["not file.blank"], **changes,
        }  # fmt: skip
        path = scene.toy.folder / "suite.yaml"
        path.write_text(json.dumps(text))
        return path

    def test_generation(self, scene: Scene) -> None:
        """The prompt and the parameters arrive as they are written, and the image is the server's."""
        generated = self.generate(scene)
        assert Image.open(io.BytesIO(generated.outputs[0])).size >= (32, 24)  # type: ignore[arg-type]
        assert (len(generated.outputs), generated.refused, generated.unusable) == (1, None, None)
        if scene.api.requests:
            sent = asked_generate(scene.api)
            assert (sent.prompt, sent.model, sent.images) == ("a tree", self.model, ())
            assert dict(generated.run_params) == self.entry(scene)["params"]

    def test_output_is_stored_byte_for_byte(self, scene: Scene) -> None:
        data = encode("PNG", (30, 20))
        scene.script.generate(lambda _asked: data)
        assert self.generate(scene).outputs == (data,)

    def test_samples(self, scene: Scene) -> None:
        """Each sample has an image of its own."""
        records = self.records(scene, samples=3)
        assert [(record.sample_index, record.verdict) for record in records] == [(0, "PASS"), (1, "PASS"), (2, "PASS")]
        assert len(scene.api.requests) == (3 if self.is_remote else 0)

    def test_several_images_of_a_call(self, scene: Scene) -> None:
        """With ``n: 3``, one call has three images; fewer of them are errors of the samples without one."""
        entry = self.entry(scene)
        models = [{**entry, "params": {**entry["params"], "n": 3}}]
        records = self.records(scene, models=models)
        assert len(scene.api.requests) == self.calls_for_three
        assert [record.verdict for record in records] == ["PASS"] * 3
        assert len({record.artifact_path for record in records}) == 3
        scene.api.faults.queue(Fault("fewer_images"))
        records = self.records(scene, models=models)
        lost = self.lost_of_three
        assert sorted(record.verdict for record in records) == ["ERROR"] * lost + ["PASS"] * (3 - lost)

    @property
    def is_remote(self) -> bool:
        return bool(self.model)

    def test_edit(self, scene: Scene) -> None:
        """Every input image arrives, in order and unchanged, with the prompt."""
        paths = [scene.save_image("a.png"), scene.save_image("b.jpg", size=(40, 30))]
        files = CaseFiles(images=(("base", paths[0]), ("garment", paths[1])))
        assert len(self.generate(scene, files).outputs) == 1
        if self.is_remote:
            sent = asked_generate(scene.api)
            assert [image.data for image in sent.images] == [path.read_bytes() for path in paths]
            assert [image.mime for image in sent.images] == ["image/png", "image/jpeg"]
            assert (sent.mask, sent.prompt) == (None, "a tree")

    def test_mask(self, scene: Scene) -> None:
        """A mask is the argument, or else the last image, in white where pixels may change; or it is ignored."""
        mask = scene.mask()
        files = CaseFiles(images=(("base", scene.save_image()),), masks={"editable": mask})
        options = {} if self.mask_mode == "as_image" else {"mask_mode": "as_image"}
        generated = self.generate(scene, files, **options)
        sent = asked_generate(scene.api)
        assert (sent.mask, len(sent.images)) == (None, 2)
        shown = Image.open(io.BytesIO(sent.images[1].data)).convert("L")
        assert [shown.getpixel(at) for at in ((0, 0), (16, 12), (47, 35), (48, 36))] == [0, 255, 255, 0]
        assert sent.prompt.startswith("a tree\n\nImage 2 is a mask for image 1: change only what is white")
        assert generated.run_params["mask_mode"] == "as_image"
        generated = self.generate(scene, files, mask_mode="ignore")
        sent = asked_generate(scene.api)
        assert (sent.mask, len(sent.images), sent.prompt) == (None, 1, "a tree")
        assert generated.run_params["mask_mode"] == "ignore"

    def test_mask_argument(self, scene: Scene) -> None:
        mask = scene.mask()
        files = CaseFiles(images=(("base", scene.save_image()),), masks={"editable": mask})
        generated = self.generate(scene, files)
        sent = asked_generate(scene.api)
        assert sent.mask is not None
        assert (sent.mask.data, len(sent.images), sent.prompt) == (mask.read_bytes(), 1, "a tree")
        assert generated.run_params["mask_mode"] == "send"

    def test_refusal(self, scene: Scene) -> None:
        """A refusal is a result: it fails the case, in the words of the server, and is not asked for again."""
        for reason, words in self.refusals.items():
            error = self.failed(scene, Fault("refusal", reason=reason or None))
            assert (error.kind, str(error)[: len(words)]) == ("refused", words)
        scene.api.requests.clear()
        scene.api.faults.when(lambda _asked: True, Fault("refusal"))
        record = self.run(scene)
        assert (record.status, record.verdict, len(scene.api.requests)) == ("refused", "FAIL", 1)

    def test_answers_without_an_image(self, scene: Scene) -> None:
        """An answer without an image is stored, is no refusal and no outage, and is not bought again."""
        for kind, words in self.no_image.items():
            scene.api.faults.queue(Fault(kind))
            generated = self.generate(scene)
            assert (generated.refused, generated.outputs) == (None, ())
            assert str(generated.unusable).startswith(words), generated.unusable
            assert generated.reply
        scene.api.requests.clear()
        scene.api.faults.when(lambda _asked: True, Fault("bad_json"))
        record = self.run(scene)
        assert (record.verdict, record.error.kind, len(scene.api.requests)) == ("ERROR", "unusable", 1)

    def test_web_page(self, scene: Scene) -> None:
        error = self.failed(scene, Fault("html"))
        assert (error.kind, error.may_be_billed) == ("unusable", True)
        assert "Welcome" in str(error) or b"Welcome" in (error.reply or b"")

    def test_usage(self, scene: Scene) -> None:
        """The tokens that the server counts are the cost."""
        prices = {self.entry(scene)["provider"]: {"input_per_million": 1_000_000, "output_per_million": 1_000_000}}
        record = self.run(scene, prices=prices)
        assert record.cost_usd == self.usd


class JudgeConformance(Conformance):
    """What a judge must do."""

    model: ClassVar[str] = ""
    endpoint: ClassVar[str] = ""
    schema_form: ClassVar[tuple[str | None, bool]] = ("answer", True)
    """The name of the schema, and whether it is strict."""
    detail: ClassVar[str | None] = "auto"
    refusals: ClassVar[Mapping[str, str]] = {"": ""}
    stopped: ClassVar[str] = "max_tokens"
    input_tokens: ClassVar[str] = "input_tokens"
    tools_until_the_end: ClassVar[bool] = True
    """Whether a judge that must answer keeps its tools, forbidden by ``tool_choice``."""

    def entry(self, scene: Scene) -> dict[str, Any]:
        """The entry of ``judges`` in a suite."""
        raise NotImplementedError

    def open(self, entry: Mapping[str, Any]) -> Any:
        """The judge of an entry."""
        raise NotImplementedError

    def ask(self, scene: Scene, question: Question = QUESTION, **options: Any) -> Reply:
        judge = self.open({**self.entry(scene), **options})
        cell = CellRef("case-77", "the-generation-model", 0)
        reply: Reply = scene.wait_for(converse(lambda item: judge.ask(item, cell), question))
        return reply

    def call(self, scene: Scene) -> Reply:
        return self.ask(scene)

    def suite(self, scene: Scene, **changes: Any) -> Path:
        (scene.toy.folder / "one.png").write_bytes(OUTPUT.data)
        text = {
            "name": "s", "cases": [{"id": "one", "prompt": "a tree"}],
            "models": [{"provider": "files", "label": "m", "path": "{case}.png"}],
            "judges": {"eye": self.entry(scene)}, "verdict": ["quality >= 0"],
            "graders": [{"key": "look", "type": "rubric", "judge": "eye", "metrics": {"quality": METRIC}}],
            **changes,
        }  # fmt: skip
        path = scene.toy.folder / "suite.yaml"
        path.write_text(json.dumps(text))
        return path

    def test_answer(self, scene: Scene) -> None:
        """The schema, the texts and the images arrive in order, and nothing says which model or case it is."""
        scene.script.judge(GOOD)
        reply = self.ask(scene)
        assert (json.loads(reply.text), reply.model, reply.shape) == (GOOD, self.model, "schema")
        assert (reply.stopped, reply.tool_calls) == (None, 0)
        asked = asked_judge(scene.api)
        assert (asked.endpoint, asked.schema) == (self.endpoint, SCHEMA)
        assert (asked.schema_name, asked.strict) == self.schema_form
        assert asked.parts[:2] == ("Judge this.", "output:")
        assert [(image.data, image.mime, image.detail) for image in asked.images] == [
            (OUTPUT.data, "image/png", self.detail)
        ]
        sent = json.dumps(scene.api.requests[-1].body)
        assert not any(word in sent for word in ("case-77", "the-generation-model"))

    def test_words(self, scene: Scene) -> None:
        """Without a schema the answer is text."""
        scene.script.judge("A red bicycle.")
        assert self.ask(scene, Question(("Describe it.",))).text == "A red bicycle."
        assert not {"text", "response_format", "tools", "include"} & scene.api.requests[-1].body.keys()

    def test_refusal(self, scene: Scene) -> None:
        """A refusal leaves no score, in the words of the judge."""
        for reason, words in self.refusals.items():
            error = self.failed(scene, Fault("refusal", reason=reason or None, text="No." if not reason else None))
            assert (error.kind, str(error)[: len(words)]) == ("refused", words)
        scene.api.faults.when(lambda _asked: True, Fault("refusal"))
        record = self.run(scene)
        assert (record.verdict, record.scores) == ("ERROR", {"quality": None})

    def test_cut_answer(self, scene: Scene) -> None:
        """An answer at its limit of tokens is asked for once more, and is no score."""
        whole = {"reason": "", "quality": 4, "verdict": "PASS"}
        scene.script.judge(lambda asked: GOOD if "tags" in asked.schema["properties"] else whole)
        scene.api.faults.queue(Fault("max_tokens"))
        reply = self.ask(scene)
        assert (reply.stopped, reply.text) == (self.stopped, json.dumps(GOOD)[: len(json.dumps(GOOD)) // 2])
        scene.api.requests.clear()
        scene.api.faults.when(lambda _asked: True, Fault("max_tokens"))
        record = self.run(scene)
        assert (record.verdict, record.scores) == ("ERROR", {"quality": None})
        assert len(scene.api.requests) == 2

    @pytest.mark.parametrize(
        ("kind", "text"),
        [
            ("off_schema", '{"unexpected": ["shape"]}'),
            ("fenced", f"```json\n{json.dumps(GOOD)}\n```"),
            ("mangled", f"{json.dumps(GOOD)[:-1]},}}"),
            ("empty", ""),
        ],
    )
    def test_answers_are_returned_as_they_are(self, scene: Scene, kind: str, text: str) -> None:
        scene.script.judge(GOOD)
        scene.api.faults.queue(Fault(kind))
        assert self.ask(scene).text == text

    def test_usage(self, scene: Scene) -> None:
        """Tokens of all rounds are counted."""
        first = ToolCall("crop", {"image_id": "a", "x1": 1})
        scene.script.judge(
            lambda asked: first if asked.tools and asked.turns == 0 else GOOD if asked.schema else "Done."
        )
        one = self.ask(scene, QUESTION).usage
        several = self.ask(scene, with_crops()).usage
        assert one is not None
        assert several is not None
        assert several[self.input_tokens] > 2 * one[self.input_tokens] > 0

    def test_rounds(self, scene: Scene) -> None:
        """A judge calls tools, sees their texts and images in order, and answers."""
        scene.script.judge(two_rounds)
        reply = self.ask(scene, with_crops())
        assert (json.loads(reply.text), reply.tool_calls) == (GOOD, 3)
        asked = asked_judge(scene.api)
        labels = ["a crop of output at 3", "a crop of ref_1 at 3", "a crop of output at 5"]
        assert [label for result in asked.tool_results for label in labels if label in result.text] == labels
        assert [image.size for image in asked.images] == [(64, 48), (8, 8), (8, 8), (8, 8)]

    def test_rounds_are_limited(self, scene: Scene) -> None:
        """A judge that never stops calling tools must answer."""
        call = ToolCall("crop", {"image_id": "a", "x1": 1})

        def crop_forever(asked: JudgeRequest) -> Any:
            return call if asked.tools and asked.params.get("tool_choice") != "none" else GOOD

        scene.script.judge(crop_forever)
        reply = self.ask(scene, with_crops(most=3))
        assert (json.loads(reply.text), reply.tool_calls) == (GOOD, 5)
        assert not asked_judge(scene.api).tools or self.tools_until_the_end

    def test_web_page(self, scene: Scene) -> None:
        error = self.failed(scene, Fault("html"))
        assert error.kind in ("invalid", "unusable")
        assert "a web page: 'Welcome'" in str(error)


def with_crops(most: int = 6) -> Question:
    """The question with a tool that answers with a label and an image."""

    def crop(asked: Mapping[str, Any]) -> Sequence[Part]:
        assert isinstance(asked["x1"], int)
        return [f"a crop of {asked['image_id']} at {asked['x1']}", ImagePart(encode(size=(8, 8)), "image/png")]

    tool = Tool("crop", "Look closer.", CROP, crop)
    return Question(QUESTION.parts, SCHEMA, QUESTION.names, (tool,), max_tool_calls=most, detail="high")


def two_rounds(asked: JudgeRequest) -> Any:
    if asked.turns == 0:
        return [ToolCall("crop", {"image_id": name, "x1": 3}) for name in ("output", "ref_1")]
    if asked.turns == 1:
        return ToolCall("crop", {"image_id": "output", "x1": 5})
    return GOOD if asked.schema else "I have seen enough."
