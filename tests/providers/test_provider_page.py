"""docs/reference/providers: their entries are valid, and what the table calls tested works against servers of that form."""

from __future__ import annotations

import asyncio
import io
import json
import re
import shutil
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from compatible_servers import FORMS, compatible
from example_server import image_server
from fake_api.http1 import parse_form
from http_server import QuietHandler, serving
from PIL import Image
from suite_runner import LOOK

from visioneval import CaseFiles, CellRef, GenerationRequest, ProviderError, Question, TaskType, TestCase
from visioneval.plugins import JUDGES, PROVIDERS
from visioneval.providers.base import ImagePart
from visioneval.providers.openai import OpenAIJudge, OpenAIProvider
from visioneval.providers.openai.generator import OpenAIGenerator
from visioneval.providers.openai.judge import open_judge
from visioneval.suite.load import load_suite

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in (DOCS / "reference/providers").glob("*.md")}
COLUMNS = ("generate", "edit", "mask", "several references", "judge")
SECTIONS = {
    name: yaml.safe_load(block)
    for text in PAGES.values()
    for name, block in re.findall(r"^#+ ([^\n]+)\n(?:(?!^#).)*?```yaml\n(.*?)```", text, re.MULTILINE | re.DOTALL)
}
"""The first example of each section."""
TABLE = {
    words[0].strip("[").partition("]")[0]: dict(zip(COLUMNS, words[1:], strict=True))
    for line in PAGES["index"].splitlines()
    if line.startswith("| ") and len(words := [word.strip() for word in line.strip("|").split("|")]) == 1 + len(COLUMNS)
    if words[0] != "service"
}
ENTRIES = {name: SECTIONS.get(name) or SECTIONS[name.lower()] for name in TABLE}
SCHEMA = {"type": "object", "properties": {"nice": {"type": "boolean"}}, "required": ["nice"], "additionalProperties": False}  # fmt: skip
CALLED = [(name, column) for name in FORMS for column in COLUMNS if TABLE[name][column] in ("tested", "as image")]


def test_every_row_has_an_entry_and_plain_cells() -> None:
    assert len(TABLE) == 13
    cells = {cell for row in TABLE.values() for cell in row.values()}
    assert cells == {"tested", "as image", "not tested", "no"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: bytes) -> Path:
    """A suite's folder with the example files, and with stand-ins for the libraries of the one that needs some."""
    shutil.copytree(DOCS / "examples", tmp_path, dirs_exist_ok=True)
    (tmp_path / "torch.py").write_text(TORCH)
    (tmp_path / "diffusers.py").write_text(DIFFUSERS)
    (tmp_path / "base.png").write_bytes(image)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_suite(folder: Path, entries: dict[str, Any], **changes: Any) -> Path:
    """A suite with the entries of the page, for a generation and an edit."""
    cases = [
        {"id": "plain", "prompt": "a tree"},
        {"id": "edited", "prompt": "a red tree", "images": ["base.png"]},
    ]
    graders: list[Any] = [{"key": "file", "type": "properties"}]
    text = {"name": "page", "cases": cases, "models": [{"provider": "mock"}], "graders": graders, **entries, **changes}
    text["verdict"] = ["not file.blank"]
    if "judges" in entries:
        graders.append(LOOK)
        text["verdict"].append("nice")
    (folder / "suite.yaml").write_text(json.dumps(text))
    return folder / "suite.yaml"


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_is_valid(folder: Path, name: str) -> None:
    entries = {**ENTRIES[name], "models": [*ENTRIES[name].get("models", ()), {"provider": "mock"}]}
    loaded = load_suite(write_suite(folder, entries), trust=True, run_labels=lambda _: [])
    known = {"local_diffusers:LocalDiffusers", *PROVIDERS, *JUDGES}
    assert {entry.provider_name for entry in (*loaded.suite.models, *loaded.suite.judges.values())} <= known


@pytest.fixture
def image() -> bytes:
    buffer = io.BytesIO()
    Image.linear_gradient("L").convert("RGB").save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def request_of(tmp_path: Path, image: bytes, mask: Callable[..., Path]) -> Callable[..., GenerationRequest]:
    def request(params: dict[str, Any], images: int = 0, *, masked: bool = False) -> GenerationRequest:
        paths = [tmp_path / f"{number}.png" for number in range(images)]
        for path in paths:
            path.write_bytes(image)
        files = CaseFiles(
            images=tuple((f"image {number}", path) for number, path in enumerate(paths, start=1)),
            masks={"editable": mask()} if masked else {},
        )
        task = TaskType.IMAGE_EDITING if images else TaskType.IMAGE_GENERATION
        return GenerationRequest(
            TestCase(id="one", prompt="a tree"), task, "a tree", "m", params, files, (0,), tmp_path
        )

    return request


