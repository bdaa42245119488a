"""Datasets in the formats in which they are published, and every file that cannot be read, with its line."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from suite_text import suite
from toys import Toy

import visioneval as ve
from visioneval import TestCase
from visioneval.suite.load import LoadedSuite
from visioneval.suite.loading import tables

pytestmark = pytest.mark.slow

Problems = Callable[..., list[str]]
Load = Callable[..., LoadedSuite]
FIELDS = "fields: {id: id, prompt: prompt}"


def fed(dataset: str, **sections: str) -> str:
    return suite(cases=f"cases: [{{dataset: {{{dataset}}}}}]", **sections)


@pytest.fixture
def cases(load: Load, tmp_path: Path) -> Callable[..., list[TestCase]]:
    """``cases(dataset, files={name: text})``: the cases of a suite with one dataset."""

    def loaded(dataset: str, files: dict[str, str], **options: Any) -> list[TestCase]:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8", newline="")
        return list(load(fed(dataset), **options).suite.cases)

    return loaded


def ids(loaded: list[TestCase]) -> list[tuple[str, str]]:
    return [(case.id, case.prompt) for case in loaded]


EXPECTED = [("a", "a tree"), ("b", "a bush")]
TEXTS = {
    "d.json": '[{"id": "a", "prompt": "a tree"},\n {"id": "b", "prompt": "a bush"}]',
    "keyed.json": '{"a": {"id": "a", "prompt": "a tree"},\n "b": {"id": "b", "prompt": "a bush"}}',
    "bom.json": '\ufeff [ {"id":"a","prompt":"a tree"} , {"id":"b","prompt":"a bush"} ] \n',
    "d.ndjson": '{"id": "a", "prompt": "a tree"}\n\n{"id": "b", "prompt": "a bush"}\n',
    "d.csv": "id,prompt\na,a tree\nb,a bush\n",
    "d.tsv": "id\tprompt\na\ta tree\nb\ta bush\n",
}


@pytest.mark.parametrize("name", TEXTS)
def test_each_text_format(cases: Callable[..., list[TestCase]], name: str) -> None:
    assert ids(cases(f"path: {name}, {FIELDS}", TEXTS)) == EXPECTED


def test_an_object_by_id_gives_the_ids(cases: Callable[..., list[TestCase]]) -> None:
    files = {"d.json": '{"a": {"p": "a tree"}, "b": {"p": "a bush"}}', "t.json": '{"a": "a tree", "b": "a bush"}'}
    assert ids(cases("path: d.json, fields: {prompt: p}", files)) == EXPECTED
    assert ids(cases("path: t.json, fields: {id: _key, prompt: _value}", files)) == EXPECTED
    texts = {"x.json": '["a tree", "a bush"]'}
    assert ids(cases("path: x.json, fields: {id: 'p{{ row._row }}', prompt: _value}", texts)) == [
        ("p1", "a tree"),
        ("p2", "a bush"),
    ]


def test_any_separator(cases: Callable[..., list[TestCase]]) -> None:
    files = {"d.csv": 'id;prompt\na;a tree\nb;"a bush"\n', "p.csv": "id|prompt\na|a tree\nb|a bush\n"}
    assert ids(cases(f"path: d.csv, separator: ';', {FIELDS}", files)) == EXPECTED
    assert ids(cases(f"path: p.csv, separator: '|', {FIELDS}", files)) == EXPECTED


def test_a_folder_of_images(load: Load, tmp_path: Path, save_image: Callable[..., Path]) -> None:
    save_image("shots/one.png")
    (tmp_path / "shots" / "metadata.jsonl").write_text('{"file_name": "one.png", "text": "make it blue"}\n')
    text = fed(
        "path: shots, fields: {id: id, prompt: text, images: file_name}".replace("id: id, ", ""),
    )
    (case,) = load(text).suite.cases
    assert (case.prompt, case.images[0].path) == ("make it blue", "shots/one.png")
    outputs = "models: [{provider: files, dataset: {path: shots, fields: {prompt: text, output: file_name}}}]"
    loaded = load(suite(cases="cases: [{id: one, prompt: make it blue}]", models=outputs))
    run = loaded.suite.models[0]
    labels = [label for label, _ in run.model_runs(loaded.suite.cases, loaded.folder, lambda name: [])]
    assert labels == ["shots"]
    found = run.existing_outputs("shots", loaded.suite.cases, {}, loaded.folder)
    assert [entry.params["path"] for entry in found["one"] if entry] == ["shots/one.png"]


def test_parquet(cases: Callable[..., list[TestCase]], tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {
        "id": ["a", "b"],
        "prompt": ["a tree", "a bush"],
        "meta": [{"tags": ["x", "y"], "n": 1}, {"tags": [], "n": None}],
        "nan": [float("nan"), 2.5],
        "bytes": [b"1", b"2"],
    }
    parquet.write_table(arrow.table(columns), tmp_path / "d.parquet")
    loaded = cases(f"path: d.parquet, {FIELDS[:-1]}, tags: meta.tags, metadata.n: meta.n, metadata.nan: nan}}", {})
    assert ids(loaded) == EXPECTED
    assert [(case.tags, case.metadata) for case in loaded] == [(("x", "y"), {"n": 1}), ((), {"nan": 2.5})]


def test_bad_parquet(problems: Problems, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = arrow.table(
        {"id": ["a", "b"], "prompt": ["x", "y"], "n": [float("nan"), float("inf")], "image": [b"", b""]}
    )
    parquet.write_table(table, tmp_path / "d.parquet")
    text = fed("path: d.parquet, fields: {id: id, prompt: prompt, metadata.n: n}")
    assert problems(text) == ["d.parquet:2:1: n: inf is not a valid value: write null or text"]
    monkeypatch.setattr(tables, "MAX_DECOMPRESSED", 10)
    assert problems(text) == ["d.parquet:1:1: over the limit of 10 bytes when decompressed"]
    (line,) = problems(text, {"d.parquet": b"PAR1 is not enough"})
    assert line.startswith("d.parquet:1:1: not a Parquet file that can be read: ")


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is not None, reason="pyarrow is installed")
def test_parquet_without_the_extra(problems: Problems) -> None:
    (line,) = problems(fed(f"path: d.parquet, {FIELDS}"), {"d.parquet": b"PAR1"})
    assert line == (
        "suite.yaml:2:26: dataset: d.parquet: Parquet needs an extra:"
        " run pip install -e '.[parquet]' in a checkout of visioneval"
    )


SEPARATED = {
    "sep": "sep=;\nid;prompt\na;a tree\nb;a bush\n",
    "in capitals": "SEP=;\nid;prompt\na;a tree\nb;a bush\n",
    "of Excel": '\ufeffsep=;\r\nid;prompt\r\na;"a tree"\r\nb;a bush\r\n',
    "tab": "sep=\t\nid\tprompt\na\ta tree\nb\ta bush\n",
    "tab in letters": "sep=\\t\nid\tprompt\na\ta tree\nb\ta bush\n",
    "bar": "sep=|\nid|prompt\na|a tree\nb|a bush\n",
    "usual": "sep=,\nid,prompt\na,a tree\nb,a bush\n",
    "in quotes": '"sep=;"\nid;prompt\na;a tree\nb;a bush\n',
    "no sign": "sep=\nid,prompt\na,a tree\nb,a bush\n",
    "saved again": "sep=;;\nid;prompt\na;a tree\nb;a bush\n",
    "blank rows": "\n,\n id ,\n".replace(" id ,", "id,prompt") + "a,a tree\n,\n  , \t\nb,a bush\n,\n",
    "blank rows of many cells": "id,prompt\na,a tree\n,,,,\n\nb,a bush\n\u00a0,\n",
    "blank rows in quotes": 'id,prompt\n"",""\na,a tree\n"\n"\nb,a bush\n',
    "columns without a name": "id,prompt,,\na,a tree,,\n,,,\nb,a bush,,\n",
    "blank rows after sep": "sep=;\n\n;\nid;prompt\n;;\na;a tree\nb;a bush",
}


@pytest.mark.parametrize("name", SEPARATED)
def test_the_separator_in_the_file_and_blank_rows(cases: Callable[..., list[TestCase]], name: str) -> None:
    for file in (
        ("d.csv", "d.tsv") if "blank" not in name and "columns" not in name and name != "no sign" else ("d.csv",)
    ):
        assert ids(cases(f"path: {file}, {FIELDS}", {file: SEPARATED[name]})) == EXPECTED


def test_the_separator_of_the_suite_counts(cases: Callable[..., list[TestCase]]) -> None:
    text = "sep=,\nid;prompt\na;a tree\nb;a bush\n"
    assert ids(cases(f"path: d.csv, separator: ';', {FIELDS}", {"d.csv": text})) == EXPECTED


def test_the_number_of_a_row_leaves_out_blank_rows(cases: Callable[..., list[TestCase]]) -> None:
    (one, two) = cases("path: d.csv, fields: {id: 'r{{ row._row }}', prompt: p}", {"d.csv": "p,q\nx,\n,\n,,,\ny,\n"})
    assert (one.id, two.id) == ("r1", "r2")


@pytest.mark.parametrize(
    ("fields", "place", "column"),
    [
        ("id: id, prompt: image", "62", "image"),
        ("id: id, prompt: image.path", "62", "image"),
        ("id: id, prompt: raw, criteria: p", "62", "raw"),
        ("id: id, prompt: p, images: image", "73", "image"),
        ("id: id, prompt: p, output: image", "73", "image"),
        ("id: id, prompt: p, metadata.x: raw", "77", "raw"),
        ("id: id, prompt: p, tags: [p, raw]", "75", "raw"),
        ('id: id, prompt: "See {{ row.raw }}"', "62", "raw"),
        ("id: id, prompt: \"See {{ row['image'].path }}\"", "62", "image"),
    ],
)
def test_a_binary_column_of_parquet_is_named_as_such(
    problems: Problems, tmp_path: Path, fields: str, place: str, column: str
) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    image = [{"bytes": b"1", "path": "a.png"}]
    table = arrow.table({"id": ["a"], "p": ["x"], "raw": [b"1"], "image": image})
    parquet.write_table(table, tmp_path / "d.parquet")
    (line,) = problems(fed(f"path: d.parquet, fields: {{{fields}}}"))
    what = "save them as files, and name a column with their paths as 'images' or 'output'"
    message = f"the column {column!r} holds images or other binary data, which are not read yet: {what}"
    if fields.endswith("image.path"):  # which is text
        what = what.replace("a column", "another column")
        message = f"'image.path' is not read, as its column 'image' holds images or other binary data: {what}"
    assert line == f"suite.yaml:2:{place}: {message}"
    (line,) = problems(fed("path: d.parquet, fields: {id: id, prompt: images}"))
    assert line == "suite.yaml:2:62: the dataset has no column 'images' (known: id, p)"
    files = "models: [{provider: files, dataset: {path: d.parquet, fields: {id: id, output: raw}}}]"
    assert "the column 'raw' holds images" in problems(suite(models=files))[0]


def test_a_binary_column_of_a_join_is_named_as_such(problems: Problems, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table({"id": ["a"], "raw": [b"1"]}), tmp_path / "j.parquet")
    files = {"d.csv": "id,p\na,x\n"}
    joined = "path: d.csv, join: {path: j.parquet, on: id, as: o}, fields: {id: id, prompt: o.raw}"
    (line,) = problems(fed(joined), files)
    assert ": the column 'o.raw' holds images" in line
    (line,) = problems(fed(joined.replace("on: id", "on: {id: raw}")), files)
    assert ": join: j.parquet: the column 'raw' holds images" in line


TAGGED = {
    "text": ("id,prompt,t\na,x,R & D\n", "tags: t", ("R & D",)),
    "list": ('id,prompt,t\na,x,"[""two words"", 2, 2.5, true]"\n', "tags: t", ("two words", "2", "2.5", "true")),
    "number": ("id,prompt,t\na,x,007\n", "tags: t", ("007",)),
    "spaces around": ("id,prompt,t\na,x, photo \n", "tags: t", ("photo",)),
    "columns": ("id,prompt,t,u,v\na,x,easy,,3\n", "tags: [t, u, v]", ("easy", "3")),
    "a column of lists and one of texts": ('id,prompt,t,u\na,x,"[""a"", ""b c""]",d\n', "tags: [t, u]", ("a", "b c", "d")),
    "unicode": ("id,prompt,t\na,x,größe / 日本\n", "tags: t", ("größe / 日本",)),
    "nothing": ("id,prompt,t\na,x,\n", "tags: [t]", ()),
    "template": ("id,prompt,t\na,x,two words\n", "tags: '{{ row.t }} {{ 1 + 1 }}'", ("two words 2",)),
}  # fmt: skip


@pytest.mark.parametrize("name", TAGGED)
def test_tags_of_a_table(cases: Callable[..., list[TestCase]], name: str) -> None:
    text, tags, expected = TAGGED[name]
    (case,) = cases(f"path: d.csv, {FIELDS[:-1]}, {tags}}}", {"d.csv": text})
    assert case.tags == expected


@pytest.mark.parametrize(
    ("value", "tags"),
    [
        (2, ("2",)), (0, ("0",)), (2.0, ("2",)), (2.5, ("2.5",)), (True, ("true",)), (False, ("false",)),
        (None, ()), ([1, 2.0, "a b", ""], ("1", "2", "a b")), ("", ()), (-1, ("-1",)),
    ],
)  # fmt: skip
def test_tags_that_are_numbers(cases: Callable[..., list[TestCase]], value: Any, tags: tuple[str, ...]) -> None:
    row = json.dumps({"id": "a", "prompt": "x", "t": value, "u": "z"})
    fields = f"{FIELDS[:-1]}, tags: [t, u]}}"
    (case,) = cases(f"path: d.jsonl, {fields}", {"d.jsonl": row})
    assert case.tags == (*tags, "z")
    (case,) = cases(f"path: d.jsonl, {FIELDS[:-1]}, tags: t}}", {"d.jsonl": row})
    assert case.tags == tags


def test_missing_values_of_default_tags_are_left_out(cases: Callable[..., list[TestCase]]) -> None:
    tags = "defaults: {tags: ['{{ row.t }}', '{{ row.u }}', all of them]}"
    one, two = cases(f"path: d.csv, {FIELDS}, {tags}", {"d.csv": "id,prompt,t,u\na,x,easy,\nb,y,,3\n"})
    assert (one.tags, two.tags) == (("easy", "all of them"), ("3", "all of them"))


def test_tags_with_spaces_select_scope_and_report(toy: Toy) -> None:
    """Through a run: the selection, a rule's scope, an expression, the gates, and what every report makes of it."""
    (toy.folder / "d.jsonl").write_text(
        "\n".join(
            json.dumps({"id": f"c{n}", "prompt": "x", "t": tag}) for n, tag in enumerate(["R & D <b>", 2, "photo"])
        )
    )
    (toy.folder / "suite.yaml").write_text(
        "name: x\ncases: [{dataset: {path: d.jsonl, fields: {id: id, prompt: prompt, tags: t}}}]\n"
        "models: [{provider: mock}]\ngraders: [{key: image, type: properties}]\n"
        "metrics: {special: \"where(tag('R & D <b>') or tag('2'), 1, 0) + 0 * image.blank\"}\n"
        "verdict: [not image.blank, {rule: special >= 1, tags: [R & D <b>, '2']}]\n"
        "gates: [{rule: pass_rate >= 1, tags: ['2']}]\n"
    )
    result = toy("run", "suite.yaml", "--tag", "R & D <b>", "--tag", "2", "--junit", "j.xml", "--markdown", "m.md")
    assert result.exit_code == 0, result.output
    assert {case: record.tags for case, record in toy.records.items()} == {"c0": ("R & D <b>",), "c1": ("2",)}
    assert all(record.scores["special"] == 1 for record in toy.records.values())
    exported = toy("export", "latest", "--format", "csv")
    assert ",R & D <b>," in exported.stdout
    assert toy("report", "latest").exit_code == 0
    (page,) = toy.folder.glob("**/index.html")
    assert "R & D <b>" not in page.read_text()
    unknown = toy("run", "suite.yaml", "--tag", "R&D")
    assert (unknown.exit_code, "R & D <b>" in unknown.stderr) == (2, True)


