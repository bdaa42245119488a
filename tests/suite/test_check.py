"""Everything about a well-formed suite that can be wrong before anything is paid for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from suite_text import suite

from visioneval.media import images
from visioneval.suite.load import LoadedSuite

Problems = Callable[..., list[str]]
Make = Callable[..., Path]

EDIT = "cases: [{id: a, prompt: x, images: [%s], mask: %s}]"


def edit(image: str, mask: str = "mask.png") -> str:
    return suite(cases=EDIT % (image, mask))


# --- images


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "gif", "bmp", "tiff"])
def test_a_truncated_image_is_reported(problems: Problems, mask: Make, tmp_path: Path, kind: str) -> None:
    mask(size=(300, 200))
    path = tmp_path / f"a.{kind}"
    Image.effect_noise((300, 200), 60).save(path)
    assert problems(edit(path.name)) == []
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    (message,) = problems(edit(path.name))
    assert message.startswith(f"suite.yaml:2:37: a.{kind}: the image cannot be decoded: ")


def test_an_image_named_by_many_cases_is_checked_once(
    problems: Problems, save_image: Make, mask: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_image()
    mask()
    checked: Counter[str] = Counter()
    identify = images.identify

    def counted(path: Path, *more: Any) -> Any:
        checked[path.name] += 1
        return identify(path, *more)

    monkeypatch.setattr(images, "identify", counted)
    cases = ", ".join(f"{{id: c{index}, prompt: x, images: [a.png], mask: mask.png}}" for index in range(100))
    assert problems(suite(cases=f"cases: [{cases}]")) == []
    assert checked == {"a.png": 1, "mask.png": 1}


def test_a_missing_program_is_reported(problems: Problems, tmp_path: Path) -> None:
    (tmp_path / "generate.sh").write_text("#!/bin/sh\n")
    (tmp_path / "generate.sh").chmod(0o755)
    (tmp_path / "plain.sh").write_text("#!/bin/sh\n")
    for name, there in [
        ("sh", True),
        ("./generate.sh", True),
        ("./plain.sh", False),
        ("no-such-program", False),
        ("", False),
    ]:
        message = problems(suite(models=f"models: [{{provider: command, argv: ['{name}']}}]"), trust=True)
        assert message == ([] if there else [f"suite.yaml:3:36: program {name!r} not found on this machine"])


def test_a_line_of_many_prompts_is_read_in_one_pass(load: Callable[..., LoadedSuite]) -> None:
    """A pattern that looked for the end of each took 8 s for a third of them."""
    cases = ", ".join(f"{{id: c{index}, prompt: x}}" for index in range(9000))
    spaces = " " * 200_000
    assert len(load(suite(cases=f"cases: [{cases}{spaces}] # all of them")).suite.cases) == 9000


def test_a_tag_or_an_address_that_is_nearly_right_is_a_warning(
    load: Callable[..., LoadedSuite], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "localhost")
    loaded = load(
        "name: x\ncases: [{id: one, prompt: p, tags: [must-pass, must_pass]}, {id: two, prompt: p, tags: [must-pass]}]\n"
        "models: [{provider: openai, label: m, base_url: 'http://localhost:8000/', api_key_env: K, params: {model: m}}]\n"
        "graders: [{key: image, type: properties}]\nverdict: [not image.blank]\n"
    )
    assert [warning.message for warning in loaded.warnings] == [
        "warning: the tag 'must-pass' protects nothing: comparisons know 'must_pass'",
        "warning: most servers answer below /v1: http://localhost:8000/v1",
    ]


@pytest.mark.parametrize(
    ("first", "second", "warned"),
    [
        ("", "", False),  # the same model twice shows how much its outputs vary
        ("", ", base_url: 'http://localhost:8000/v1', api_key_env: K", True),
        ("", ", base_url: 'http://localhost:8000/v1', api_key_env: K, grid: {user: [x]}", False),
        (
            ", base_url: 'http://[::1]:8000/v1', api_key_env: K",
            ", base_url: 'http://localhost/v1', api_key_env: K",
            True,
        ),
    ],
)
def test_models_that_differ_only_in_their_server_are_a_warning(
    load: Callable[..., LoadedSuite], monkeypatch: pytest.MonkeyPatch, first: str, second: str, warned: bool
) -> None:
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "localhost,::1")
    entries = [
        f"{{provider: openai, label: {label}, params: {{model: m}}{more}}}"
        for label, more in (("a", first), ("b", second))
    ]
    text = f"name: x\ncases: [{{id: one, prompt: p}}]\nmodels: [{', '.join(entries)}]\n"
    loaded = load(f"{text}graders: [{{key: image, type: properties}}]\nverdict: [not image.blank]\n")
    message = (
        "warning: 'a' and 'b' differ only in their server, which no cache tells apart: --reuse all and --offline use one"
        " output for both"
    )
    assert [warning.message for warning in loaded.warnings] == [message] * warned
