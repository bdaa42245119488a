"""Rows as cases and as finished images, and every row that cannot be one, on its line."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite_text import suite

from visioneval import SuiteError, TestCase
from visioneval.suite.load import LoadedSuite, load_suite
from visioneval.suite.loading.datasets import Variables
from visioneval.suite.loading.row_cases import RowReader, prompt_id
from visioneval.suite.loading.tables import read_rows
from visioneval.suite.runs import dataset_outputs, model_runs
from visioneval.templates.render import render

Problems = Callable[..., list[str]]
Load = Callable[..., LoadedSuite]


def fed(fields: str, name: str = "d.jsonl", **sections: str) -> str:
    return suite(cases=f"cases: [{{dataset: {{path: {name}, fields: {{{fields}}}}}}}]", **sections)


def paths(result: Any) -> dict[str, list[str]]:
    """The paths of finished images, by label or case."""
    return {key: [image.path for image in outputs] for key, outputs in result.items()}


def cases(load: Load, tmp_path: Path, fields: str, text: str, name: str = "d.jsonl") -> list[TestCase]:
    (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    return list(load(fed(fields, name)).suite.cases)


def test_json_lines_become_cases(load: Load, tmp_path: Path) -> None:
    rows = '{"i": "a", "p": "x", "t": ["u", "v"]}\n\n{"i": 5, "p": "y", "t": "u", "deep": {"k": [1, null]}}\r\n'
    first, second = cases(load, tmp_path, "id: i, prompt: p, tags: t, metadata.k: deep", rows)
    assert (first.id, first.prompt, first.tags, first.metadata) == ("a", "x", ("u", "v"), {})
    assert (second.id, second.tags, second.metadata) == ("5", ("u",), {"k": {"k": [1, None]}})


def test_tables_become_cases(load: Load, tmp_path: Path) -> None:
    table = '\ufeffi,p,t,f,r\r\na,"two\nlines, ""quoted""",u,true,\r\n\r\nb,y,"[""u"", ""v""]",,"[""SALE""]"\r\n'
    first, second = cases(
        load, tmp_path, "id: i, prompt: p, tags: t, expect.refusal: f, expect.text.required: r", table, "d.csv"
    )
    assert (first.prompt, first.tags, first.expect.refusal, first.expect.text) == (
        'two\nlines, "quoted"',
        ("u",),
        True,
        None,
    )
    assert (second.tags, second.expect.refusal) == (("u", "v"), False)
    assert second.expect.text is not None
    assert second.expect.text.required == ("SALE",)


def test_tabs_separate_a_tsv(load: Load, tmp_path: Path) -> None:
    assert [case.prompt for case in cases(load, tmp_path, "id: i, prompt: p", "i\tp\na\tx, y\n", "d.tsv")] == ["x, y"]


def test_masks_and_images_are_relative_to_the_dataset(
    load: Load, tmp_path: Path, save_image: Callable[..., Path], mask: Callable[..., Path]
) -> None:
    save_image("data/a.png")
    mask().rename(tmp_path / "data" / "m.png")
    row = {"i": "a", "p": "x", "b": "a.png", "m": "m.png"}
    (tmp_path / "data" / "d.jsonl").write_text(json.dumps(row))
    loaded = load(fed("id: i, prompt: p, images: b, masks.editable: m", "data/d.jsonl"))
    case = loaded.suite.cases[0]
    assert case.images[0].path == "data/a.png"
    assert case.masks is not None
    assert case.masks.editable == "data/m.png"


def test_text_of_a_dataset_is_no_template(load: Load, tmp_path: Path) -> None:
    (case,) = cases(load, tmp_path, "id: i, prompt: p", '{"i": "a", "p": "100% {{ brand }} {% x"}\n')
    assert render(case.prompt, {}) == "100% {{ brand }} {% x"


def test_rows_that_share_an_id_and_a_model_are_samples(load: Load, tmp_path: Path) -> None:
    rows = [("a", "x", "1.png", "m"), ("a", "x", "2.png", "m"), ("a", "x", "3.png", "n"), ("b", "y", "4.png", "m")]
    lines = "".join(json.dumps(dict(zip("ipfm", row, strict=True))) + "\n" for row in rows)
    result = cases(load, tmp_path, "id: i, prompt: p, output: f, model: m", lines)
    assert [paths(case.outputs) for case in result] == [{"m": ["1.png", "2.png"], "n": ["3.png"]}, {"m": ["4.png"]}]
    assert result[0].outputs["n"][0].row == "d.jsonl:3"


def test_rows_without_an_id_are_named_by_their_prompt(load: Load, tmp_path: Path) -> None:
    result = cases(
        load, tmp_path, "prompt: p, output: f", '{"p": "A red fox!", "f": "1.png"}\n{"p": "日本", "f": "2.png"}\n'
    )
    assert [case.id for case in result] == [prompt_id("A red fox!"), prompt_id("日本")]
    assert result[0].id.startswith("a_red_fox_")
    assert result[1].id.startswith("prompt_")
    assert paths(result[0].outputs) == {"d": ["1.png"]}  # the file name stands for their model


def test_an_emoji_in_escapes_is_text(load: Load, tmp_path: Path) -> None:
    assert cases(load, tmp_path, "id: i, prompt: p", '{"i": "a", "p": "\\ud83d\\ude00"}')[0].prompt == "😀"


