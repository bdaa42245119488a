"""Suites over real third-party images, run as a user runs them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from visioneval import Record, Verdict, read_info, read_records
from visioneval.cli import app

pytestmark = pytest.mark.slow

SUITES = Path(__file__).parents[2] / "suites"
Pixels = np.ndarray
CASES = ("poster", "pendant")


def repainted(output: Pixels, base: Pixels, editable: Pixels) -> Pixels:
    """Another background: everything outside the mask in one soft gradient."""
    rows, columns = output.shape[:2]
    shade = np.linspace(90, 200, columns)[None, :, None] * np.ones((rows, 1, 3))
    return np.where(editable[..., None], output, shade.astype(np.uint8))


def patched(output: Pixels, base: Pixels, editable: Pixels) -> Pixels:
    """A 12 x 12 patch far outside the mask in a contrasting flat colour."""
    rows, columns = np.nonzero(editable)
    row = 40 if rows.min() > output.shape[0] - rows.max() else output.shape[0] - 60
    column = 40 if columns.min() > output.shape[1] - columns.max() else output.shape[1] - 60
    changed = output.copy()
    position = changed[row : row + 12, column : column + 12]
    position[:] = 0 if position.mean() > 127 else 255
    return changed


def part_shifted(output: Pixels, base: Pixels, editable: Pixels) -> Pixels:
    """The upper third moved 8 pixels to the right."""
    changed = output.copy()
    third = output.shape[0] // 3
    changed[:third] = np.roll(output[:third], 8, axis=1)
    return np.where(editable[..., None], output, changed)


def unedited(output: Pixels, base: Pixels, editable: Pixels) -> Pixels:
    """The input once more."""
    return base


DAMAGES: dict[str, Callable[[Pixels, Pixels, Pixels], Pixels]] = {
    entry.__name__: entry for entry in (repainted, patched, part_shifted, unedited)
}


def pixels(path: Path) -> Pixels:
    return np.asarray(Image.open(path).convert("RGB"))


def run(suite: Path, out: Path, *flags: str) -> tuple[int, Path]:
    result = CliRunner().invoke(app, ["run", str(suite), "--runs", str(out), "--trust-suite", *flags])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    (folder,) = out.iterdir()
    return result.exit_code, folder


@pytest.fixture(scope="module")
def edits(
    tmp_path_factory: pytest.TempPathFactory, recorded_readings: None
) -> tuple[int, dict[tuple[str, str], Record]]:
    data = SUITES.parent.parent.parent / "shared" / "data" / "edits"
    if not data.is_dir():
        pytest.skip("../shared/data is not here")
    scratch = tmp_path_factory.mktemp("edits")
    entries = []
    for name, damage in DAMAGES.items():
        for case in CASES:
            mask = np.asarray(Image.open(data / f"{case}_mask.png").convert("RGBA"))[..., 3] == 0
            created = damage(pixels(data / f"{case}_output.jpg"), pixels(data / f"{case}_input.jpg"), mask)
            Image.fromarray(created).save(scratch / f"{name}-{case}.png")
        entries.append(f'  - {{provider: files, label: {name}, path: "{scratch}/{name}-{{case}}.png"}}\n')
    text = (SUITES / "real_edits.yaml").read_text(encoding="utf-8")
    text = text.replace("../../../shared/data/edits", str(data)).replace("graders:\n", "".join(entries) + "graders:\n")
    (scratch / "suite.yaml").write_text(text, encoding="utf-8")
    code, folder = run(scratch / "suite.yaml", scratch / "runs")
    return code, {(record.model_label, record.test_id): record for record in read_records(folder)}


def test_real_edits_pass(edits: tuple[int, dict[tuple[str, str], Record]]) -> None:
    _, records = edits
    poster, pendant = records["as_made", "poster"], records["as_made", "pendant"]
    assert poster.verdict is Verdict.PASS
    assert poster.scores["copy"] is True
    assert poster.scores["place"] is True
    assert pendant.verdict is Verdict.PASS
    assert pendant.skipped_rules == ("copy",)


def test_each_kind_of_damage_fails_the_expected_rule(edits: tuple[int, dict[tuple[str, str], Record]]) -> None:
    """In one test, as workers that share the cells of a run would each run the suite."""
    code, records = edits
    assert code == 1
    for damage, case in product(DAMAGES, CASES):
        record = records[damage, case]
        assert record.verdict is Verdict.FAIL, record.cell
        assert "place" in record.failed_rules, record.cell
        assert record.artifact_path is not None, record.cell
        inside = record.scores["place.changed_inside"]
        assert isinstance(inside, float), record.cell
        assert (inside < 0.01) == (damage == "unedited"), record.cell
    unedited_poster = records["unedited", "poster"]
    assert unedited_poster.failed_rules == ("copy", "place")
    assert 'forbidden "TRAIN"' in unedited_poster.reasons["copy"]


def test_real_generations_are_two_cases_by_four_model_runs(shared_data: Path, tmp_path: Path) -> None:
    code, folder = run(SUITES / "real_generations.yaml", tmp_path / "runs")
    records = list(read_records(folder))
    assert code == 0
    assert [entry.label for entry in read_info(folder).suite.models] == ["dalle3", "deepfloyd", "midjourney", "sdxl"]
    assert sorted({record.test_id for record in records}) == ["cats", "dogs"]
    assert len(records) == 8
    sizes = {(record.width, record.height) for record in records if record.model_label != "deepfloyd"}
    assert sizes == {(1024, 1024)}
    assert {(r.width, r.height) for r in records if r.model_label == "deepfloyd"} == {(256, 256)}
