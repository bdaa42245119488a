"""Datasets on the Hugging Face Hub: the Hub's own client against a local server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fork_server import ForkedProgram
from forward_proxy import forward_proxy
from hub import TOKEN, Hub, hub
from suite_text import suite

from visioneval.media.urls import fetch, url_problem

pytestmark = pytest.mark.slow

ROWS = b'{"id": "one", "prompt": "a tree"}\n'
FILES = {
    "ann/prompts/data/test.jsonl": ROWS,
    "ann/prompts/shots/metadata.jsonl": b'{"id": "one", "prompt": "a tree", "file_name": "a.png"}\n',
    "ann/secret/test.jsonl": ROWS,
}
needs_client = pytest.mark.skipif(
    not any((Path(folder) / "huggingface_hub").is_dir() for folder in sys.path), reason="needs the extra hf"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Hub]:
    with hub(FILES, frozenset({"ann/secret"})) as server:
        yield server


def validated(server: Hub, folder: Path, path: str, *arguments: str, **environment: str) -> tuple[int, str]:
    """``validate`` in a process of its own, as the Hub's client reads its address when it is imported."""
    dataset = f"{{path: '{path}', fields: {{id: id, prompt: prompt}}}}"
    (folder / "suite.yaml").write_text(suite(cases=f"cases: [{{dataset: {dataset}}}]"))
    environment = {"HF_ENDPOINT": server.url, "HF_HOME": str(folder / "hf"), **environment}
    program = ForkedProgram("validate", "suite.yaml", *arguments, cwd=folder, environment=environment, is_merged=True)
    output, _ = program.communicate(timeout=120)
    return program.returncode or 0, output.strip().splitlines()[0]


@needs_client
def test_a_public_dataset_is_read_and_cached(server: Hub, tmp_path: Path) -> None:
    path = "hf://datasets/ann/prompts/data/test.jsonl"
    assert validated(server, tmp_path, path, "--trust-suite") == (0, "suite.yaml: valid: 1 case, 1 model run, 1 cell")
    server.requests.clear()
    trusted = {"VISIONEVAL_TRUSTED_HOSTS": "huggingface.co"}
    assert validated(server, tmp_path, path, **trusted)[0] == 0
    assert not [line for line in server.requests if line.startswith("GET /datasets/")]  # only its version is checked
    assert validated(server, tmp_path, "hf://datasets/ann/prompts@main/shots", "--trust-suite")[0] == 0


@needs_client
@pytest.mark.parametrize(
    ("path", "token", "message"),
    [
        ("ann/secret/test.jsonl", "",
         "there is no such dataset or revision, or it is private: to read it with a token, set HF_TOKEN"),
        ("ann/secret/test.jsonl", "hf_another",
         "there is no such dataset or revision, or it is private: the Hub's token on this machine has no access to it"),
        ("ann/prompts/none.jsonl", "", "there is no such file"),
    ],
)  # fmt: skip
def test_a_dataset_that_cannot_be_read(server: Hub, tmp_path: Path, path: str, token: str, message: str) -> None:
    environment = {"HF_TOKEN": token} if token else {}
    code, text = validated(server, tmp_path, f"hf://datasets/{path}", "--trust-suite", **environment)
    assert (code, text) == (2, f"suite.yaml:2:26: dataset: hf://datasets/{path}: {message}")


@needs_client
def test_the_hub_is_read_through_a_proxy(server: Hub, tmp_path: Path) -> None:
    path = "hf://datasets/ann/prompts/data/test.jsonl"
    with forward_proxy(tmp_path, {"hub.example": server.url}, login="ann:pa55word") as proxy:
        environment = {"HF_ENDPOINT": "http://hub.example", "http_proxy": proxy.url}
        code, text = validated(server, tmp_path, path, "--trust-suite", **environment)
        assert code == 0, text
        assert proxy.hosts == {"hub.example"}
        environment = {**environment, "http_proxy": proxy.url.replace("pa55word", "wr0ng")}
        code, text = validated(server, tmp_path, path, "--trust-suite", HF_HOME=str(tmp_path / "empty"), **environment)
    assert (code, "407" in text, "wr0ng" in text) == (2, True, False)


@needs_client
def test_a_private_dataset_is_read_with_a_token(server: Hub, tmp_path: Path) -> None:
    code, text = validated(server, tmp_path, "hf://datasets/ann/secret/test.jsonl", "--trust-suite", HF_TOKEN=TOKEN)
    assert code == 0, text
    assert TOKEN not in text


@pytest.mark.skipif(
    any((Path(folder) / "huggingface_hub").is_dir() for folder in sys.path), reason="the extra hf is installed"
)
def test_the_extra_is_named() -> None:
    with pytest.raises(Exception, match=r"hf:// needs an extra: run pip install -e '\.\[hf\]' in a checkout"):
        fetch("hf://datasets/ann/prompts/test.jsonl", 1000)


def test_the_hub_needs_trust(problems: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    url = "hf://datasets/ann/prompts/test.jsonl"
    text = suite(cases=f"cases: [{{dataset: {{path: '{url}', fields: {{id: id}}}}}}]")
    (line,) = problems(text)
    assert line.endswith("needs this machine's credentials: pass --trust-suite if you trust this suite")
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "huggingface.co")
    assert url_problem(url) is None
    for bad in ("hf://ann/prompts/test.jsonl", "hf://datasets/prompts", "hf://spaces/a/b/c.csv"):
        assert url_problem(bad) == f"{bad!r}: write hf://datasets/OWNER/NAME/FILE, without a query"
