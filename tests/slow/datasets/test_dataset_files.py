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
from visioneval.suite.cases.case import TestCase
from visioneval.suite.load import LoadedSuite
from visioneval.suite.loading.datasets import parquet as dataset_parquet
from visioneval.suite.loading.datasets import tables

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
    monkeypatch.setattr(dataset_parquet, "MAX_BYTES", 10)
    assert problems(text) == ["d.parquet:1:1: over the limit of 10 bytes when decompressed"]
    (line,) = problems(text, {"d.parquet": b"PAR1 is not enough"})
    assert line.startswith("d.parquet:1:1: not a Parquet file that can be read: ")


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is not None, reason="pyarrow is installed")
def test_parquet_without_the_extra(problems: Problems) -> None:
    (line,) = problems(fed(f"path: d.parquet, {FIELDS}"), {"d.parquet": b"PAR1"})
    assert line == (
        "suite.yaml:2:26: dataset: d.parquet: Parquet needs an extra:"
        " run pip install '.[parquet]' in a checkout of visioneval"
    )


BAD_JSON = [
    ("", "1:1: a JSON dataset must be an array of objects, or an object by id"),
    ("7", "1:1: a JSON dataset must be an array of objects, or an object by id"),
    ("[]", "1:1: the dataset has no rows"),
    ('[{"id": "a", "prompt": "x"}\n {"id": "b"}]', "2:2: not JSON: expecting ',' delimiter or ']'"),
    ('[{"id": "a", "prompt": "x"},\n {"id": NaN}]', "2:1: NaN is not valid JSON: write null or a quoted string"),
    ('[{"id": "a", "prompt": "x"},\n {"id": "b", "id": "c"}]', "2:1: the key 'id' is duplicated"),
    ('[{"id": "a", "prompt": "x"}', "1:28: not JSON: expecting ',' delimiter or ']'"),
    ('[{"id": "a", "prompt": "x"}] 1', "1:30: not JSON: extra data"),
    ('{"a": {"prompt": "x"},\n "a": {"prompt": "y"}}', "2:1: the key 'a' is duplicated"),
    ('{"a": 1, 2: 3}', "1:11: not JSON: expecting a key in double quotes and ':'"),
    ('[{"id": "\\ud800"}]', "1:1: invalid text: a lone surrogate (\\ud800)"),
    ("[" + '{"id": ' + "[" * 100_000, "1:1: nested more than 60 levels deep"),
]


@pytest.mark.parametrize(("text", "message"), BAD_JSON)
def test_bad_json(problems: Problems, text: str, message: str) -> None:
    assert problems(fed("path: d.json, fields: {prompt: prompt}"), {"d.json": text}) == [f"d.json:{message}"]


@pytest.mark.parametrize(
    ("dataset", "text", "message"),
    [
        (f"path: d.csv, {FIELDS}", "id;prompt\na;x\n",
         "suite.yaml:2:46: the dataset has no column 'id': its header looks separated by ';': save it with commas, or in a dataset set separator: \";\""),
        (f"path: d.csv, {FIELDS}", "id\tprompt\na\tx, y\n",
         "d.csv:2:1: the row has 2 values, but the header has 1: its header looks separated by '\\t': save it with commas, or in a dataset set separator: \"\\t\""),
        (f"path: d.csv, separator: ab, {FIELDS}", "id,prompt\n", "suite.yaml:2:44: separator: 'ab' is not valid: use letters, digits, '_', '-' and '.'"),
        (f"path: d.jsonl, separator: ';', {FIELDS}", "id,prompt\n",
         "suite.yaml:2:26: dataset: d.jsonl: separator: only a .csv or .tsv file has one, not a .jsonl file"),
        (f"path: d.csv, {FIELDS}", "id,prompt\na,x,y\n", "d.csv:2:1: the row has 3 values, but the header has 2"),
        (f"path: d.csv, {FIELDS}", "\ufeffid,prompt,id\na,x,y\n", "d.csv:1:1: the header has two columns named 'id'"),
        (f"path: d.csv, {FIELDS}", b"\xff\xfei\x00d\x00", "d.csv:1:1: not valid UTF-8: save the file as UTF-8"),
        (f"path: none, {FIELDS}", "", "suite.yaml:2:26: dataset: none: unknown file type: a dataset's name must end in"),
    ],
)  # fmt: skip
def test_bad_tables(problems: Problems, dataset: str, text: str | bytes, message: str) -> None:
    name = "d.jsonl" if "jsonl" in dataset else "d.csv"
    assert problems(fed(dataset), {name: text})[0].startswith(message)


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