def test_a_huge_cell(problems: Problems, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"id,prompt,blob\na,x,{'y' * 200_000}\n"
    assert problems(fed(f"path: d.csv, {FIELDS}"), {"d.csv": text}) == []
    monkeypatch.setattr(tables, "MAX_CELL", 100_000)
    (line,) = problems(fed(f"path: d.csv, {FIELDS}"), {"d.csv": text})
    assert line == "d.csv:2:1: not a valid table: a value has more than 100,000 characters"


def test_variables_in_a_path(problems: Problems, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"easy.csv": "id,prompt\na,x\n", "hard.csv": "id,prompt\nb,y\n"}
    text = fed(f'path: "{{{{ vars.set }}}}.csv", {FIELDS}') + "vars: {set: easy, my_token: abcdef}\n"
    assert problems(text, files) == []
    assert problems(text, files, variables={"set": "hard"}) == []
    (line,) = problems(text, files, variables={"set": "none"})
    assert line == "suite.yaml:2:26: dataset: none.csv: no such file or directory"
    (line,) = problems(text.replace("vars.set", "vars.sett"), files)
    assert line.startswith("suite.yaml:2:26: dataset: {{ vars.sett }}.csv: ")
    assert "there is no 'sett'" in line
    monkeypatch.setenv("SHOP_API_KEY", "easy_but_secret")
    (line,) = problems(text.replace("set: easy", "set: easy_but_secret"), files)
    assert "there is no 'set'" in line  # a run would store it
    (line,) = problems(text.replace("vars.set", "vars.my_token"), files)
    assert "there is no 'my_token'" in line
    (line,) = problems(text, files, variables={"set": "../../../etc/x"})
    assert "is outside the suite's folder and the working directory" in line


def test_a_link_out_of_the_folder_is_not_followed(problems: Problems, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}_outside.jsonl"
    outside.write_text(json.dumps({"id": "a", "prompt": "x"}))
    (tmp_path / "shots").mkdir()
    (tmp_path / "shots" / "metadata.jsonl").symlink_to(outside)
    (line,) = problems(fed(f"path: shots, {FIELDS}"))
    assert "is outside the suite's folder" in line
    outputs = "models: [{provider: files, dataset: {path: shots, fields: {id: id, output: prompt}}}]"
    refused = problems(suite(models=outputs))
    assert refused
    assert all("is outside the suite's folder" in line for line in refused)
    assert problems(suite(models=outputs), trust=True) == []


def test_variables_in_the_path_of_outputs(load: Load, problems: Problems, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,file\none,1.png\n")
    models = "models: [{provider: files, dataset: {path: '{{ vars.set }}.csv', fields: {id: id, output: file}}}]"
    loaded = load(suite("vars: {set: a}", models=models))
    assert loaded.suite.models[0].model_dump()["dataset"]["path"] == "a.csv"
    lines = problems(suite(models=models))
    assert "suite.yaml:3:44: dataset: {{ vars.set }}.csv: undefined template variable: there is no 'set'" in " ".join(
        lines
    )


def test_long_texts_are_a_suite_without_a_converter(shared_data: Path, toy: Toy) -> None:
    """The whole folder, run with the mock provider, and resumed."""
    published = shared_data / "longtext" / "text_prompts.jsonl"
    rows = [json.loads(line) for line in published.read_text(encoding="utf-8").splitlines()]
    Path("suite.yaml").write_text(LONGTEXT.replace("PATH", str(published)), encoding="utf-8")
    assert LONGTEXT.count("\n") <= 25
    run = ve.run("suite.yaml", trust_suite=True, run_id="long")
    assert (len(run.records), len(rows)) == (40, 40)
    cases = {case.id: case for case in run.info.suite.cases}
    for row in rows:
        case = cases[f"p{row['prompt_id']}"]
        assert (case.prompt, case.tags) == (row["prompt"], (row["category"], row["length"]))
        assert case.expect.text is not None
        assert list(case.expect.text.required) == row["text"]
    assert not [record.test_id for record in run.records if record.error]
    assert all(record.scores["image.blank"] is False for record in run.records)
    resumed = ve.run("suite.yaml", trust_suite=True, resume="long")
    assert {record.test_id for record in resumed.records} == cases.keys()
    assert len(resumed.records) == 40


LONGTEXT = """\
name: longtext
cases:
  - dataset:
      path: PATH
      fields: {id: "p{{ row.prompt_id }}", prompt: prompt, expect.text.required: text}
      defaults: {tags: ["{{ row.category }}", "{{ row.length }}"]}
models:
  - {provider: mock, params: {size: 512x512}}
graders:
  - {key: image, type: properties}
verdict:
  - not image.blank
"""
