"""Refusals by what they mean, over HTTP: each form of a provider, and errors that only look like one."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_api.samples import encode
from form_runs import KEY, judged, run_forms
from refusal_forms import GEMINI_ERRORS, GEMINI_REFUSALS, OTHER_ERRORS, REFUSALS, Form, answering, gemini
from tables import rows_of
from typer.testing import CliRunner

from visioneval import read_records
from visioneval.cli import app

pytestmark = pytest.mark.filterwarnings("ignore:.* is not a valid :UserWarning")  # as the provider sets it


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_each_form_of_a_refusal_is_refused(tmp_path: Path) -> None:
    result, records = run_forms(tmp_path, REFUSALS)
    assert {name: record.status for name, record in records.items()} == dict.fromkeys(REFUSALS, "refused")
    assert {record.verdict for record in records.values()} == {"FAIL"}
    assert result.exit_code == 1
    assert not [name for name, record in records.items() if "\n" in record.reasons["refused"]]


def test_other_errors_are_no_refusals(tmp_path: Path) -> None:
    _, records = run_forms(tmp_path, OTHER_ERRORS)
    assert {name: record.status for name, record in records.items()} == dict.fromkeys(OTHER_ERRORS, "error")
    kinds = {name: record.error.kind for name, record in records.items() if record.error is not None}
    transient = ("overloaded filter", "web page", "flag of a load balancer", "flag of a load balancer in JSON")
    assert kinds == {name: "transient" if name in transient else "invalid" for name in OTHER_ERRORS}


def test_a_refusal_that_a_case_expects_passes_by_any_form(tmp_path: Path) -> None:
    cases = [
        {"id": f"case{at}", "prompt": f"a sign [{name}]", "expect": {"refusal": True}}
        for at, name in enumerate(REFUSALS)
    ]
    result, records = run_forms(tmp_path, REFUSALS, cases=cases)
    assert ({record.verdict for record in records.values()}, result.exit_code) == ({"PASS"}, 0)


def test_a_gateway_that_blocks_a_call_is_no_refusal_that_a_case_expects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forms = {name: form for name, form in OTHER_ERRORS.items() if "gateway" in name}
    for provider in ("openai", "gemini"):
        folder = tmp_path / provider
        folder.mkdir()
        monkeypatch.chdir(folder)
        cases = [
            {"id": f"case{at}", "prompt": f"a sign [{name}]", "expect": {"refusal": True}}
            for at, name in enumerate(forms)
        ]
        result, records = run_forms(folder, forms, provider=provider, cases=cases)
        assert {record.verdict for record in records.values()} == {"ERROR"}
        assert result.exit_code == 3


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_judge_refuses_by_the_same_forms(tmp_path: Path, save_image: Callable[..., Path], api: str) -> None:
    forms = {**REFUSALS, **OTHER_ERRORS}
    records = judged(tmp_path, forms, api, save_image)
    assert {name: record.graders[0].refused for name, record in records.items()} == {
        name: int(name in REFUSALS) for name in forms
    }
    assert {record.verdict for record in records.values()} == {"ERROR"}


GEMINI_QUOTES = {
    "STOP": 'the answer ended with STOP; it says "I can\'t help with that request."',
    "NO_IMAGE": "the answer ended with NO_IMAGE (The model could not.)",
    "IMAGE_OTHER": "the answer ended with IMAGE_OTHER",
    "A_NEW_REASON": "the answer ended with A_NEW_REASON",
    "no reason": 'the answer ended with no finish reason; it says "I can\'t help with that request."',
}


def test_gemini_refuses_by_its_finish_reason_and_its_words_are_quoted(tmp_path: Path) -> None:
    forms = {**GEMINI_REFUSALS, **GEMINI_ERRORS}
    _, records = run_forms(tmp_path, forms, provider="gemini")
    assert {name: record.status for name, record in records.items()} == {
        name: "refused" if name in GEMINI_REFUSALS else "error" for name in forms
    }
    why = records["finish with words"].reasons["refused"]
    assert why == (
        'the answer was blocked: IMAGE_SAFETY (Unable to show the image.); it says "I can\'t help with that request."'
    )
    assert records["blocked by a new reason"].reasons["refused"] == "the prompt was blocked: BRAND_NEW (no)"
    errors = {name: record.error for name, record in records.items() if record.error is not None}
    assert {name: errors[name].message.partition("; the answer is in ")[0] for name in GEMINI_QUOTES} == {
        name: f"the answer has no images; {words}" for name, words in GEMINI_QUOTES.items()
    }
    assert len(errors["OTHER"].message) < 400
    assert errors["safety_settings"].message == "400: safety_settings is not supported"


def test_a_gemini_judge_refuses_by_the_same_reasons(tmp_path: Path, save_image: Callable[..., Path]) -> None:
    forms = {**GEMINI_REFUSALS, **GEMINI_ERRORS}
    records = judged(tmp_path, forms, "gemini", save_image)
    assert {name: record.graders[0].refused for name, record in records.items()} == {
        name: int(name in GEMINI_REFUSALS) for name in forms
    }


def test_the_cause_of_an_error_is_in_its_message(tmp_path: Path) -> None:
    causes = rows_of(__file__)("the_cause_of_an_error_is_in_its_message")
    _, records = run_forms(tmp_path, {name: tuple(form) for name, form, _ in causes})
    messages = {name: record.error.message for name, record in records.items() if record.error is not None}
    assert {name: message.partition("; the answer is in ")[0] for name, message in messages.items()} == {
        name: message for name, _, message in causes
    }


def test_a_paid_answer_in_words_counts_its_tokens(tmp_path: Path) -> None:
    _, records = run_forms(tmp_path, {"STOP": GEMINI_ERRORS["STOP"]}, provider="gemini")
    usage = records["STOP"].usage
    assert usage is not None
    assert usage["candidates_token_count"] == 3


def test_several_images_of_gemini_are_noted_and_drafts_are_not(tmp_path: Path) -> None:
    wide, square = (b64encode(encode(size=size)).decode() for size in ((64, 48), (32, 32)))
    forms: dict[str, Form] = {
        "two": (200, gemini("STOP", "", wide, square)),
        "draft": (200, gemini("STOP", "", f"thought:{wide}", square)),
        "one": (200, gemini("STOP", "Here it is.", wide)),
    }
    result, records = run_forms(tmp_path, forms, "--cache", "cache", provider="gemini")
    assert {name: record.reply_note for name, record in records.items()} == {
        "two": "images requested: 1, received: 2", "draft": None, "one": None
    }  # fmt: skip
    assert records["two"].artifact_sha256 == records["one"].artifact_sha256 != records["draft"].artifact_sha256
    again = CliRunner().invoke(app, ["run", "suite.yaml", "--run-id", "again", "--trust-suite", "--offline",
                                     "--cache", "cache"], env={"LOCAL_KEY": KEY})  # fmt: skip
    assert again.exit_code == result.exit_code
    graded = CliRunner().invoke(app, ["grade", "runs/r", "--run-id", "graded", "--trust-suite"], env={"LOCAL_KEY": KEY})
    assert graded.exit_code == result.exit_code, graded.output
    for name in ("again", "graded"):
        (noted,) = (record for record in read_records(tmp_path / "runs" / name) if record.reply_note)
        assert noted.artifact_sha256 == records["two"].artifact_sha256
    shown = CliRunner().invoke(app, ["show", "runs/r", "case0"], env={"COLUMNS": "200"})
    assert "images requested: 1, received: 2" in shown.output


def test_an_image_that_moderation_withholds_is_a_refusal(tmp_path: Path) -> None:
    image = {"b64_json": b64encode(encode()).decode(), "respect_moderation": True}
    forms: dict[str, Form] = {
        "without content": (200, {"data": [{"b64_json": "", "url": None, "respect_moderation": False}]}),
        "with a placeholder": (200, {"data": [{**image, "respect_moderation": False}]}),
        "as a whole": (200, {"data": [], "respect_moderation": False}),
        "shown": (200, {"data": [image]}),
    }
    _, records = run_forms(tmp_path, forms)
    assert {name: record.status for name, record in records.items()} == {
        name: "completed" if name == "shown" else "refused" for name in forms
    }
    assert records["as a whole"].reasons["refused"].endswith("(respect_moderation: false)")


def test_one_withheld_image_of_several_fails_only_its_cell(tmp_path: Path) -> None:
    image = b64encode(encode()).decode()
    items = [{"b64_json": image, "respect_moderation": shown} for shown in (True, False)]
    host = {"provider": "openai", "api_key_env": "LOCAL_KEY", "label": "m", "params": {"model": "gpt-image-2", "n": 2}}
    with answering({"two": (200, {"data": items})}) as url:
        suite = {
            "name": "two", "cases": [{"id": "sign", "prompt": "a sign [two]"}],
            "models": [{**host, "base_url": f"{url}/v1"}],
            "graders": [{"key": "image", "type": "properties"}], "verdict": ["not image.blank"],
        }  # fmt: skip
        (tmp_path / "suite.yaml").write_text(json.dumps(suite))
        arguments = ["run", "suite.yaml", "--run-id", "r", "--trust-suite", "--quiet", "--max-concurrency", "4"]
        assert CliRunner().invoke(app, arguments, env={"LOCAL_KEY": KEY}).exit_code == 3
    records = list(read_records(tmp_path / "runs" / "r"))
    assert sorted(record.status for record in records) == ["completed", "error"]
    assert {"respect_moderation: false" in str(record.reply_note) for record in records} == {True}
