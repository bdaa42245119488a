"""The grader ``diversity``: how much the samples of one case on one model run differ."""

from __future__ import annotations

import json
from io import BytesIO
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from toys import Toy

import visioneval
from visioneval import GraderError, Output, RunFormatError, load_run, merge
from visioneval.graders.pixels import DiversityGrader
from visioneval.graders.pixels.reference import Diversity, measure_distance
from visioneval.records.between_cells import CaseDiversity, read_diversity, update_diversity

pytestmark = pytest.mark.slow

SPREAD: dict[str, Any] = {"key": "spread", "type": "diversity"}
PROPERTIES: dict[str, Any] = {"key": "props", "type": "properties"}
Pixels = NDArray[np.uint8]


def scene(seed: int, size: tuple[int, int] = (96, 64)) -> Pixels:
    """An image with some structure, ``(height, width, 3)``; another ``seed`` gives an unrelated one."""
    small = np.random.default_rng(seed).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(small).resize(size, Image.Resampling.BICUBIC))


def save(path: Path, pixels: Pixels) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


class TestDistance:
    """The distance of two images."""

    def test_identical_images_have_none(self) -> None:
        found = measure_distance(scene(1), scene(1))
        assert (found.distance, found.delta_e) == (0, 0)

    def test_unrelated_images_are_far_apart_and_a_copy_is_near(self) -> None:
        assert measure_distance(scene(1), scene(2)).distance > 0.6
        assert measure_distance(scene(1), scene(2)).delta_e > 10
        resized = np.asarray(Image.fromarray(scene(1)).resize((48, 32), Image.Resampling.LANCZOS))
        assert measure_distance(scene(1), resized).distance < 0.05

    def test_real_images_of_one_prompt_differ_and_a_copy_does_not(self, shared_data: Path) -> None:
        folder = shared_data / "generations"
        with Image.open(folder / "cats_midjourney.jpg") as image:
            small = image.convert("RGB").resize((512, 512))
        with Image.open(folder / "cats_sdxl.jpg") as image:
            other = image.convert("RGB").resize((512, 512))
        buffer = BytesIO()
        small.save(buffer, "JPEG", quality=60)
        copy = measure_distance(np.asarray(small), np.asarray(Image.open(buffer)))
        assert (copy.distance < 0.1, copy.delta_e < 3) == (True, True)
        found = measure_distance(np.asarray(small), np.asarray(other))
        assert (found.distance > 0.4, found.delta_e > 15) == (True, True)

    def test_color_alone_is_seen_by_delta_e(self) -> None:
        grey = np.full((32, 32, 3), 120, dtype=np.uint8)
        red = np.full((32, 32, 3), (200, 86, 86), dtype=np.uint8)  # of about the same luma
        found = measure_distance(grey, red)
        assert found.distance < 0.01
        assert found.delta_e > 20

    def test_transparency_is_a_part_of_the_image(self) -> None:
        opaque = scene(1)
        alpha = np.full((*opaque.shape[:2], 1), 255, dtype=np.uint8)
        alpha[16:48, 16:48] = 0
        cut = np.concatenate([opaque, alpha], axis=2)
        assert measure_distance(opaque, cut).delta_e > 1
        hidden = np.concatenate([scene(2), np.zeros_like(alpha)], axis=2)
        assert measure_distance(hidden, hidden[::-1]).distance == 0  # both fully transparent

    def test_the_order_does_not_matter(self, tmp_path: Path) -> None:
        save(tmp_path / "a.png", scene(1))
        save(tmp_path / "b.png", scene(2, (48, 48)))
        a, b = output(tmp_path / "a.png"), output(tmp_path / "b.png")
        grader = Diversity(DiversityGrader(**SPREAD))
        measures = grader.measure(a, b), grader.measure(b, a)
        assert measures[0].files == measures[1].files == {"base": a.path, "other": b.path}
        assert measures[0].run() == measures[1].run()

    def test_a_file_that_changed_or_is_missing_is_not_measured(self, tmp_path: Path) -> None:
        save(tmp_path / "a.png", scene(1))
        save(tmp_path / "b.png", scene(2))
        measure = Diversity(DiversityGrader(**SPREAD)).measure(output(tmp_path / "a.png"), output(tmp_path / "b.png"))
        save(tmp_path / "b.png", scene(3))
        with pytest.raises(GraderError, match=r"^b\.png: was changed after it was generated"):
            measure.run()
        (tmp_path / "b.png").unlink()
        with pytest.raises(GraderError, match=r"^b\.png: cannot be read"):
            measure.run()


def output(path: Path) -> Output:
    from visioneval.media.images import sha256

    with Image.open(path) as image:
        return Output(path, sha256(path.read_bytes()), "image/png", *image.size)