def _has_text(cells: Mapping[str, str]) -> bool:
    return any(cell.strip() for cell in cells.values())


ROWS = st.lists(
    st.dictionaries(st.sampled_from(["i", "p", "t"]), st.text(st.characters(codec="utf-8"), max_size=12)),
    min_size=1,
    max_size=4,
)


@given(ROWS.filter(lambda rows: any(map(_has_text, rows))))
def test_tables_and_json_lines_load_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, str]]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    with (folder / "h.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["i", "p", "t"], restval="")
        writer.writeheader()
        writer.writerows(rows)
    (folder / "h.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    reader = RowReader({"id": "i", "prompt": "p", "region": "t"}, (), Variables({}))

    def read(name: str) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
        rows = [row for row in read_rows(folder / name, name) if _has_text(row.cells)]  # tables skip the others
        return [(reader.identity(row), reader.flat(row)) for row in rows]

    assert read("h.csv") == read("h.jsonl")


@given(st.binary(max_size=80))
def test_any_bytes_load_as_rows_or_as_problems_with_positions(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    for name in ("b.csv", "b.jsonl", "b.json"):
        path = tmp_path_factory.getbasetemp() / name
        path.write_bytes(data)
        try:
            read_rows(path, name)
        except SuiteError as error:
            assert all(problem.line >= 1 for problem in error.problems)


# --- finished images by {provider: files}


def outputs(
    load: Load, tmp_path: Path, fields: str, rows: list[dict[str, Any]], more: str = "", **sections: str
) -> Any:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "f.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    entry = f"{{provider: files, dataset: {{path: out/f.jsonl, fields: {{{fields}}}}}{more}}}"
    loaded = load(suite(models=f"models: [{entry}]", **sections))
    runs = model_runs(loaded.suite.models[0], loaded.suite, loaded.folder, lambda run: [])
    return {run.label: paths(dataset_outputs(run, loaded.suite, loaded.folder)) for run in runs}


def test_rows_match_cases_by_id_and_models_by_label(load: Load, tmp_path: Path) -> None:
    rows = [
        {"i": "one", "f": "1.png", "m": "b"},
        {"i": "one", "f": "2.png", "m": "a"},
        {"i": "one", "f": "3.png", "m": "b"},
    ]
    assert outputs(load, tmp_path, "output: f, id: i, model: m", rows) == {
        "b": {"one": ["out/1.png", "out/3.png"]},
        "a": {"one": ["out/2.png"]},
    }


def test_rows_without_an_id_match_cases_by_rendered_prompt(load: Load, tmp_path: Path) -> None:
    rows = [{"p": "a red tree", "f": "1.png"}, {"p": "something else", "f": "2.png"}]
    result = outputs(
        load,
        tmp_path,
        "output: f, prompt: p",
        rows,
        cases="cases: [{id: one, prompt: 'a {{ colour }} tree'}]\nvars: {colour: red}",
    )
    assert result == {"f": {"one": ["out/1.png"]}}


def test_one_label_can_be_selected(load: Load, tmp_path: Path) -> None:
    rows = [{"i": "one", "f": "1.png", "m": "b"}, {"i": "one", "f": "2.png", "m": "a"}]
    assert list(outputs(load, tmp_path, "output: f, id: i, model: m", rows, ", label: a")) == ["a"]


def test_the_real_generations_are_four_models_over_two_prompts(
    shared_data: Path, write_suite: Callable[..., Path]
) -> None:
    rows = read_rows(shared_data / "generations" / "dataset.jsonl", "dataset.jsonl")
    columns = set(rows[0].cells)
    assert len(rows) == 8
    parts = {"prompt": "prompt", "output": "image", "model": "model"}
    fields = {key: next(c for c in columns if part in c) for key, part in parts.items()}
    source = f"{{path: {shared_data}/generations/dataset.jsonl, fields: {json.dumps(fields)}}}"
    path = write_suite(suite(cases=f"cases: [{{dataset: {source}}}]", models="models: [{provider: files}]"))
    loaded = load_suite(path, trust=True, run_labels=lambda run: [])
    assert len(loaded.suite.cases) == 2
    runs = model_runs(loaded.suite.models[0], loaded.suite, loaded.folder, lambda run: [])
    assert len(runs) == 4
    for run in runs:
        result = dataset_outputs(run, loaded.suite, loaded.folder)
        assert all((loaded.folder / path).is_file() for item in paths(result).values() for path in item)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"i": ' + "9" * 5000 + "}", "1:1: a number has more than 100 digits: put it in quotes"),
        ('{"i": ' + "[" * 100_000, "1:1: nested more than 60 levels deep"),
    ],
)
def test_huge_values_of_a_row(problems: Problems, row: str, message: str) -> None:
    assert problems(fed("id: i, prompt: i"), {"d.jsonl": row + "\n"}) == [f"d.jsonl:{message}"]
    assert problems(fed("id: i, prompt: i", "d.json"), {"d.json": f"[{row}"}) == [f"d.json:{message}"]


def test_a_folder_without_metadata_is_no_dataset(problems: Problems, tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    entry = "{path: folder.csv, fields: {id: i}}"
    assert problems(suite(cases=f"cases: [{{dataset: {entry}}}]")) == [
        "suite.yaml:2:26: dataset: folder.csv: the folder has no metadata.jsonl:"
        " add one with the column file_name, or name a file"
    ]