def generated(url: str, entry: dict[str, Any], request: Callable[..., GenerationRequest], **files: Any) -> bytes:
    config = OpenAIProvider.model_validate({**entry, "base_url": url, "api_key_env": "LOCAL_KEY"})
    made = request(config.params, **files)

    async def once() -> Any:
        generator = OpenAIGenerator(config)
        return await (generator.edit(made) if made.files.images else generator.generate(made))

    (output,) = asyncio.run(once()).outputs
    assert isinstance(output, bytes)
    return output


def asked(url: str, entry: dict[str, Any], image: bytes, mime: str = "image/png") -> str:
    config = OpenAIJudge.model_validate({**entry, "base_url": url, "api_key_env": "LOCAL_KEY"})
    question = Question(parts=("Is it nice?", ImagePart(image, mime)), schema=SCHEMA, names=("nice",))

    async def once() -> Any:
        return await open_judge(config).ask(question, CellRef("one", "m", 0))

    reply = asyncio.run(once())
    assert reply.shape == "schema"
    return str(reply.text)


@pytest.fixture(autouse=True)
def _local_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_KEY", "none")
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")


@pytest.mark.parametrize(("name", "column"), CALLED)
def test_what_the_table_calls_tested(
    image: bytes, request_of: Callable[..., GenerationRequest], name: str, column: str
) -> None:
    with compatible(FORMS[name], image) as server:
        if column == "judge":
            assert asked(server.url, ENTRIES[name]["judges"]["default"], image) == '{"nice": true}'
            return
        files = {"generate": {}, "edit": {"images": 1}, "mask": {"images": 1, "masked": True}}
        entry = ENTRIES[name]["models"][0]
        assert generated(server.url, entry, request_of, **files.get(column, {"images": 3})) == image
    (used,) = server.used
    assert used["prompt"].startswith("a tree")
    if column == "several references":
        assert used["images"] == [image] * 3
    if column == "mask":
        assert (used["mask"] is None, len(used["images"])) == (
            (True, 2) if TABLE[name][column] == "as image" else (False, 1)
        )


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("xAI", {"edit_body": "form"}, "415: the body must be application/json"),
        ("Ollama", {}, "404: there is no /v1/images/edits"),
    ],
)
def test_edits_that_a_server_refuses(
    image: bytes, request_of: Callable[..., GenerationRequest], name: str, changes: dict[str, Any], message: str
) -> None:
    entry = {**ENTRIES[name]["models"][0], **changes}
    with compatible(FORMS[name], image) as server, pytest.raises(ProviderError, match=message) as raised:
        generated(server.url, entry, request_of, images=1)
    assert raised.value.kind == "invalid"


def test_llama_cpp_decodes_no_webp() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "WEBP")
    with compatible(FORMS["llama.cpp"], b"") as server, pytest.raises(ProviderError, match="Failed to load image"):
        asked(server.url, ENTRIES["llama.cpp"]["judges"]["default"], buffer.getvalue(), "image/webp")


@pytest.mark.parametrize("name", ["xAI", "SGLang"])
def test_an_image_by_url_or_by_path_is_read_from_the_server(
    image: bytes, request_of: Callable[..., GenerationRequest], name: str
) -> None:
    entry = ENTRIES[name]["models"][0]
    by_url = {**entry, "params": {**entry["params"], "response_format": "url"}}
    with compatible(FORMS[name], image) as server:
        assert generated(server.url, by_url, request_of) == image


def test_an_edit_as_json_is_not_answered_by_one_as_a_form(
    image: bytes, request_of: Callable[..., GenerationRequest], mask: Callable[..., Path]
) -> None:
    entry = ENTRIES["xAI"]["models"][0]
    by_form, unstated = {**entry, "edit_body": "form"}, {**entry}
    del unstated["edit_body"]
    keys = [OpenAIProvider.model_validate(each).key_options for each in (entry, by_form, unstated)]
    assert keys == [{"provider": "openai", "mask_mode": "send", **extra} for extra in ({"edit_body": "json"}, {}, {})]
    with compatible(FORMS["xAI"], image) as server:
        generated(server.url, entry, request_of, images=1, masked=True)
    assert server.used[0]["mask"]["url"] == f"data:image/png;base64,{b64encode(mask().read_bytes()).decode()}"