def write(toy: Toy, *cases: dict[str, Any], samples: int = 3, **changes: Any) -> Path:
    """Existing outputs of the model ``m``: ``same`` has one image in all samples, all others differ."""
    cases = cases or ({"id": "same"}, {"id": "other"})
    for at, case in enumerate(cases):
        for sample in range(samples):
            path = toy.folder / f"out/{case['id']}/{sample}.png"
            if not path.exists():
                save(path, scene(0 if case["id"] == "same" else 100 * at + sample))
    known = {
        "models": [{"provider": "files", "label": "m", "path": "out/{case}/{sample}.png"}],
        "graders": [PROPERTIES, SPREAD],
        "verdict": ["props"],
        "samples": samples,
    }
    return toy.write(*cases, **{**known, **changes})


def run(toy: Toy, path: Path, *arguments: str, run_id: str = "r", code: int = 0) -> str:
    done = toy("run", path, "--run-id", run_id, *arguments)
    assert done.exit_code == code, done.output
    return str(done.output)


def lines(toy: Toy, run_id: str = "r") -> dict[tuple[str, str], CaseDiversity]:
    return {(line.test_id, line.model_label): line for line in read_diversity(toy.folder / "runs" / run_id)}


def finding(toy: Toy, run_id: str = "r") -> dict[str, Any]:
    (found,) = json.loads((toy.folder / "runs" / run_id / "summary.json").read_text())["diversity"]
    return dict(found)


def test_the_mean_over_pairs_is_stored_and_summarized_over_cases(toy: Toy) -> None:
    said = run(toy, write(toy))
    assert "spread: 2 of 2 sets of samples compared; 3 pairs measured" in said  # identical files need no measuring
    found = lines(toy)
    assert (found["same", "m"].distance, found["same", "m"].delta_e) == (0, 0)
    pairs = [measure_distance(*map(scene, pair)) for pair in combinations((100, 101, 102), 2)]
    other = found["other", "m"]
    assert other.distance == pytest.approx(sum(pair.distance for pair in pairs) / 3, abs=0.02)
    assert other.delta_e == pytest.approx(sum(pair.delta_e for pair in pairs) / 3, abs=0.5)
    records = sorted(load_run("r").records, key=lambda record: record.sample_index)
    assert other.outputs == tuple(record.artifact_sha256 for record in records if record.test_id == "other")
    mean = finding(toy)["distance"]
    assert (mean["n"], mean["cases"], mean["unmeasured"]) == (2, 2, 0)
    assert mean["value"] == pytest.approx((other.distance or 0) / 2)
    assert "2 of 2" in said
    assert "distance (1 - SSIM)" in said


def test_one_sample_is_not_measured_and_the_run_says_so(toy: Toy) -> None:
    said = run(toy, write(toy, samples=1))
    assert "spread: 0 of 2 sets of samples compared, 2 with fewer than two images" in said
    assert lines(toy) == {}
    assert (finding(toy)["distance"]["value"], finding(toy)["distance"]["unmeasured"]) == (None, 2)
    assert "0 of 2" in said


def test_failed_samples_are_left_out(toy: Toy) -> None:
    path = write(toy)
    (toy.folder / "out/other/1.png").write_bytes(b"not an image")
    (toy.folder / "out/same/0.png").write_bytes(b"not an image")
    (toy.folder / "out/same/2.png").write_bytes(b"not an image")
    run(toy, path, code=3)
    assert {key: len(line.outputs) for key, line in lines(toy).items()} == {("other", "m"): 2}
    assert finding(toy)["distance"]["unmeasured"] == 1
    assert finding(toy)["failed"] == 0


def test_selection_and_scope(toy: Toy) -> None:
    path = write(
        toy, {"id": "same"}, {"id": "other", "tags": ["x"]}, graders=[PROPERTIES, {**SPREAD, "when": {"tags": ["x"]}}]
    )
    run(toy, path)
    assert list(lines(toy)) == [("other", "m")]
    run(toy, path, "--grader", "props", run_id="no")
    assert lines(toy, "no") == {}
    assert load_run("no").summary.diversity == ()
    run(toy, path, "--case", "same", run_id="none")
    assert lines(toy, "none") == {}
    assert load_run("none").exit_code == 0


def test_a_regenerated_sample_changes_the_figure_on_resume(toy: Toy) -> None:
    path = write(toy)
    run(toy, path)
    before = lines(toy)
    save(toy.folder / "out/same/1.png", scene(7))
    done = toy("run", path, "--resume", "r")
    assert done.exit_code == 0, done.output
    after = lines(toy)
    assert before["same", "m"].distance == 0 < (after["same", "m"].distance or 0)
    assert after["other", "m"] == before["other", "m"]


