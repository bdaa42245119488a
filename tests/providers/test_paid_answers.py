"""Answers to paid generations in every form: what is usable is used, the rest is stored, and nothing is paid twice."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import paid_answers
import pytest
from paid_answers import BAD_BODIES, BAD_VALUES, GOOD_BODIES, GOOD_TEXTS, IMAGE, OTHER, PAGE, Answers, PaidRun
from typer.testing import CliRunner

from visioneval.cli import app

pytestmark = pytest.mark.slow

KEY = "sk-paid-0123456789"


@pytest.fixture(autouse=True)
def _around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("LOCAL_KEY", KEY)


@pytest.fixture
def answers() -> Iterator[Answers]:
    with paid_answers.answering() as server:
        yield server


def run_of_each(answers: Answers, provider: str, forms: Mapping[str, Any]) -> PaidRun:
    """A run with a case for each form, whose generation is answered with it."""
    return PaidRun(answers, provider, cases=answers.send_each(forms))


def check_used(answers: Answers, provider: str, forms: Mapping[str, Any], **used: tuple[str | None, bytes]) -> None:
    """Checks that each case has its image after one call, with its note, and that nothing is bought again."""
    run = run_of_each(answers, provider, forms)
    done = run()
    assert done.exit_code == 0, done.output
    for form, record in zip(forms, run.records(), strict=True):
        note, image = used.get(form, (None, IMAGE))
        assert Path("runs/r", str(record.artifact_path)).read_bytes() == image, form
        assert (record.reply_note or "").startswith(note or ""), form
        assert (record.reply_note is None, record.reply_path is None) == (note is None, note is None), form
        if str(note).startswith("the answer is cut off"):
            assert (record.usage, record.cost_usd) == (None, None), "numbers that may lack their last digits"
        if record.reply_path is not None:
            assert Path("runs/r", record.reply_path).read_bytes() == answers.forms[form][0]
    assert run.resume("--retry-unusable").exit_code == 0
    assert run.calls == len(forms)


def check_stored(run: PaidRun, problems: Sequence[str]) -> None:
    """Checks that each answer is an ERROR and a file after one call, and that only ``--retry-unusable`` buys again."""
    done = run()
    assert done.exit_code == 3, done.output
    records = run.records()
    for problem, record in zip(problems, records, strict=True):
        assert record.error is not None, problem
        assert (record.verdict, record.error.kind) == ("ERROR", "unusable"), problem
        assert problem in record.error.message
        assert problem in str(record.reply_note)
        ending = f"; the answer is in {record.reply_path}; --resume RUN --retry-unusable pays for another"
        assert ending in record.error.message
        assert Path("runs/r", str(record.reply_path)).is_file()
    assert "s3cr3t" not in done.output
    resumed = run.resume()
    assert (resumed.exit_code, run.calls, run.records()) == (3, len(problems), records), resumed.output
    run.answers.send(paid_answers.with_image(run.provider, paid_answers.TEXT))
    retried = run.resume("--retry-unusable")
    assert (retried.exit_code, run.calls) == (0, 2 * len(problems)), retried.output
    assert {(record.verdict, record.error, record.reply_path) for record in run.records()} == {("PASS", None, None)}


PROVIDERS = pytest.mark.parametrize("provider", paid_answers.MODELS)


@PROVIDERS
def test_an_image_is_read_from_base64_in_every_form(answers: Answers, provider: str) -> None:
    check_used(answers, provider, {form: paid_answers.with_image(provider, text) for form, text in GOOD_TEXTS.items()})


@PROVIDERS
def test_what_is_usable_is_used(answers: Answers, provider: str) -> None:
    forms = {form: (body, note) for form, (by, body, note) in GOOD_BODIES.items() if by == provider}
    used = {form: (note, OTHER if "URL" in form and form[0] in "nedt" else IMAGE) for form, (_, note) in forms.items()}
    check_used(answers, provider, {form: body(answers.url) for form, (body, _) in forms.items()}, **used)


@PROVIDERS
def test_an_answer_may_be_the_image_itself_and_its_type_may_lie(answers: Answers, provider: str) -> None:
    kinds = ("image/png", "application/octet-stream", "application/json")
    forms = {f"image as {kind}": (IMAGE, kind) for kind in kinds}
    if provider == "openai":
        body = paid_answers.openai(paid_answers.OPENAI_IMAGE)
        forms |= {f"JSON as {kind}": (body, kind) for kind in ("text/plain", "image/png", "text/html; charset=utf-8")}
    check_used(answers, provider, forms)


@PROVIDERS
def test_what_is_no_image_is_stored_and_not_paid_again(answers: Answers, provider: str) -> None:
    values = {form: paid_answers.with_image(provider, value) for form, (value, _) in BAD_VALUES.items()}
    check_stored(run_of_each(answers, provider, values), [problem for _, problem in BAD_VALUES.values()])


@PROVIDERS
def test_an_answer_without_an_image_is_stored_and_not_paid_again(answers: Answers, provider: str) -> None:
    forms = {form: (body, problem) for form, (by, body, problem) in BAD_BODIES.items() if by == provider}
    bodies = {form: (body, "text/html" if body == PAGE else "application/json") for form, (body, _) in forms.items()}
    check_stored(run_of_each(answers, provider, bodies), [problem for _, problem in forms.values()])


@pytest.mark.parametrize("items", [("good", None), (None, "good"), ("good", "other", "good", None)])
def test_each_sample_without_an_image_is_an_error(answers: Answers, items: tuple[str | None, ...]) -> None:
    values = {"good": paid_answers.TEXT, "other": paid_answers.TEXT, None: None}
    answers.send(paid_answers.openai(*({"b64_json": values[item]} for item in items)))
    run = PaidRun(answers, params={"n": 2})
    assert run().exit_code == (3 if None in items[:2] else 0)
    verdicts = [str(record.verdict) for record in run.records()]
    assert verdicts == (["PASS", "ERROR"] if None in items[:2] else ["PASS", "PASS"])
    stored = [record.reply_path for record in run.records() if verdicts == ["PASS"] * 2 or record.verdict == "ERROR"]
    assert all(Path("runs/r", str(path)).read_bytes() == answers.body for path in stored)
    assert len({record.reply_path for record in run.records()} - {None}) == 1, "one file for all that need it"
    assert all(record.reply_note for record in run.records())
    run.resume()
    assert run.calls == 1
    answers.send(paid_answers.openai(*[{"b64_json": paid_answers.TEXT}] * 2))
    assert run.resume("--retry-unusable").exit_code == 0
    assert run.calls == (2 if "ERROR" in verdicts else 1)
    assert [str(record.verdict) for record in run.records()] == ["PASS", "PASS"]


@pytest.mark.parametrize("edit_body", ["form", "json"])
def test_an_edit_is_stored_too(answers: Answers, edit_body: str) -> None:
    Path("base.png").write_bytes(OTHER)
    run = PaidRun(answers)
    suite = json.loads(Path("suite.yaml").read_text())
    models = [{**suite["models"][0], "edit_body": edit_body}]
    cases = [{"id": "tree", "prompt": "make it blue", "images": ["base.png"], "task": "image_editing"}]
    run.write(models=models, cases=cases)
    answers.send(paid_answers.openai(None))
    check_stored(run, ["null is no base64 text"])


@pytest.mark.parametrize("slash", ["/", "\\/"])
def test_a_stored_answer_has_no_key_and_no_signature(answers: Answers, slash: str) -> None:
    url = f"https://elsewhere.example/{KEY}/1.png?sig=s3cr3t&n=1"
    answers.send(paid_answers.openai({"url": url}, note=f"for {KEY}", more=url.replace("/", slash)))
    run = PaidRun(answers)
    assert run().exit_code == 3
    (record,) = run.records()
    stored = json.loads(Path("runs/r", str(record.reply_path)).read_bytes())
    assert stored["data"] == [{"url": "https://elsewhere.example/***/1.png?***"}]
    assert stored["note"] == "for ***"
    written = [path for path in Path().rglob("*") if path.is_file()]
    assert [path for path in written if KEY.encode() in path.read_bytes() or b"s3cr3t" in path.read_bytes()] == []


ODD_KEY = 'sk/"odd"+key&0123456789'
IN_JSON = json.dumps(ODD_KEY)[1:-1]


def stored(answers: Answers, notes: Sequence[str]) -> list[str]:
    """The stored answers with each note, as their notes."""
    run = run_of_each(answers, "openai", {f"{at}": f'{{"data": [], {note}}}' for at, note in enumerate(notes)})
    assert run().exit_code == 3
    texts = [Path("runs/r", str(record.reply_path)).read_text() for record in run.records()]
    return [text.removeprefix('{"data": [], ').removesuffix("}") for text in texts]


def test_a_stored_answer_has_no_key_in_any_form_of_json(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_KEY", ODD_KEY)
    forms = [
        IN_JSON,
        IN_JSON.replace("/", "\\/"),
        IN_JSON.replace("+", "\\u002B").replace("&", "\\u0026").replace('\\"', "\\u0022"),
        "".join(f"\\u{ord(char):04x}" for char in ODD_KEY),
        json.dumps(IN_JSON.replace("/", "\\/"))[1:-1],
    ]
    rest = ', not for \\"sk\\/odd"'
    assert set(stored(answers, [f'"note": "for {form}{rest}' for form in forms])) == {f'"note": "for ***{rest}'}


def test_a_stored_answer_has_no_address_with_a_secret(answers: Answers) -> None:
    shown = {
        "https://h/x?sig=s3cr3t": "https://h/x?***",
        "https://me:s3cr3t@h/x": "https://***@h/x",
        "//h/x?sig=s3cr3t": "//h/x?***",
        "//me:s3cr3t@h/x?sig=s3cr3t": "//***@h/x?***",
        "https:\\/\\/h\\/x?sig=s3cr3t\\u0026n=1": "https:\\/\\/h\\/x?***",
        "https:\\u002F\\u002Fme:s3cr3t@h\\u002Fx\\u003Fsig=s3cr3t": "https:\\u002F\\u002F***@h\\u002Fx?***",
        '{\\"url\\": \\"https://h/x?sig=s3cr3t\\"}': '{\\"url\\": \\"https://h/x?***\\"}',
        "https://h/x": "https://h/x",
        "a//b?c": "a//b?c",
        "me@h.example": "me@h.example",
    }
    notes = [f'"note": "{address}", "n": 1' for address in shown]
    assert stored(answers, notes) == [f'"note": "{address}", "n": 1' for address in shown.values()]


def test_a_stored_answer_is_no_page(answers: Answers) -> None:
    bodies = {".json": paid_answers.openai(), ".txt": PAGE, ".bin": b"\xff\xd8\xff\x00" * 9}
    run = run_of_each(answers, "openai", bodies)
    run()
    paths = [record.reply_path for record in run.records()]
    assert paths == [f"artifacts/case{at:02}/m/0-reply{ending}" for at, ending in enumerate(bodies)]


def unusable(answers: Answers, provider: str = "openai", **suite: Any) -> PaidRun:
    """A run ``r`` with one cell whose answer has no image."""
    run = PaidRun(answers, provider, **suite)
    answers.send(paid_answers.with_image(provider, None))
    assert run().exit_code == 3
    answers.send(paid_answers.with_image(provider, paid_answers.TEXT))
    return run


@pytest.mark.parametrize("flags", [("--offline",), ("--reuse", "all")])
def test_a_replay_has_the_same_error_and_its_answer(answers: Answers, flags: tuple[str, ...]) -> None:
    run = unusable(answers)
    assert run(*flags, run_id="again").exit_code == 3
    (first,), (again,) = run.records(), run.records("again")
    assert (again.error, again.reply_path, again.reply_note) == (first.error, first.reply_path, first.reply_note)
    stored = [Path("runs", name, str(first.reply_path)).read_bytes() for name in ("r", "again")]
    assert (stored[0], again.cost_usd, run.calls) == (stored[1], 0.0, 1)


def test_a_reused_answer_is_paid_again_if_that_is_asked_for(answers: Answers) -> None:
    run = unusable(answers)
    assert run("--reuse", "all", "--retry-unusable", run_id="again").exit_code == 0
    assert run.calls == 2
    answers.send(paid_answers.openai())
    assert run(run_id="new").exit_code == 3
    assert run.calls == 3
    assert run("--reuse", "all", run_id="best").exit_code == 0, "an image counts more than a newer answer without one"
    assert run("--offline", run_id="newest").exit_code == 3, "a replay has what was answered last"
    assert run.calls == 3


def test_a_killed_run_takes_the_answer_from_the_cache(answers: Answers) -> None:
    run = unusable(answers)
    (record,) = run.records()
    Path("runs/r/results.jsonl").write_text("")
    assert run.resume().exit_code == 3
    assert run.calls == 1
    (again,) = run.records()
    assert (again.error, again.cost_usd) == (record.error, record.cost_usd)
    Path("runs/r/results.jsonl").write_text("")
    assert run.resume("--retry-unusable").exit_code == 0
    assert run.calls == 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--resume", "r", "--retry-unusable", "--offline"), "--offline generates nothing: leave out one of them"),
        (("--resume", "r", "--retry-unusable", "--keep-errors"), "--keep-errors repeats none: leave out one of them"),
        (("suite.yaml", "--retry-unusable"), "--retry-unusable needs --resume or --reuse all"),
        (("suite.yaml", "--retry-unusable", "--reuse", "none"), "--retry-unusable needs --resume or --reuse all"),
    ],
)
def test_the_flag_is_refused_where_it_would_do_nothing(answers: Answers, flags: tuple[str, ...], message: str) -> None:
    run = unusable(answers)
    refused = CliRunner().invoke(app, ["run", *flags, "--cache", "cache"], catch_exceptions=False)
    assert (refused.exit_code, run.calls) == (2, 1)
    assert message in refused.output


def test_a_resumed_run_says_what_it_keeps(answers: Answers) -> None:
    run = unusable(answers)
    assert "to generate: 0; to grade again: 0; unchanged: 1" in run.resume().output
    assert "to generate: 1 (1 ended in an error)" in run.resume("--retry-unusable").output


def test_other_errors_are_repeated_without_the_flag(answers: Answers) -> None:
    run = PaidRun(answers, limits={"openai": {"max_attempts": 1}})
    answers.send({"error": {"code": "server_error", "message": "busy"}})
    assert run().exit_code == 3
    (record,) = run.records()
    assert record.error is not None
    assert (record.error.kind, record.reply_path) == ("transient", None)
    answers.send(paid_answers.openai(paid_answers.OPENAI_IMAGE))
    assert (run.resume().exit_code, run.calls) == (0, 2)


@pytest.mark.parametrize(
    ("price", "cost"),
    [
        ({"per_image": 0.25}, 0.25),
        ({"per_call": 0.5}, 0.5),
        ({"input_per_million": 5, "output_per_million": 40}, 0.04005),
    ],
)
def test_an_answer_that_cannot_be_used_is_paid(answers: Answers, price: dict[str, float], cost: float) -> None:
    run = unusable(answers, prices={"gpt-image-2": price})
    (record,) = run.records()
    assert record.cost_usd == pytest.approx(cost)
    stopped = run.resume("--retry-unusable", "--budget", str(cost / 2))
    assert (stopped.exit_code, run.calls) == (3, 1), stopped.output
    assert run.records() == [record]


def test_a_page_counts_what_a_call_may_cost(answers: Answers) -> None:
    answers.send(PAGE, "text/html")
    price = {"gpt-image-2": {"input_per_million": 5, "output_per_million": 40}}
    cases = [{"id": f"tree{at}", "prompt": "a tree"} for at in range(20)]
    run = PaidRun(answers, params={"quality": "low"}, prices=price, cases=cases)
    stopped = run("--budget", "0.1")
    assert stopped.exit_code == 3
    assert "the budget of 0.1 USD is used up" in stopped.output
    assert 0 < run.calls < 10
    assert {record.cost_usd for record in run.records()} == {None}


def test_a_later_turn_waits_for_an_image(answers: Answers) -> None:
    Path("base.png").write_bytes(OTHER)
    run = unusable(answers, cases=[{"id": "tree", "images": ["base.png"], "turns": ["make it red", "make it blue"]}])
    errors = [record.error.kind for record in run.records() if record.error]
    assert errors == ["unusable", "missing_input"]
    run.resume()
    assert run.calls == 1
    assert run.resume("--retry-unusable").exit_code == 0
    assert run.calls == 3


def test_a_case_of_the_same_output_has_the_error(answers: Answers) -> None:
    cases = [{"id": "tree", "prompt": "a tree"}, {"id": "boat", "prompt": "a boat", "output_of": "tree"}]
    run = unusable(answers, cases=cases)
    assert [str(record.verdict) for record in run.records()] == ["ERROR", "ERROR"]
    assert "unchanged: 2" in run.resume().output
    assert (run.resume("--retry-unusable").exit_code, run.calls) == (0, 2)


def test_grading_again_keeps_the_answer(answers: Answers) -> None:
    answers.send(paid_answers.openai(paid_answers.OPENAI_IMAGE, None))
    run = PaidRun(answers)
    assert run().exit_code == 0
    graded = CliRunner().invoke(app, ["grade", "r", "--run-id", "g", "--cache", "cache"], catch_exceptions=False)
    assert graded.exit_code == 0, graded.output
    (record,), (again,) = run.records(), run.records("g")
    assert (again.reply_path, again.reply_note) == (record.reply_path, record.reply_note)
    assert Path("runs/g", str(again.reply_path)).read_bytes() == answers.body
    shown = CliRunner().invoke(app, ["show", "r", "tree"], catch_exceptions=False)
    text = " ".join(shown.output.split())
    assert f"unused answer images requested: 1, received: 2 (in {record.reply_path})" in text


def test_shards_and_their_merge_have_the_answers(answers: Answers) -> None:
    answers.send(paid_answers.openai(None))
    run = PaidRun(answers, cases=[{"id": name, "prompt": f"a {name}"} for name in ("tree", "boat", "house", "fox")])
    for number in (1, 2):
        assert run("--shard", f"{number}/2", run_id=f"s{number}").exit_code == 3
    merged = CliRunner().invoke(app, ["merge", "s1", "s2", "--run-id", "all"], catch_exceptions=False)
    assert merged.exit_code == 3, merged.output
    assert len(run.records("all")) == 4
    assert all(Path("runs/all", str(record.reply_path)).read_bytes() == answers.body for record in run.records("all"))
    assert run.resume(run_id="all").exit_code == 3
    assert run.calls == 4


def test_no_exception_in_reading_an_answer_is_an_outage(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise TypeError("of a release that nobody has tested")

    for provider, module in (("openai", "openai"), ("gemini", "gemini")):
        monkeypatch.setattr(f"visioneval.providers.{module}.generator.read_outputs", broken)
        answers.posts.clear()
        answers.send(paid_answers.with_image(provider, paid_answers.TEXT))
        run = PaidRun(answers, provider)
        assert run(run_id=provider).exit_code == 3
        (record,) = run.records(provider)
        assert record.error is not None
        assert (record.error.kind, run.calls) == ("unusable", 1)
        assert record.error.message.startswith("the answer could not be read: TypeError: of a release")
        assert Path("runs", provider, str(record.reply_path)).read_bytes() == answers.body


@pytest.mark.parametrize(
    ("choices", "problem"),
    [
        ([{"message": {"content": "no JSON"}}], "not JSON: it contains no JSON object"),
        (3, "the answer could not be read: TypeError"),
    ],
)
def test_a_judges_unreadable_reply_is_asked_once_more(answers: Answers, choices: Any, problem: str) -> None:
    answers.send({"choices": choices, "usage": None})
    run = PaidRun(answers)
    suite = json.loads(Path("suite.yaml").read_text())
    host = {name: suite["models"][0][name] for name in ("provider", "base_url", "api_key_env")}
    judges = {"default": {**host, "model": "gpt-5.4", "api": "chat"}}
    look = {
        "key": "look",
        "type": "rubric",
        "judge": "default",
        "metrics": {"good": {"type": "pass_fail", "description": "good?"}},
    }
    run.write(
        models=[{"provider": "mock"}],
        judges=judges,
        graders=[look],
        verdict=["good"],
        prices={},
        limits={"openai": {"max_attempts": 2}},
    )
    judged = run()
    assert (judged.exit_code, run.calls) == (3, 2), judged.output
    (record,) = run.records()
    assert problem in str(record.graders[0].error)
    assert record.reply_path is None


def test_the_log_names_it(answers: Answers) -> None:
    answers.send(paid_answers.openai(None))
    PaidRun(answers)("--log-file", "calls.jsonl")
    (line,) = map(json.loads, Path("calls.jsonl").read_text().splitlines())
    assert (line["status"], line["attempt"]) == ("unusable", 1)


VIDEO_MODELS = {"openai": "wan2.2-t2v", "gemini": "gemini-omni-1.2-flash"}


@pytest.mark.parametrize(
    ("provider", "body", "problem"),
    [
        ("openai", {"id": None}, "the answer names no video"),
        ("openai", {"id": 7}, "the answer names no video"),
        ("openai", {"id": "../1"}, "'../1' is no video"),
        ("openai", [], "the answer names no video"),
        ("openai", PAGE, "the answer is not from this API; check base_url"),
        ("openai", '{"id": "v', "the answer names no video"),
        ("gemini", {"id": "i1", "status": "completed", "steps": []}, "images requested: 1, received: 0"),
        ("gemini", PAGE, "the answer could not be read: "),
        ("gemini", '{"id": "i1", "status": "comp', "the answer"),
    ],
)
def test_a_video_that_begins_with_an_odd_answer_is_paid_once(
    answers: Answers, provider: str, body: Any, problem: str
) -> None:
    answers.send(body, "text/html" if body == PAGE else "application/json")
    run = PaidRun(answers, provider)
    (model,) = json.loads(Path("suite.yaml").read_text())["models"]
    model |= {"params": {"model": VIDEO_MODELS[provider]}, **({"api": "videos"} if provider == "openai" else {})}
    prices = {VIDEO_MODELS[provider]: {"per_second": 0.1}}
    video = {"key": "video", "type": "video"}
    run.write(
        models=[model], prices=prices, task="video_generation", graders=[video], verdict=["video.black_share < 1"]
    )
    done = run()
    assert done.exit_code == 3, done.output
    (record,) = run.records()
    assert record.error is not None
    assert (record.error.kind, run.calls) == ("unusable", 1)
    assert problem in record.error.message
    assert Path("runs/r", str(record.reply_path)).read_bytes() == answers.body
    assert (run.resume().exit_code, run.calls) == (3, 1)
    assert (run.resume("--retry-unusable").exit_code, run.calls) == (3, 2)
