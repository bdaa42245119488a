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


# --- parameters without effect


# --- ids, prompts


# --- tasks and models


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


# --- rules


@pytest.mark.parametrize(
    ("options", "task", "advice"),
    [
        ("", "", "; 'extract: [ocr, judge]' lets a judge read it"),
        ("", ", task: video_generation", ""),
        (", when: {cases: [b]}", "", None),
    ],
)
def test_copy_that_local_ocr_cannot_read(
    load: Callable[..., LoadedSuite], options: str, task: str, advice: str | None
) -> None:
    case = f"{{id: a, prompt: x{task}, expect: {{text: {{required: [OK, 'Buď'], forbidden: ['Жи']}}}}}}"
    text = suite(
        cases=f"cases: [{case}, {{id: b, prompt: x, expect: {{text: {{required: [OK]}}}}}}]",
        graders=f"graders: [{{key: image, type: properties}}, {{key: text, type: text{options}}}]",
        verdict="verdict: [text, not image.blank]",
    )
    by_tesseract = ", or 'other_scripts: tesseract' Tesseract" if advice else ""
    lines = [("ď", ""), ("Ж и", by_tesseract)] if advice is not None else []
    assert [warning.message for warning in load(text).warnings if "OCR" in warning.message] == [
        f"warning: local OCR cannot read {line}, so this line may be undecided (null){advice}{more}"
        for line, more in lines
    ]


def test_prompts_that_yaml_or_single_braces_change_are_warnings(load: Callable[..., LoadedSuite]) -> None:
    loaded = load(
        "name: x\nvars: {brand: Ovalo}\ncases:\n"
        "  - id: one\n    prompt: A flyer for price #1 & more\n"
        "  - id: two\n    prompt: A flyer # of two, see #12\n"
        "  - id: three\n    prompt: 'A flyer #3 of { brand } and {shop} and {other} and {{ brand }}'\n    metadata: {shop: Tidewell}\n"
        "  - id: four\n    prompt: |\n      Write prompt: x #1\n"
        "models: [{provider: mock}]\ngraders: [{key: image, type: properties}]\nverdict: [not image.blank]\n"
    )
    assert [str(warning).rpartition("/")[2] for warning in loaded.warnings] == [
        "suite.yaml:9:13: warning: '{ brand }' is not replaced: write '{{ brand }}'",
        "suite.yaml:9:13: warning: '{shop}' is not replaced: write '{{ metadata.shop }}'",
        "suite.yaml:5:13: warning: YAML reads #1 & more as a comment, so the text ends before it: put the text in quotes",
        "suite.yaml:7:13: warning: YAML reads # of two, see #12 as a comment, so the text ends before it: put the text in quotes",
    ]


CUT = {
    "flow mapping": ("cases: [{id: a, prompt: x}, {id: b, prompt: Flyer #1\n  }]", ["2:45"]),
    "flow mapping, closed": ("cases: [{id: a, prompt: x}, {id: b, prompt: y}] #all", []),
    "flow sequence, closed": ("cases: [{id: a, prompt: x, tags: [t]} #one\n  ]", []),
    "signs of flow in a block": ("cases:\n - id: a\n   prompt: Write {x}, [y] #1", ["4:12"]),
    "single quotes": ("cases:\n - id: a\n   prompt: 'Write' #1", []),
    "double quotes": ('cases:\n - id: a\n   prompt: "Write" #1', []),
    "literal": ("cases:\n - id: a\n   prompt: | #1\n     Write #1", []),
    "folded": ("cases:\n - id: a\n   prompt: >- #1\n     Write #1", []),
    "several lines": ("cases:\n - id: a\n   prompt: A flyer for\n     price #1\n   tags: [t]", ["4:12"]),
    "tagged as text": ("cases:\n - id: a\n   prompt: !!str Write #1", ["4:12"]),
    "an anchor, and its alias": ("cases:\n - id: a\n   prompt: &p Write #1\n - {id: b, prompt: *p #2\n   }", ["4:12"]),
    "alone at the end": ("cases:\n - id: a\n   prompt: A song in C #", ["4:12"]),
    "one space": ("cases:\n - id: a\n   prompt: Write # 1 pizza", ["4:12"]),
    "apart, as a comment": ("cases:\n - id: a\n   prompt: Write   # one pizza", ["4:12"]),
    "a variable, apart": ("cases:\n - id: a\n   prompt: x\n   metadata: {n: Five   # one pizza\n    }", []),
    "a variable, apart without a space": ("cases:\n - id: a\n   prompt: x\n   metadata: {n: Five   #1\n    }", ["5:18"]),
    "apart, without a space in it": ("cases:\n - id: a\n   prompt: Write   #1", ["4:12"]),
    "tab": ("cases:\n - id: a\n   prompt: Write\t#1", ["4:12"]),
    "no space, so text": ("cases:\n - id: a\n   prompt: Write#1", []),
    "key in the next line": ("cases:\n - id: a\n   prompt:\n     Write #1", ["5:6"]),
    "key first, comment, text": ("cases:\n - id: a\n   prompt: #1\n     Write", []),
    "windows": ("cases:\r\n - id: a\r\n   prompt: Write #1\r\n", ["4:12"]),
    "umlauts before it": ("cases:\n - {id: a, region: Größe, prompt: Größe ☂ #1\n   }", ["3:35"]),
    "turns": ("cases:\n - id: a\n   images: [a.png]\n   turns:\n    - Red #1\n    - prompt: Blue #2", ["6:7", "7:15"]),
    "lines of text": ("cases:\n - id: a\n   prompt: x\n   expect:\n    text:\n     required:\n      - SALE #1\n", ["8:9"]),
    "criteria and region": ("cases:\n - id: a\n   prompt: x\n   criteria: Calm #1\n   region: left #2", ["5:14", "6:12"]),
    "metadata": ("cases:\n - id: a\n   prompt: x\n   metadata:\n    n: 5 #1\n    deep: {er: big #1\n     }", ["7:16"]),
    "questions": ("cases:\n - id: a\n   prompt: x\n   questions:\n    - Is it #1?\n    - {question: Big #2\n      , id: b}", ["6:7", "7:18"]),
    "not free text": ("cases:\n - id: a #1\n   prompt: x\n   task: image_generation #2\n   tags:\n    - t #3\n   flaky: true #4", []),
}  # fmt: skip


