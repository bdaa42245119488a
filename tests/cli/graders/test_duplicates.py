"""The grader ``duplicates``: outputs of different cases of one model run that are nearly the same image."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from toys import Toy

import visioneval
from visioneval import load_run, merge
from visioneval.records.between_cells import CellDuplicate, read_duplicates

pytestmark = pytest.mark.slow

DISTINCT: dict[str, Any] = {"key": "distinct", "type": "duplicates"}
PROPERTIES: dict[str, Any] = {"key": "props", "type": "properties"}
GATE = "duplicate_rate == 0"
PASSING = ["pass_rate == 1"]
Pixels = NDArray[np.uint8]


def scene(seed: int, size: tuple[int, int] = (96, 64)) -> Pixels:
    """An image with some structure, ``(height, width, 3)``; another ``seed`` gives an unrelated one."""
    small = np.random.default_rng(seed).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(small).resize(size, Image.Resampling.BICUBIC))


def save(toy: Toy, name: str, pixels: Pixels) -> None:
    path = toy.folder / "out" / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def as_jpeg(pixels: Pixels) -> Pixels:
    stored = BytesIO()
    Image.fromarray(pixels).save(stored, "JPEG", quality=60)
    return np.asarray(Image.open(stored))


def write(toy: Toy, images: dict[str, Pixels], *, cases: list[dict[str, Any]] | None = None, **changes: Any) -> Path:
    """Existing outputs of the model ``m``: by ``case/sample``."""
    for name, pixels in images.items():
        save(toy, name, pixels)
    ids = dict.fromkeys(name.partition("/")[0] for name in images)
    known = {
        "models": [{"provider": "files", "label": "m", "path": "out/{case}/{sample}.png"}],
        "graders": [PROPERTIES, DISTINCT],
        "verdict": ["props"],
        "gates": [GATE],
    }
    return toy.write(*(cases or [{"id": name} for name in ids]), **{**known, **changes})


def run(toy: Toy, path: Path, *arguments: str, run_id: str = "r", code: int = 0) -> str:
    done = toy("run", path, "--run-id", run_id, *arguments)
    assert done.exit_code == code, done.output
    return str(done.output)


def lines(toy: Toy, run_id: str = "r") -> dict[str, CellDuplicate]:
    found = read_duplicates(toy.folder / "runs" / run_id)
    return {f"{line.test_id}/{line.sample_index}": line for line in found}


def copies(toy: Toy, run_id: str = "r") -> dict[str, str]:
    """Each near-duplicate, and the case that it repeats."""
    return {name: str(line.of) for name, line in lines(toy, run_id).items() if line.is_duplicate}


def gate(toy: Toy, run_id: str = "r") -> dict[str, Any]:
    summary = json.loads((toy.folder / "runs" / run_id / "summary.json").read_text())
    (found,) = (entry for entry in summary["gates"] if entry["rule"] == GATE)
    return dict(found)


THREE = {"a/0": scene(1), "b/0": as_jpeg(scene(1)), "c/0": scene(2)}


def test_a_copy_fails_the_gate_and_is_shown_with_what_it_repeats(toy: Toy) -> None:
    said = run(toy, write(toy, THREE), "--markdown", "r.md", code=1)
    assert "distinct: 2 of 3 outputs repeat that of another case" in said
    assert copies(toy) == {"a/0": "b", "b/0": "a"}
    assert (lines(toy)["c/0"].is_duplicate, lines(toy)["c/0"].of) == (False, None)
    found = gate(toy)
    assert (found["state"], found["n"], round(found["value"], 3)) == ("failed", 3, 0.667)
    assert "Near-duplicates: outputs that repeat that of another case" in said
    assert "### Which outputs repeat another" in (toy.folder / "r.md").read_text()
    assert toy("report", "r").exit_code == 0
    page = (toy.folder / "runs/r/report/index.html").read_text()
    assert "Outputs that repeat another case" in page
    assert page.count("missed-pair") >= 1


def test_different_images_pass(toy: Toy) -> None:
    said = run(toy, write(toy, {f"c{at}/0": scene(at) for at in range(6)}))
    assert copies(toy) == {}
    assert (gate(toy)["state"], gate(toy)["value"]) == ("passed", 0)
    assert "Which outputs repeat another" not in said


def test_copies_of_copies_take_one_comparison_each(toy: Toy) -> None:
    images = {f"c{at}/0": (scene(1), as_jpeg(scene(1)))[at // 2] for at in range(4)}
    said = run(toy, write(toy, images), code=1)
    assert set(copies(toy)) == set(images)
    assert "4 of 4 outputs repeat that of another case; 6 measurements" in said  # 4 signatures, 2 pairs


def test_samples_turns_and_edits_of_one_image_are_no_duplicates(toy: Toy) -> None:
    same = scene(1)
    images = {"a/0": same, "a/1": same, "b/0": scene(2), "b/1": scene(3)}
    run(toy, write(toy, images, samples=2))
    assert copies(toy) == {}
    save(toy, "base", same)
    edits: list[dict[str, Any]] = [{"id": name, "images": ["out/base.png"]} for name in ("x", "y")]
    path = write(toy, {"x/0": same, "y/0": same, "z/0": scene(4)}, cases=[*edits, {"id": "z"}])
    run(toy, path, run_id="edits")
    assert copies(toy, "edits") == {}
    path = write(toy, {"x/0": same, "z/0": same}, cases=[edits[0], {"id": "z"}])
    run(toy, path, run_id="other", code=1)
    assert copies(toy, "other") == {"x/0": "z", "z/0": "x"}


def test_cases_that_use_another_output_are_left_out(toy: Toy) -> None:
    cases: list[dict[str, Any]] = [{"id": "a"}, {"id": "c"}, {"id": "again", "output_of": "a"}]
    run(toy, write(toy, {"a/0": scene(1), "c/0": scene(2)}, cases=cases))
    assert sorted(lines(toy)) == ["a/0", "c/0"]


@pytest.mark.parametrize(("second", "code"), [(255, 1), (0, 0)])
def test_blank_images_are_copies_if_they_have_one_color(toy: Toy, second: int, code: int) -> None:
    blank = np.full((64, 96, 3), 255, np.uint8)
    other = np.full((48, 72, 3), second, np.uint8)
    run(toy, write(toy, {"a/0": blank, "b/0": other}, verdict=["props.blank"]), code=code)


def test_transparency_is_a_part_of_the_image(toy: Toy) -> None:
    alpha = np.full((64, 96, 1), 255, np.uint8)
    alpha[16:48, 16:60] = 0
    cut = np.concatenate([scene(1), alpha], axis=2)
    hidden = np.concatenate([np.where(alpha == 0, scene(9), scene(1)).astype(np.uint8), alpha], axis=2)
    run(toy, write(toy, {"a/0": scene(1), "b/0": cut, "c/0": hidden}), code=1)
    assert copies(toy) == {"b/0": "c", "c/0": "b"}  # they differ only where nobody sees it


def test_other_copy_in_the_same_layout_is_no_duplicate(toy: Toy) -> None:
    first, second = (np.full((128, 256, 3), 240, np.uint8) for _ in range(2))
    first[20:108, 20:120] = second[20:108, 20:120] = scene(1, (100, 88))
    first[40:56, 140:220:8] = 0
    second[40:56, 144:224:8] = 0
    run(toy, write(toy, {"a/0": first, "b/0": second}))
    assert copies(toy) == {}
    loose = {**DISTINCT, "max_worst_window": 1, "max_distance": 0.5, "max_delta_e": 20}
    run(toy, write(toy, {}, cases=[{"id": "a"}, {"id": "b"}], graders=[PROPERTIES, loose]), run_id="loose", code=1)


def test_an_output_that_cannot_be_read_is_null_and_the_run_incomplete_until_it_is_resumed(toy: Toy) -> None:
    path = write(toy, {"a/0": scene(1), "b/0": scene(2), "c/0": scene(3)})
    run(toy, path)
    folder = toy.folder / "runs/r"
    stored = (folder / "duplicates.jsonl").read_text()
    for damaged in (
        stored.replace('"is_duplicate":false', '"is_duplicate":null').replace('"error":null', '"error":"no luck"', 1),
        "\n".join(stored.splitlines()[1:]) + "\n",
        stored.replace(lines(toy)["a/0"].output, "0" * 64),
    ):
        (folder / "duplicates.jsonl").write_text(damaged)
        shown = load_run("r")
        assert (shown.exit_code, shown.summary.duplicates[0].failed) == (3, 1)
    assert "1 output could not be compared with those of other cases" in toy("show", "r").output
    assert toy("run", "--resume", "r").exit_code == 0
    assert load_run("r").exit_code == 0
    assert (folder / "duplicates.jsonl").read_text() == stored


def test_nothing_to_compare_is_not_measured(toy: Toy) -> None:
    path = write(toy, {"a/0": scene(1), "b/0": scene(2)})
    (toy.folder / "out/b/0.png").write_bytes(b"not an image")
    run(toy, path, code=3)
    assert lines(toy)["a/0"].is_duplicate is None
    assert (gate(toy)["state"], gate(toy)["value"]) == ("unmeasured", None)


def test_a_selection_without_pairs_skips_the_gate(toy: Toy) -> None:
    path = write(toy, THREE, gates=[GATE, "pass_rate == 1"])
    run(toy, path, "--case", "a", run_id="one")
    assert gate(toy, "one")["state"] == "skipped"
    run(toy, path, "--grader", "props", run_id="without")
    assert (gate(toy, "without")["state"], lines(toy, "without")) == ("skipped", {})


def test_an_optional_grader_does_not_decide(toy: Toy) -> None:
    run(toy, write(toy, THREE, graders=[PROPERTIES, {**DISTINCT, "optional": True}], gates=PASSING))
    (toy.folder / "runs/r/duplicates.jsonl").unlink()
    assert (load_run("r").exit_code, load_run("r").summary.duplicates[0].failed) == (0, 3)


def test_a_new_image_is_found_on_resume(toy: Toy) -> None:
    path = write(toy, THREE)
    run(toy, path, code=1)
    save(toy, "b/0", scene(5))
    assert toy("run", path, "--resume", "r").exit_code == 0
    assert copies(toy) == {}


def test_grade_finds_them_in_stored_outputs_and_a_scope_limits_them(toy: Toy) -> None:
    run(toy, write(toy, THREE, graders=[PROPERTIES], gates=PASSING))
    assert lines(toy) == {}
    done = toy("grade", "r", "--suite", write(toy, THREE), "--run-id", "g")
    assert done.exit_code == 1, done.output
    assert copies(toy, "g") == {"a/0": "b", "b/0": "a"}
    scoped = write(toy, THREE, graders=[PROPERTIES, {**DISTINCT, "when": {"cases": ["a", "c"]}}])
    run(toy, scoped, run_id="scoped")
    assert sorted(lines(toy, "scoped")) == ["a/0", "c/0"]


def test_measurements_are_cached_also_offline(toy: Toy) -> None:
    path = write(toy, THREE)
    run(toy, path, "--cache", "c", code=1)
    said = run(toy, path, "--cache", "c", "--offline", run_id="again", code=1)
    assert "4 measurements, 4 of them read from the cache" in said
    assert lines(toy, "again") == lines(toy)


def test_shards_are_compared_when_they_are_merged(toy: Toy) -> None:
    path = write(toy, THREE)
    run(toy, path, run_id="whole", code=1)
    parts = [visioneval.run(path, shard=f"{number}/2", run_id=f"s{number}") for number in (1, 2)]
    assert [part.exit_code for part in parts] == [0, 0]
    assert [part.summary.duplicates for part in parts] == [(), ()]
    merged = merge("s1", "s2", run_id="all")
    assert merged.exit_code == 1
    assert lines(toy, "all") == lines(toy, "whole")
    assert merged.summary.duplicates == load_run("whole").summary.duplicates


def test_each_model_run_is_compared_with_itself(toy: Toy) -> None:
    for at, name in enumerate(("a", "b")):
        save(toy, f"{name}/0", scene(at))
        save(toy, f"{name}/n", scene(at))
    models = [{"provider": "files", "label": label, "path": f"out/{{case}}/{label}.png"} for label in ("0", "n")]
    run(toy, write(toy, {}, cases=[{"id": "a"}, {"id": "b"}], models=models))
    assert [(found.model_label, found.outputs) for found in load_run("r").summary.duplicates] == [("0", 2), ("n", 2)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"graders": [PROPERTIES]}, "'duplicate_rate == 0' needs a grader of the type duplicates"),
        ({"cases": [{"id": "a"}]}, "no two cases of this grader can be compared"),
        ({"graders": [PROPERTIES, {**DISTINCT, "max_distance": 3}]}, "max_distance: must be at most 2"),
        ({"verdict": ["distinct"]}, "no grader writes 'distinct'"),
        ({"verdict": ["props", "duplicate_rate == 0"]}, "it counts cells, so it belongs under 'gates'"),
    ],
)
def test_a_suite_in_which_it_cannot_work_is_refused(toy: Toy, changes: dict[str, Any], message: str) -> None:
    done = toy("validate", write(toy, THREE, **changes))
    assert done.exit_code == 2, done.output
    assert message in " ".join(done.output.split())
