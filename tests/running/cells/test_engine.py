"""Generation and grading of cells: a failure is recorded in its cell and stops no other cell."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from toys import LOOK, SECOND, Toy, at

pytestmark = pytest.mark.slow

FAILED_GENERATIONS = [
    ("raises", "internal", f"RuntimeError: the model is on fire {at('the model is on fire')}"),
    ("exits", "internal", "it called exit(7)"),
    ("cancels", "internal", "it cancelled itself"),
    ("gives_none", "internal", "it returned NoneType, not Generation"),
    ("no_such_way", "internal", "AttributeError"),
    ("gives_path", "unusable", "the provider must return an image as bytes, not PosixPath"),
    ("limited", "rate_limit", "slow down"),
    ("invalid", "invalid", "bad request"),
    ("times_out", "transient", "TimeoutError: my service"),
    ("text", "unusable", "not a supported image (supported: png, jpeg, webp, gif, bmp, tiff, svg)"),
    ("empty", "unusable", "the file is empty"),
    ("cut", "unusable", "cannot be decoded"),
    ("few", "unusable", "images requested: 1, received: 0"),
]


def test_failed_generation_stops_no_other_cell(toy: Toy) -> None:
    cases = [{"id": how, "metadata": {"generate": how}} for how, _, _ in FAILED_GENERATIONS]
    limits = {"mine:Generate": {"max_attempts": 1}}
    result = toy.run(*cases, {"id": "good"}, limits=limits, arguments=("--max-concurrency", "1"))
    assert result.exit_code == 3
    assert "Traceback" not in result.output
    records = toy.records
    for how, kind, message in FAILED_GENERATIONS:
        record = records[how]
        assert record.error is not None, how
        assert (record.status, record.verdict) == ("error", "ERROR"), how
        assert (record.error.stage, record.error.kind) == ("generate", kind), how
        assert message in record.error.message, how
        assert record.artifact_path is None, how
        assert (record.scores, record.graders, record.failed_rules) == ({}, (), ()), how
    assert records["good"].verdict == "PASS"
    assert toy.info.state == "complete"


def test_the_cell_timeout_is_an_error_of_the_cell(toy: Toy) -> None:
    assert toy.run({"metadata": {"wait": 600}}, cell_timeout_s=0.05).exit_code == 3
    assert (toy.record.error.stage, toy.record.error.kind) == ("generate", "timeout")
    assert toy.record.error.message == "exceeded the cell timeout of 0.05 s (cell_timeout_s)"


def test_cost_of_a_cell_includes_its_graders_and_a_dependent_case_generates_for_free(toy: Toy) -> None:
    paid = {"metadata": {"look": "Grade(scores={'fine': True, 'level': 0.5}, cost_usd=0.25)"}}
    toy.run(paid, {"id": "counter", "prompt": "three trees", "output_of": "case0", **paid})
    first, dependent = toy.records["case0"], toy.records["counter"]
    assert (first.usage, first.attempts, first.total_cost_usd) == ({"images": 1}, 1, 0.75)
    assert (dependent.prompt, dependent.artifact_sha256) == ("three trees", first.artifact_sha256)
    assert (dependent.cost_usd, dependent.usage, dependent.attempts, dependent.seconds) == (0.0, None, 0, 0.0)
    assert dependent.total_cost_usd == 0.25


@pytest.mark.parametrize(("how", "why"), [("refuses", "not that"), ("refuses_with_error", "against the rules")])
@pytest.mark.parametrize(("expected", "verdict", "code"), [(False, "FAIL", 1), (True, "PASS", 0)])
def test_refusal_is_a_result(toy: Toy, how: str, why: str, expected: bool, verdict: str, code: int) -> None:
    result = toy.run({"metadata": {"generate": how}, "expect": {"refusal": expected}})
    record = toy.record
    assert (record.status, record.verdict, record.error) == ("refused", verdict, None)
    assert (record.failure_tags, record.reasons) == (() if expected else ("refused",), {"refused": why})
    assert (record.scores, record.skipped_rules) == ({}, ("fine",))
    assert result.exit_code == code


def test_image_instead_of_expected_refusal_fails(toy: Toy) -> None:
    result = toy.run({"expect": {"refusal": True}})
    record = toy.record
    assert (record.status, record.verdict, record.error) == ("completed", "FAIL", None)
    assert (record.failed_rules, record.skipped_rules, record.scores) == (("expect.refusal",), ("fine",), {})
    assert record.artifact_path is not None
    assert result.exit_code == 1
    assert "expect.refusal" in result.stdout


def test_warning_rule_never_changes_verdict(toy: Toy) -> None:
    toy.run({}, verdict=["fine", {"rule": "level >= 0.9", "level": "warn"}])
    assert (toy.record.verdict, toy.record.warned_rules) == ("PASS", ("level >= 0.9",))


def test_cell_without_applicable_rule_is_an_error(toy: Toy) -> None:
    result = toy.run({}, graders=[LOOK, SECOND], verdict=["fine"], arguments=("--grader", "second"))
    record = toy.record
    assert (record.verdict, record.scores, record.skipped_rules) == ("ERROR", {"second": True}, ("fine",))
    assert (record.error.stage, record.error.kind) == ("verdict", "no_rule")
    assert result.exit_code == 3


def test_results_of_custom_providers_become_plain_data(toy: Toy) -> None:
    result = toy.run({"metadata": {"generate": "odd"}})
    record = toy.record
    params = {"path": "a", "nan": None, "surrogate": "?", "set": [1], "bytes": "<1 bytes>", "3": "<class 'object'>"}
    assert record.run_params == params
    assert (record.usage, record.cost_usd) == ({"c": 2}, None)
    assert (record.verdict, result.exit_code) == ("PASS", 0)


def test_api_key_appears_nowhere_in_a_run(toy: Toy) -> None:
    key = 'sk-0123456789"\\abc'
    model = {"provider": "mine:Generate", "label": "toy", "api_key_env": "TOY_KEY"}
    path = toy.write({"metadata": {"generate": "leaks_key"}}, models=[model])
    result = toy("run", path, "--trust-suite", "--note", f"with {key}", TOY_KEY=key)
    assert toy.record.error.message == f"RuntimeError: 401 for the key *** {at('401 for the key')}"
    assert toy.info.note == "with ***"
    written = b"".join(path.read_bytes() for path in toy.latest.rglob("*") if path.is_file())
    assert b"0123456789" not in written
    assert "0123456789" not in result.output


@pytest.mark.parametrize("limit", [1, 3])
def test_concurrent_generations_stay_within_limit(toy: Toy, limit: int) -> None:
    result = toy.run(*[{"metadata": {"wait": 0.01}} for _ in range(12)], arguments=("--max-concurrency", str(limit)))
    assert result.exit_code == 0, result.output
    generate = sys.modules["mine"].Generate
    assert (generate.most, generate.started) == (limit, 12)


def test_workers_pull_jobs_on_demand(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    from visioneval.running.plan import Plan

    ahead: list[int] = []
    chains = Plan.chains

    def counted(plan: Plan) -> Any:
        for created, calls in enumerate(chains(plan), 1):
            ahead.append(created - sys.modules["mine"].Generate.started)
            yield calls

    monkeypatch.setattr(Plan, "chains", counted)
    toy.run(*[{} for _ in range(40)], arguments=("--max-concurrency", "2"))
    assert len(ahead) == 40
    assert max(ahead) <= 4  # two are generated, and two more are graded or wait for their turn


def test_samples_share_cost_and_time_and_missing_sample_is_an_error(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    from visioneval.suite.entries.providers import CustomProvider

    monkeypatch.setattr(CustomProvider, "outputs_per_call", lambda self, params: 2)
    toy.run({}, samples=2)
    from visioneval import read_records

    records = {record.sample_index: record for record in read_records(toy.latest)}
    assert {at: record.status for at, record in records.items()} == {
        0: "completed", 1: "error", 2: "completed", 3: "error"
    }  # fmt: skip
    assert {record.cost_usd for record in records.values()} == {0.25}
    assert records[1].error.message.startswith("images requested: 2, received: 1; ")
    assert records[2].artifact_path == "artifacts/case0/toy/2.png"


def test_record_has_all_documented_fields(toy: Toy) -> None:
    toy.run({"tags": ["a"], "metadata": {"font": "Futura", "generate": "jpeg"}, "prompt": "a {{ metadata.font }} tree"})
    record = toy.record
    assert record.run_id == toy.latest.name == toy.info.run_id
    assert (record.test_id, record.model_label, record.sample_index) == ("case0", "toy", 0)
    assert (record.task_type, record.prompt) == ("image_generation", "a Futura tree")
    assert (record.tags, record.metadata) == (("a",), {"font": "Futura", "generate": "jpeg"})
    assert (record.provider, record.attempts, record.cached) == ("mine:Generate", 1, False)
    assert (record.artifact_path, record.mime) == ("artifacts/case0/toy/0.jpg", "image/jpeg")
    assert (record.width, record.height) == (32, 24)
    assert record.reasons == {"fine": "all is well"}
    (grader,) = record.graders
    assert (grader.key, grader.type, grader.error) == ("look", "mine:Look", None)
    assert len(grader.fingerprint.config_sha256) == 64


def keys_of(toy: Toy, case: dict[str, Any], **changes: Any) -> tuple[dict[str, str], dict[str, str]]:
    toy.run(case, **changes)
    record = toy.record
    (toy.latest / "results.jsonl").unlink()
    return tuple(  # type: ignore[return-value]
        dict(part.split(":") for part in key.split(" ")) for key in (record.generation_key, record.grade_key)
    )


def differing(single: dict[str, str], other: dict[str, str]) -> set[str]:
    return {part for part in single.keys() | other.keys() if single.get(part) != other.get(part)}


CHANGES: list[tuple[dict[str, Any], dict[str, Any], set[str], set[str]]] = [
    ({}, {}, set(), set()),
    ({"prompt": "a bush"}, {}, {"prompt"}, {"case"}),
    ({}, {"graders": [{**LOOK, "when": {"cases": ["case0"]}}]}, set(), {"grader.look"}),
    ({}, {"models": [{"provider": "mine:Generate", "label": "renamed"}]}, set(), set()),
    ({}, {"name": "another"}, set(), set()),
]


def test_keys_change_with_their_inputs(toy: Toy) -> None:
    """Others are in ``test_engine_resume.py``."""
    before = keys_of(toy, {})
    for case, changes, generation, grading in CHANGES:
        after = keys_of(toy, case, **changes)
        assert (differing(before[0], after[0]), differing(before[1], after[1])) == (generation, grading)


def test_keys_depend_on_image_bytes_not_paths(toy: Toy) -> None:
    toy.outputs("here/case0.png", "there/case0.png")
    models = {"models": [{"provider": "files", "label": "old", "path": "here/{case}.png"}]}
    moved = {"models": [{"provider": "files", "label": "old", "path": "there/{case}.png"}]}
    first = keys_of(toy, {}, **models)
    assert keys_of(toy, {}, **moved) == first
    (toy.folder / "there/case0.png").write_bytes((toy.folder / "here/case0.png").read_bytes() + b"x")
    assert differing(keys_of(toy, {}, **moved)[0], first[0]) == {"image"}


def test_keys_do_not_depend_on_working_directory(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.outputs("here/case0.png")
    models = {"models": [{"provider": "files", "label": "old", "path": "here/{case}.png"}]}
    first = keys_of(toy, {}, **models)
    elsewhere = toy.folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    toy("run", toy.folder / "suite.yaml", "--trust-suite", "--runs", str(toy.folder / "runs"))
    assert toy.record.generation_key.split(" ")[0] == f"model:{first[0]['model']}"
    assert f"image:{first[0]['image']}" in toy.record.generation_key
    assert toy.record.status == "completed"


def test_many_cells_write_one_record_each(toy: Toy) -> None:
    result = toy.run(*[{} for _ in range(40)], samples=2)
    lines = (toy.latest / "results.jsonl").read_text().splitlines()
    assert len(lines) == 80
    assert len({(cell["test_id"], cell["sample_index"]) for cell in map(json.loads, lines)}) == 80
    assert result.exit_code == 0


def test_each_suite_imports_its_own_modules(toy: Toy, tmp_path: Path) -> None:
    toy.write({}, name="suite.yaml")
    other = tmp_path / "other"
    other.mkdir()
    second = Toy(other)
    second.write({}, name="suite.yaml", graders=[LOOK], verdict=["fine"])
    code = (other / "mine.py").read_text().replace("def fine(self, subject):", "def was_fine(self, subject):")
    (other / "mine.py").write_text(code.replace("def bad(self, subject):", "def fine(self, subject):"))
    result = toy("run", toy.folder / "suite.yaml", other / "suite.yaml", "--trust-suite")
    assert result.exit_code == 1
    assert result.stdout.count("1 PASS") == 1
    assert result.stdout.count("1 FAIL") == 1