@pytest.mark.parametrize("name", CUT)
def test_a_comment_that_cuts_a_text_is_a_warning(load: Callable[..., LoadedSuite], save_image: Make, name: str) -> None:
    cases, places = CUT[name]
    save_image("a.png")
    cut = [str(warning) for warning in load(suite(cases=cases)).warnings if "as a comment" in str(warning)]
    assert [warning.rpartition("suite.yaml:")[2].partition(": warning")[0] for warning in cut] == places


def test_texts_of_the_suite_itself_are_cut_too(load: Callable[..., LoadedSuite], tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("name,text\na,x\n")
    (tmp_path / "more.yaml").write_text("- id: b\n  prompt: Flyer #9\n")
    loaded = load(
        "name: x #1\nvars:\n  brand: Ovalo #2\n  size: 5 #3\n"
        "cases:\n  - file: more.yaml #4\n  - dataset:\n      path: d.csv #5\n      fields:\n        id: name #6\n        prompt: text #7\n"
        "prompts:\n  - label: p #8\n    template: As seen #9\n"
        "models:\n  - provider: mock #10\n"
        "judges: {j: {provider: openai, model: gpt-5.4}}\n"
        "graders:\n  - key: look #11\n    type: rubric\n    judge: j #12\n    metrics:\n      calm:\n        type: score\n        scale: [0, 1]\n"
        "        description: Is it calm #13\n        anchors:\n          1: Calm #14\n          0: loud\n"
        "verdict:\n  - calm >= 1 #15\n"
    )
    cut = [str(warning).rpartition("/")[2] for warning in loaded.warnings if "as a comment" in str(warning)]
    assert [line.partition(" as a comment")[0].replace(": warning: YAML reads", "") for line in cut] == [
        "suite.yaml:3:10 #2",
        "suite.yaml:14:15 #9",
        "suite.yaml:26:22 #13",
        "suite.yaml:28:14 #14",
        "more.yaml:2:11 #9",
    ]


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


@pytest.mark.parametrize(
    ("rule", "is_idle"),
    [
        ("text.recall >= 0", True),
        ("text.recall > -1", True),
        ("text.recall <= 1", True),
        ("text.recall < 1.01", True),
        ("text.recall != 1.5", True),
        ("{rule: text.recall >= 0, level: warn}", True),
        ("text.recall > 0", False),
        ("text.recall >= 0.01", False),
        ("text.recall < 1", False),
        ("text.recall != 1", False),
        ("text.recall == 0", False),
    ],
)
@pytest.mark.parametrize("of_case", [False, True])
def test_a_rule_that_every_score_meets_is_a_warning(
    load: Callable[..., LoadedSuite], rule: str, is_idle: bool, of_case: bool
) -> None:
    case = f", verdict: [text, {rule}]" if of_case else ""
    loaded = load(
        f"""\
name: x
cases: [{{id: one, prompt: p, expect: {{text: {{required: [A]}}}}{case}}}, {{id: two, prompt: p, expect: {{text: {{required: [A]}}}}}}]
models: [{{provider: mock}}]
graders: [{{key: text, type: text}}]
verdict: [text{"" if of_case else f", {rule}"}]
"""
    )
    text = "'text.recall"
    warned = [warning for warning in loaded.warnings if "cannot fail" in warning.message]
    assert len(warned) == is_idle
    for warning in warned:
        assert text in warning.message
        assert warning.message.endswith(
            " cannot fail: 'text.recall' is at least 0 and at most 1, so every score passes"
        )


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        (
            "error_rate <= 1",
            "'error_rate <= 1' cannot fail, and replaces the implied limit of 0: "
            "write 'error_rate <= 0.05', or another limit below 1",
        ),
        (
            "unmeasured_rate >= 0",
            "'unmeasured_rate >= 0' cannot fail: write 'unmeasured_rate <= 0.05', or another limit below 1",
        ),
        (
            "{rule: error_rate <= 1.0, cases: [a]}",
            "'error_rate <= 1.0' cannot fail: write 'error_rate <= 0.05', or another limit below 1",
        ),
        ("error_rate < 1", None),
        ("error_rate <= 0.99", None),
        ("error_rate != 0.5", None),
        ("pass_rate >= 0", None),  # how a suite says that no share of passed cells is required
    ],
)
def test_a_gate_on_errors_that_cannot_fail_is_a_warning(
    load: Callable[..., LoadedSuite], gate: str, message: str | None
) -> None:
    text = suite(cases="cases: [{id: a, prompt: x}]") + f"\ngates: [pass_rate == 1, {gate}]\n"
    line = len(text.splitlines())
    expected = [] if message is None else [f"suite.yaml:{line}:25: warning: {message}"]
    assert [str(warning).rpartition("/")[2] for warning in load(text).warnings] == expected