def test_omni_ignores_the_argument_of_a_mask(image: bytes, request_of: Callable[..., GenerationRequest]) -> None:
    entry = {**ENTRIES["vLLM-Omni"]["models"][0], "mask_mode": "send"}
    with compatible(FORMS["vLLM-Omni"], image) as server:
        generated(server.url, entry, request_of, images=1, masked=True)
    assert (server.used[0]["mask"], len(server.used[0]["images"])) == (None, 1)


TORCH = """\
bfloat16 = "bf16"


class cuda:
    is_available = staticmethod(lambda: False)


class Generator:
    def __init__(self, device): self.device = device
    def manual_seed(self, seed):
        self.seed = seed
        return self
"""
DIFFUSERS = """\
import json
from types import SimpleNamespace
from PIL import Image

LOADED = []


class DiffusionPipeline:
    @classmethod
    def from_pretrained(cls, model, torch_dtype):
        LOADED.append((model, torch_dtype))
        return cls()

    def to(self, device): return self

    def __call__(self, *, prompt, generator, num_inference_steps, image=None, mask_image=None):
        sent = {"prompt": prompt, "seed": generator.seed, "steps": num_inference_steps,
                "images": len(image) if isinstance(image, list) else int(image is not None),
                "mask": mask_image and [mask_image.getpixel((0, 0)), mask_image.getpixel((32, 24))]}
        with open("called.jsonl", "a") as file:
            file.write(json.dumps(sent) + "\\n")
        return SimpleNamespace(images=[Image.linear_gradient("L").convert("RGB")])
"""


def run(runner: Any, path: Path, exit_code: int = 0) -> list[Any]:
    from visioneval import read_records

    result = runner("run", path, "--trust-suite", "--runs", path.parent / "runs", "--run-id", "r")
    assert result.exit_code == exit_code, result.output
    return list(read_records(path.parent / "runs" / "r"))


def masked_cases(mask: Callable[..., Path], save_image: Callable[..., Path]) -> list[dict[str, Any]]:
    save_image("style.png", color="red")
    mask()
    edited = {
        "id": "edited",
        "prompt": "a red tree",
        "images": ["base.png", "style.png"],
        "masks": {"editable": "mask.png"},
    }
    return [{"id": "plain", "prompt": "a tree"}, edited]


@pytest.fixture
def base(folder: Path, save_image: Callable[..., Path]) -> Path:
    """The base image in the size of the mask."""
    return save_image("base.png", color="blue")


def test_the_diffusers_example_runs(
    toy: Any, folder: Path, base: Path, mask: Callable[..., Path], save_image: Callable[..., Path]
) -> None:
    cases = masked_cases(mask, save_image)
    path = write_suite(folder, ENTRIES["local diffusers"], cases=cases, samples=2)
    assert len(run(toy, path)) == 4
    called = [json.loads(line) for line in (folder / "called.jsonl").read_text().splitlines()]
    plain = sorted(call["seed"] for call in called if call["prompt"] == "a tree")
    assert plain == [1, 2]
    edits = [call for call in called if call["prompt"] == "a red tree"]
    assert [(call["images"], call["mask"], call["steps"]) for call in edits] == [(2, [0, 255], 30)] * 2
    import diffusers  # type: ignore[import-not-found]

    assert diffusers.LOADED == [("Qwen/Qwen-Image-Edit", "bf16")]


def test_the_example_of_an_image_server_generates_and_edits(
    toy: Any, folder: Path, base: Path, mask: Callable[..., Path], save_image: Callable[..., Path]
) -> None:
    """The suite of docs/how_to/local_model.md, with a masked edit of two images, and an argument that no pipeline takes."""
    entries = yaml.safe_load(
        (DOCS / "how_to" / "local_model.md").read_text().partition("```yaml\n")[2].partition("```")[0]
    )
    (model,) = entries["models"]
    with image_server(folder, "Qwen/Qwen-Image-Edit") as url:
        model |= {
            "base_url": url,
            "params": {"model": "qwen-image", "num_inference_steps": 3, "seed": 5},
        }
        refused = {
            **model,
            "label": "refused",
            "params": {"model": "qwen-image", "steps": 3},
            "tasks": ["image_generation"],
        }
        cases = masked_cases(mask, save_image)
        path = write_suite(
            folder, {**entries, "models": [model, refused]}, cases=cases, verdict=["not file.blank"], samples=1
        )
        records = {(record.test_id, record.model_label): record for record in run(toy, path, exit_code=3)}
    called = {call["prompt"]: call for call in map(json.loads, (folder / "called.jsonl").read_text().splitlines())}
    assert called["a tree"] == {"prompt": "a tree", "seed": 5, "steps": 3, "images": 0, "mask": None}
    assert called["a red tree"] == {"prompt": "a red tree", "seed": 5, "steps": 3, "images": 2, "mask": [0, 255]}
    assert records["edited", "qwen-image"].verdict == "PASS"
    assert "TypeError: " in str(records["plain", "refused"].error)