def test_images_that_were_not_compared_make_the_run_incomplete_until_it_is_resumed(toy: Toy) -> None:
    run(toy, write(toy))
    folder = toy.folder / "runs/r"
    kept = lines(toy)["other", "m"]
    for changes in (
        {"test_id": "elsewhere"},
        {"outputs": kept.outputs[::-1]},
        {"distance": None, "delta_e": None, "error": "no such luck"},
    ):
        (folder / "diversity.jsonl").unlink()
        update_diversity(folder, [kept.model_copy(update=changes)])
        shown = load_run("r")
        assert (shown.exit_code, shown.summary.diversity[0].failed) == (3, 1 + 1)
    assert "2 sets of samples could not be compared" in toy("show", "r").output
    assert toy("run", "--resume", "r").exit_code == 0
    assert load_run("r").exit_code == 0
    assert lines(toy)["other", "m"] == kept


def test_an_optional_grader_does_not_decide(toy: Toy) -> None:
    run(toy, write(toy, graders=[PROPERTIES, {**SPREAD, "optional": True}]))
    (toy.folder / "runs/r/diversity.jsonl").unlink()
    assert (load_run("r").exit_code, load_run("r").summary.diversity[0].failed) == (0, 2)


def test_grade_measures_stored_outputs(toy: Toy) -> None:
    run(toy, write(toy, graders=[PROPERTIES]))
    assert lines(toy) == {}
    done = toy("grade", "r", "--suite", write(toy), "--run-id", "g")
    assert done.exit_code == 0, done.output
    assert sorted(case for case, _ in lines(toy, "g")) == ["other", "same"]
    assert finding(toy, "g")["distance"]["n"] == 2


def test_measurements_are_cached_also_offline(toy: Toy) -> None:
    path = write(toy)
    run(toy, path, "--cache", "c")
    for arguments in (["--cache", "c"], ["--cache", "c", "--offline"]):
        said = run(toy, path, *arguments, run_id=f"again{len(arguments)}")
        assert "3 pairs measured, 3 of them read from the cache" in said
        assert lines(toy, f"again{len(arguments)}") == lines(toy)


def test_shards_are_united(toy: Toy) -> None:
    path = write(toy)
    run(toy, path, run_id="whole")
    parts = [visioneval.run(path, shard=f"{number}/2", run_id=f"s{number}") for number in (1, 2)]
    assert [part.exit_code for part in parts] == [0, 0]
    merged = merge("s1", "s2", run_id="all")
    assert merged.exit_code == 0
    assert lines(toy, "all") == lines(toy, "whole")
    assert merged.summary.diversity == load_run("whole").summary.diversity


def test_calls_with_several_images_and_model_runs(toy: Toy) -> None:
    params = {"size": "128x128"}
    models = [{"provider": "mock", "label": label, "params": {**params, "seed": at}} for at, label in enumerate("ab")]
    run(toy, write(toy, {"id": "x", "prompt": "a red boat"}, models=models))
    found = lines(toy)
    assert list(found) == [("x", "a"), ("x", "b")]
    labels = [one["model_label"] for one in toy.summary["diversity"]]
    assert labels == ["a", "b"]
    assert load_run("r@b").summary.diversity[0].model_label == "b"


def test_reports_contain_it(toy: Toy) -> None:
    run(toy, write(toy), "--markdown", "r.md")
    assert "### Diversity" in (toy.folder / "r.md").read_text()
    assert toy("report", "r").exit_code == 0
    assert "<h2>Diversity: mean distance" in (toy.folder / "runs/r/report/index.html").read_text()
    (toy.folder / "runs/r/diversity.jsonl").unlink()
    toy("report", "r")
    assert "sets of samples could not be compared" in (toy.folder / "runs/r/report/index.html").read_text()


def test_it_is_never_a_metric(toy: Toy) -> None:
    done = toy("validate", write(toy, verdict=["spread >= 0.1"]))
    assert done.exit_code == 2
    assert "spread" in done.output


def test_a_damaged_line_is_named_and_a_link_out_of_the_run_is_refused(toy: Toy) -> None:
    run(toy, write(toy))
    path = toy.folder / "runs/r/diversity.jsonl"
    whole = path.read_text()
    first = json.loads(whole.splitlines()[0])
    changes: list[dict[str, Any]] = [{"distance": 3}, {"delta_e": -1}, {"outputs": "x"}]
    for line in ("[", *(json.dumps({**first, **change}) for change in changes), "{}"):
        path.write_text(f"{whole}{line}\n")
        with pytest.raises(RunFormatError, match="diversity.jsonl:3: " + "no schema_version" * (line == "{}")):
            read_diversity(path.parent)
    shown = toy("show", "r")
    assert (shown.exit_code, "diversity.jsonl:3: no schema_version" in shown.stderr) == (2, True), shown.output
    path.rename(toy.folder / "moved.jsonl")
    path.symlink_to(toy.folder / "moved.jsonl")
    shown = toy("show", "r")
    assert (shown.exit_code, "is a link to a file outside the run" in shown.stderr) == (2, True)


def test_videos_and_cases_without_outputs_of_their_own_are_not_compared(toy: Toy) -> None:
    path = write(toy, {"id": "same"}, {"id": "looked", "output_of": "same"})
    run(toy, path)
    assert list(lines(toy)) == [("same", "m")]
