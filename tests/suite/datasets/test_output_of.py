"""Cases that use another case's output: one generation, a cell for each prompt, and shared errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from toys import SECOND, Toy

from visioneval import Status, Verdict, read_records

pytestmark = pytest.mark.slow

COUNTER = {"id": "other", "prompt": "three trees", "output_of": "case0", "expect": {"aligned": False}}


def cells(toy: Toy) -> list[tuple[str, int, Verdict]]:
    return [(record.test_id, record.sample_index, record.verdict) for record in read_records(toy.latest)]


def test_one_image_is_graded_against_each_prompt(toy: Toy) -> None:
    done = toy.run({}, {**COUNTER, "metadata": {"look": "bad"}, "verdict": ["not fine"]}, samples=2)
    assert done.exit_code == 0, done.output
    assert sorted(cells(toy)) == [(case, sample, "PASS") for case in ("case0", "other") for sample in (0, 1)]
    custom, other = toy.records["case0"], toy.records["other"]
    assert (other.prompt, other.scores["fine"], other.reasons) == ("three trees", False, {"look": "all is ill"})
    for field in ("artifact_path", "artifact_sha256", "mime", "width", "height", "generation_key", "sample_index"):
        assert getattr(other, field) == getattr(custom, field), field
    assert other.grade_key != custom.grade_key
    assert len(list((toy.latest / "artifacts").rglob("*.png"))) == 2
    assert (custom.cost_usd, other.cost_usd, other.usage, other.attempts) == (0.5, 0.0, None, 0)
    assert toy.summary["cost_usd"] == 1.0


@pytest.mark.parametrize(
    ("generate", "status", "verdict", "code"),
    [("raises", Status.ERROR, "ERROR", 3), ("refuses", Status.REFUSED, "FAIL", 1), ("text", Status.ERROR, "ERROR", 3)],
)
def test_a_failed_generation_fails_all_cases_that_use_its_output(
    toy: Toy, generate: str, status: Status, verdict: str, code: int
) -> None:
    done = toy.run({"metadata": {"generate": generate}}, COUNTER)
    assert done.exit_code == code
    custom, other = toy.records["case0"], toy.records["other"]
    assert (custom.status, other.status, other.verdict, other.error) == (status, status, verdict, custom.error)
    assert other.reasons == custom.reasons


def test_the_order_in_the_file_does_not_matter(toy: Toy) -> None:
    toy.write(COUNTER, {"id": "case0"})
    done = toy("run", toy.folder / "suite.yaml", "--trust-suite")
    assert done.exit_code == 0, done.output
    assert cells(toy) == [("case0", 0, "PASS"), ("other", 0, "PASS")]


def test_a_selected_case_adds_the_case_whose_output_it_uses(toy: Toy) -> None:
    path = toy.write({}, COUNTER, {"id": "third"})
    assert toy("run", path, "--trust-suite", "--case", "other").exit_code == 0
    assert [cell[0] for cell in cells(toy)] == ["case0", "other"]
    assert toy("run", path, "--trust-suite", "--case", "case0").exit_code == 0
    assert [cell[0] for cell in cells(toy)] == ["case0"]


def test_a_plan_counts_one_generation_and_two_cells(toy: Toy) -> None:
    message = toy("plan", toy.write({}, COUNTER, samples=3), "--trust-suite").output
    assert "3 generation calls, 6 images, 6 other gradings" in message


def test_cases_that_use_an_edit_have_its_inputs_and_task(toy: Toy) -> None:
    toy.outputs("base.png")
    done = toy.run({"images": ["base.png"]}, COUNTER)
    assert done.exit_code == 0, done.output
    assert toy.records["other"].task_type == "image_editing"


def test_existing_outputs_can_be_used_by_other_cases(toy: Toy) -> None:
    toy.outputs("out/case0.png")
    done = toy.run({}, COUNTER, models=[{"provider": "files", "label": "old", "path": "out/{case}.png"}])
    assert done.exit_code == 0, done.output
    assert toy.records["other"].run_params == {"path": "out/case0.png"}


def test_a_dataset_may_define_counter_examples(toy: Toy) -> None:
    rows = [{"i": "a", "p": "a tree"}, {"i": "b", "p": "a bush", "of": "a", "fits": "false"}]
    (toy.folder / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = {"id": "i", "prompt": "p", "output_of": "of", "expect.aligned": "fits"}
    path = toy.write({}, gates=["separation(level) >= 0"])
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "cases": [{"dataset": {"path": "d.jsonl", "fields": fields}}]}))
    done = toy("run", path, "--trust-suite")
    assert done.exit_code == 0, done.output
    assert toy.records["b"].artifact_path == toy.records["a"].artifact_path


# --- separation


def test_the_summary_separates_both_groups(toy: Toy) -> None:
    cases: list[dict[str, Any]] = [
        {},
        {**COUNTER, "metadata": {"look": "bad"}, "verdict": ["not fine"]},
    ]
    done = toy.run(*cases, gates=["separation(level) >= 0.2", "separation(fine) == 1", "pass_rate == 1"])
    assert done.exit_code == 0, done.output
    assert toy.summary["separations"]["level"] == {
        "toy": {
            "aligned": 0.5,
            "aligned_n": 1,
            "counter": 0.25,
            "counter_n": 1,
            "difference": 0.25,
            "difference_low": None,
            "difference_high": None,
            "auroc": 1.0,
            "auroc_low": None,
            "auroc_high": None,
            "left_out": False,
        }
    }
    assert "Counterexamples" in done.output
    assert [gate["value"] for gate in toy.summary["gates"][:2]] == [0.25, 1.0]
    assert toy.run(*cases, gates=["separation(level) >= 0.3"]).exit_code == 1


def test_a_gate_whose_counter_examples_were_left_out_is_skipped(toy: Toy) -> None:
    path = toy.write({}, COUNTER, gates=["separation(level) >= 0.2"])
    done = toy("run", path, "--trust-suite", "--case", "case0")
    assert done.exit_code == 3, done.output  # no gate of the suite was checked
    assert toy.summary["gates"][0]["state"] == "skipped"
    assert toy.summary["separations"] == {}


def test_a_gate_with_nothing_measured_on_one_side_is_unmeasured(toy: Toy) -> None:
    done = toy.run({}, {**COUNTER, "metadata": {"look": "half"}}, gates=["separation(level) >= 0"])
    assert done.exit_code == 3
    assert toy.summary["gates"][0]["state"] == "unmeasured"


def test_no_template_knows_a_counter_example(toy: Toy) -> None:
    done = toy.run({}, {**COUNTER, "prompt": "{{ expect.aligned }}"})
    assert done.exit_code == 2
    assert "'aligned'" in done.output


def test_second_graders_are_not_mixed_up(toy: Toy) -> None:
    """Each case that uses the output has the graders of its tags."""
    second = {**SECOND, "when": {"tags": ["counter"]}}
    graders = [{"key": "look", "type": "mine:Look", "writes": {"fine": {"type": "bool"}, "level": {"type": "number"}}}]
    done = toy.run({}, {**COUNTER, "tags": ["counter"]}, graders=[*graders, second], verdict=["fine", "second"])
    assert done.exit_code == 0, done.output
    assert "second" not in toy.records["case0"].scores
    assert toy.records["other"].scores["second"] is True


# --- resumed


def lines(toy: Toy) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (toy.latest / "results.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("lost", ["other", "case0"])
def test_a_lost_cell_is_generated_again_with_its_dependents(toy: Toy, lost: str) -> None:
    assert toy.run({}, COUNTER).exit_code == 0
    results = toy.latest / "results.jsonl"
    stored = [line for line in lines(toy) if line["test_id"] != lost]
    results.write_text("".join(json.dumps(line) + "\n" for line in stored))
    done = toy("run", toy.folder / "suite.yaml", "--trust-suite", "--resume", toy.latest)
    assert done.exit_code == 0, done.output
    created = [line["test_id"] for line in lines(toy)[len(stored) :]]
    assert created == (["other"] if lost == "other" else ["case0", "other"])
    assert toy.records["other"].artifact_path == toy.records["case0"].artifact_path