@contextmanager
def comfyui(image: bytes, *, failing: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
    """A ComfyUI server that completes each workflow at the second look, and what it received."""
    seen: dict[str, Any] = {"workflows": [], "files": {}, "looks": 0}

    class ComfyHandler(QuietHandler):
        def get(self) -> None:
            seen["looks"] += 1
            prompt_id = self.path.rpartition("/")[2]
            if self.path.startswith("/view?"):
                assert "filename=out.png" in self.path
                self.reply(image, kind="image/png")
            else:
                self.reply(b"{}" if seen["looks"] == 1 else json.dumps({prompt_id: history}).encode())

        def post(self) -> None:
            body = self.body()
            if self.path == "/upload/image":
                (part,) = parse_form(self.headers["content-type"], body)
                seen["files"][part.filename] = part.data
                self.reply(json.dumps({"name": part.filename, "subfolder": "", "type": "input"}).encode())
            else:
                seen["workflows"].append(json.loads(body)["prompt"])
                self.reply(json.dumps({"prompt_id": str(len(seen["workflows"])), "number": 1}).encode())

    messages = [["execution_error", {"exception_message": "out of memory"}]] if failing else []
    state = {"status_str": "error" if failing else "success", "completed": not failing, "messages": messages}
    outputs = {"9": {"images": [{"filename": "out.png", "subfolder": "", "type": "output"}]}}
    history = {"status": state, "outputs": outputs}
    with serving(ComfyHandler) as url:
        yield url, seen


def on_comfyui(url: str) -> dict[str, Any]:
    """The entries of the page, for another server."""
    text = json.dumps(ENTRIES["ComfyUI"]).replace("http://127.0.0.1:8188", url)
    entries: dict[str, Any] = json.loads(text)
    return entries


def titled(workflow: dict[str, Any]) -> dict[str, Any]:
    return {node["_meta"]["title"]: node["inputs"] for node in workflow.values()}


def test_the_comfyui_example_runs(
    toy: Any, folder: Path, base: Path, image: bytes, mask: Callable[..., Path], save_image: Callable[..., Path]
) -> None:
    cases = masked_cases(mask, save_image)
    workflow = (folder / "comfyui_edit.json").read_text().replace('"title": "encode"', '"title": "image 2"')
    (folder / "comfyui_edit.json").write_text(workflow)  # which takes a second image
    with comfyui(image) as (url, seen):
        records = run(toy, write_suite(folder, on_comfyui(url), cases=cases))
    assert len(records) == 2
    by_prompt = {titled(workflow)["prompt"]["text"]: titled(workflow) for workflow in seen["workflows"]}
    plain, edited = by_prompt["a tree"], by_prompt["a red tree"]
    assert (plain["sampler"]["seed"], plain["sampler"]["steps"]) == (1, 30)
    assert seen["files"][edited["image 1"]["image"]] == base.read_bytes()
    assert seen["files"][edited["image 2"]["image"]] == (folder / "style.png").read_bytes()
    assert seen["files"][edited["mask"]["image"]] == (folder / "mask.png").read_bytes()


def test_a_failed_workflow_is_an_error_in_comfyuis_words(toy: Any, folder: Path, image: bytes) -> None:
    with comfyui(image, failing=True) as (url, _):
        path = write_suite(folder, on_comfyui(url), cases=[{"id": "plain", "prompt": "a tree"}])
        entries = json.loads(path.read_text())
        entries["models"] = entries["models"][:1]
        path.write_text(json.dumps(entries))
        result = toy("run", path, "--trust-suite", "--runs", folder / "runs", "--run-id", "r")
    assert result.exit_code == 3
    assert "the workflow failed: out of memory" in (folder / "runs" / "r" / "results.jsonl").read_text()
