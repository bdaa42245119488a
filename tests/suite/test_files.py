"""Existing outputs as a provider: patterns, datasets, outputs of cases, and another run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from toys import Toy

from visioneval import Record, read_records


def run(toy: Toy, *cases: dict[str, Any], models: list[dict[str, Any]], code: int = 0, **changes: Any) -> list[Record]:
    result = toy.run(*cases, models=models, **changes)
    assert result.exit_code == code, result.output
    return list(read_records(toy.latest))


def generated(records: list[Record]) -> dict[tuple[str, str, int], Any]:
    return {record.cell: record.run_params["path"] for record in records if record.status == "completed"}


def test_a_pattern_names_case_model_and_sample(toy: Toy) -> None:
    names = [f"out/{case}/m 1/{sample}.png" for case in ("a", "b") for sample in (0, 1)]
    toy.outputs(*names)
    model = {"provider": "files", "label": "m 1", "path": "out/{case}/{model}/{sample}.png"}
    records = run(toy, {"id": "a"}, {"id": "b"}, models=[model], samples=2)
    assert sorted(generated(records).values()) == names
    for record in records:
        assert (record.verdict, record.cost_usd, record.provider) == ("PASS", None, "files")
        source = toy.folder / str(record.run_params["path"])
        assert (toy.latest / str(record.artifact_path)).read_bytes() == source.read_bytes()


def test_a_missing_image_of_a_dataset_is_the_error_of_its_cell(toy: Toy) -> None:
    toy.outputs("a.png")
    (toy.folder / "c.png").mkdir()
    os.mkfifo(toy.folder / "d.png")
    (toy.folder / "d.csv").write_text("id,file\na,a.png\nb,b.png\nc,c.png\nd,d.png\n")
    model = {
        "provider": "files",
        "label": "old",
        "dataset": {"path": "d.csv", "fields": {"id": "id", "output": "file"}},
    }
    records = run(toy, {"id": "a"}, {"id": "b"}, {"id": "c"}, {"id": "d"}, models=[model], code=3)
    result = {record.test_id: record for record in records}
    assert result["a"].verdict == "PASS"
    reasons = {"b": "b.png: No such file or directory", "c": "c.png: Is a directory", "d": "d.png: not a file"}
    messages = {case: f"d.csv:{line}: {reason}" for line, (case, reason) in enumerate(reasons.items(), 3)}
    for case, message in messages.items():
        error = result[case].error
        assert error is not None
        assert (error.stage, error.kind, error.message) == ("generate", "invalid", message)


def test_a_image_over_the_limit_is_not_read(toy: Toy) -> None:
    with (toy.folder / "a.png").open("wb") as file:
        file.truncate(300 * 1024 * 1024)
    (record,) = run(toy, {"id": "a"}, models=[{"provider": "files", "label": "old", "path": "{case}.png"}], code=3)
    assert record.error is not None
    assert (record.error.kind, "over the limit" in record.error.message) == ("bad_image", True)


def test_a_dataset_with_a_model_column_has_one_model_run_per_label(toy: Toy) -> None:
    toy.outputs("data/a1.png", "data/a2.png", "data/b1.png", "data/c1.png")
    rows = [("a", "one", "a1.png"), ("a", "one", "a2.png"), ("a", "two", "b1.png"), ("b", "one", "c1.png")]
    (toy.folder / "data/rows.csv").write_text("id,who,file\n" + "".join(f"{','.join(row)}\n" for row in rows))
    fields = {"id": "id", "model": "who", "output": "file"}
    model = {"provider": "files", "dataset": {"path": "data/rows.csv", "fields": fields}}
    records = run(toy, {"id": "a"}, {"id": "b"}, models=[model], code=3)
    assert generated(records) == {
        ("a", "one", 0): "data/a1.png",
        ("a", "one", 1): "data/a2.png",
        ("a", "two", 0): "data/b1.png",
        ("b", "one", 0): "data/c1.png",
    }
    (lacking,) = [record for record in records if record.status == "error"]
    assert lacking.cell == ("b", "two", 0)
    assert lacking.error is not None
    assert lacking.error.message == "no output of 'two' for the case 'b'"


def test_two_single_model_datasets_match_cases_by_prompt(toy: Toy) -> None:
    prompts = {"tree": "a tree, *green*", "sea": "the sea"}
    cases = [{"id": case, "prompt": prompt} for case, prompt in prompts.items()]
    for label in ("old", "new"):
        toy.outputs(*(f"{label}/{case}.png" for case in prompts))
        lines = [json.dumps({"text": prompt, "uri": f"{case}.png"}) for case, prompt in reversed(prompts.items())]
        (toy.folder / f"{label}/rows.jsonl").write_text("\n".join(lines))
    fields = {"prompt": "text", "output": "uri"}
    models = [
        {"provider": "files", "label": "before", "dataset": {"path": "old/rows.jsonl", "fields": fields}},
        {"provider": "files", "dataset": {"path": "new/rows.jsonl", "fields": fields}},
    ]
    records = run(toy, *cases, models=models)
    assert generated(records) == {
        ("tree", "before", 0): "old/tree.png",
        ("tree", "rows", 0): "new/tree.png",
        ("sea", "before", 0): "old/sea.png",
        ("sea", "rows", 0): "new/sea.png",
    }


def test_cases_name_their_own_outputs(toy: Toy) -> None:
    toy.outputs("x.png", "y.png", "z.png")
    cases = [
        {"id": "a", "outputs": {"one": ["x.png", "y.png"], "two": ["z.png"]}},
        {"id": "b", "outputs": {"one": ["z.png"]}},
    ]
    refused = toy.run(*cases, models=[{"provider": "files"}])
    assert (refused.exit_code, "outputs that do not exist: an image of 'b' by 'two'" in refused.stderr) == (2, True)
    cases[1]["outputs"] = {"one": ["z.png"], "two": ["y.png"]}
    records = run(toy, *cases, models=[{"provider": "files"}])
    assert generated(records) == {
        ("a", "one", 0): "x.png",
        ("a", "one", 1): "y.png",
        ("a", "two", 0): "z.png",
        ("b", "one", 0): "z.png",
        ("b", "two", 0): "y.png",
    }
    only = run(toy, *cases, models=[{"provider": "files", "label": "one"}])
    assert {record.model_label for record in only} == {"one"}


@pytest.fixture
def sampled(toy: Toy) -> Path:
    """A run of two model runs and three samples, of which the second one of ``old`` failed."""
    names = [f"{label}-{sample}.png" for label in ("old", "new") for sample in range(3)]
    toy.outputs(*names)
    (toy.folder / "old-1.png").write_bytes(b"torn")
    models = [{"provider": "files", "label": label, "path": "{model}-{sample}.png"} for label in ("old", "new")]
    assert toy.run({}, models=models, samples=3).exit_code == 3
    return toy.latest


def test_another_run_gives_its_images_under_their_sample_numbers(toy: Toy, sampled: Path) -> None:
    records = run(toy, {}, models=[{"provider": "files", "run": f"{sampled.name}@old"}], code=3)
    assert [(record.cell, record.status) for record in sorted(records, key=lambda record: record.cell)] == [
        (("case0", "old", 0), "completed"),
        (("case0", "old", 1), "error"),
        (("case0", "old", 2), "completed"),
    ]
    assert {record.artifact_path for record in records if record.artifact_path} == {
        "artifacts/case0/old/0.png",
        "artifacts/case0/old/2.png",
    }


def test_another_run_without_a_label_gives_all_of_its_model_runs(toy: Toy, sampled: Path) -> None:
    records = run(toy, {}, models=[{"provider": "files", "run": str(sampled)}], code=3)
    assert {record.model_label for record in records} == {"old", "new"}
    assert len(records) == 6
    renamed = run(toy, {}, models=[{"provider": "files", "run": f"{sampled}@new", "label": "newer"}])
    assert {record.model_label for record in renamed} == {"newer"}


@pytest.mark.parametrize("name", ["nope", "nope@old", "@old"])
def test_a_missing_run_is_a_problem_of_the_suite(toy: Toy, name: str) -> None:
    path = toy.write({}, models=[{"provider": "files", "run": name}])
    result = toy("run", path)
    assert result.exit_code == 2
    assert "suite.yaml:1:" in result.stderr
    assert "Traceback" not in result.output
    assert not (toy.folder / "runs").exists()


def test_two_cases_by_four_real_models(toy: Toy, shared_data: Path) -> None:
    path = shared_data / "generations" / "dataset.jsonl"
    fields = {"id": "id", "prompt": "prompt", "model": "model", "output": "image_uri"}
    suite = {
        "name": "generations",
        "cases": [{"dataset": {"path": str(path), "fields": fields}}],
        "models": [{"provider": "files"}],
        "graders": [{"key": "image", "type": "properties"}],
        "verdict": ["image"],
    }
    written = toy.folder / "suite.yaml"
    written.write_text(json.dumps(suite))
    result = toy("run", written, "--trust-suite")
    assert result.exit_code == 0, result.output
    records = list(read_records(toy.latest))
    models = ("dalle3", "deepfloyd", "midjourney", "sdxl")
    assert {record.cell for record in records} == {(case, model, 0) for case in ("dogs", "cats") for model in models}
    for record in records:
        side = 256 if record.model_label == "deepfloyd" else 1024
        assert (record.width, record.height) == (side, side)
        assert record.scores == {"image": True, "image.blank": False}
        assert record.verdict == "PASS"
    summary = toy.summary
    assert [model["label"] for model in summary["models"]] == list(models)
    assert [model["counts"]["passed"] for model in summary["models"]] == [2, 2, 2, 2]
