"""Lists in the text of a cell, as published files have them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite_text import suite

from visioneval import SuiteError
from visioneval.suite.load import LoadedSuite, load_suite
from visioneval.suite.loading.cells import MAX_PYTHON, cell_data, cell_items, is_python

Load = Callable[..., LoadedSuite]


@pytest.mark.parametrize(
    ("cell", "items"),
    [
        ("['SALE', '50 %']", ["SALE", "50 %"]),
        ('["SALE", "50 %"]', ["SALE", "50 %"]),
        (r"['Don\'t', 'x']", ["Don't", "x"]),
        ("""["Don't", 'x']""", ["Don't", "x"]),
        (r"['a\nb']", ["a\nb"]),
        ("('SALE', '50 %')", ["SALE", "50 %"]),
        ("['a',\n 'b',]", ["a", "b"]),
        ("[['a', 'b'], ('c',)]", [["a", "b"], ["c"]]),
        ("[{'id': 1, 'ok': True, 'none': None, 'x': 1.5}]", [{"id": 1, "ok": True, "none": None, "x": 1.5}]),
        ("[]", []),
        ("()", []),
        ("['[SALE]']", ["[SALE]"]),
    ],
)
def test_lists_are_read(cell: str, items: list[Any]) -> None:
    assert cell_items(cell) == items
    assert cell_items(f" {cell}\n") == items


@pytest.mark.parametrize(
    "cell",
    ["SALE", "[SALE] today", "[NEW] and [OLD]", "(C) 2024", "(10)", "('til late)", "{SALE}", "'SALE', '50 %'",
     "arrays", "Nan", "none", "a]", "array(10)", "B'day", "'SALE'", '"[NEW] and [OLD]"', "\ufeffSALE", "'None'", '"', "''",
     "SALE ['50 %']", "deque of 3", "Series A", "f(x)", "alert('hi')", "a['b", "(it's)", "Null", "N/A"],
)  # fmt: skip
def test_a_text_with_brackets_is_one_item(cell: str) -> None:
    assert cell_items(cell) is None


def test_long_cells_are_json() -> None:
    def cell(length: int) -> str:
        return f"['{'a' * (length - 4)}']"

    assert cell_items(cell(MAX_PYTHON)) == ["a" * (MAX_PYTHON - 4)]
    with pytest.raises(ValueError, match="over 100,000 characters of Python's notation: write JSON"):
        cell_items(cell(MAX_PYTHON + 1))
    assert len(cell_items(json.dumps(["a" * MAX_PYTHON]))[0]) == MAX_PYTHON


PLAIN = st.recursive(
    st.text(st.characters(exclude_categories=["Cs"])) | st.booleans() | st.none() | st.integers(-(10**9), 10**9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(PLAIN, min_size=1, max_size=4))
def test_what_python_and_json_write_is_read_back(items: list[Any]) -> None:
    assert cell_items(repr(items)) == cell_items(json.dumps(items)) == items
    assert cell_data(repr(items)) == items
    assert not is_python(json.dumps(items))


@given(st.text(st.sampled_from("[](){}'\", ab1\\n")))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        items = cell_items(text)
    except ValueError as error:
        assert str(error)
    else:
        assert items is None or isinstance(items, list | dict)


def table(rows: list[dict[str, str]]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


FIELDS = "id: i, prompt: i, expect.text.required: r, expect.text.forbidden: f, tags: t"


def fed(fields: str, name: str, more: str = "") -> str:
    return suite(cases=f"cases: [{{dataset: {{path: {name}, fields: {{{fields}}}{more}}}}}]")


@pytest.mark.parametrize("name", ["d.csv", "d.jsonl", "d.json", "d.tsv"])
def test_every_format_reads_the_same(load: Load, tmp_path: Path, name: str) -> None:
    row = {"i": "a", "r": "['SALE', '50 %']", "f": "[]", "t": "('u', 'v')"}
    text = {"d.csv": table([row]), "d.tsv": "i\tr\tf\tt\n" + "\t".join(row.values()), "d.json": json.dumps([row])}
    (tmp_path / name).write_text(text.get(name, json.dumps(row)))
    loaded = load(fed(FIELDS, name))
    (case,) = loaded.suite.cases
    assert case.expect.text is not None
    assert (case.expect.text.required, case.expect.text.forbidden, case.tags) == (("SALE", "50 %"), (), ("u", "v"))
    line = 2 if name in ("d.csv", "d.tsv") else 1
    assert [str(note).partition(f"{name}:")[2] for note in loaded.warnings] == [
        f"{line}:1: note: the column {column!r} has Python's notation, as pandas writes it, and is read as data"
        for column in ("r", "t")
    ]


def test_parquet_reads_the_same(load: Load, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"i": ["a"], "r": ["['SALE']"], "t": [["u"]]}), tmp_path / "d.parquet")
    (case,) = load(fed("id: i, prompt: i, expect.text.required: r, tags: t", "d.parquet")).suite.cases
    assert case.expect.text is not None
    assert (case.expect.text.required, case.tags) == (("SALE",), ("u",))


UNCLEAR = ("[SALE]", "None", "nan", "<NA>", "[u", "['a' 'b']", "{'a', 'b'}", "array(['a'])", "['a', nan]")


@pytest.mark.parametrize("text", UNCLEAR)
@pytest.mark.parametrize("name", ["d.csv", "d.tsv", "d.jsonl", "d.json", "d.parquet"])
def test_only_a_text_table_cannot_tell_a_text_from_a_list(
    load: Load, problems: Any, tmp_path: Path, text: str, name: str
) -> None:
    """JSON and Parquet have lists and null, so a string there is a text unless it is a whole list."""
    row = {"i": "a", "r": text}
    files = {"d.csv": table([row]), "d.tsv": f"i\tr\na\t{text}\n", "d.jsonl": json.dumps(row)}
    required = fed("id: i, prompt: i, expect.text.required: r", name)
    default = fed("id: i, prompt: i", name, ', defaults: {expect: {text: {required: "{{ row.r }}"}}}')
    if name in ("d.csv", "d.tsv"):
        (line,) = problems(required, {name: files[name]})
        assert line.startswith(f"{name}:2:1: expect.text.required: ")
        (line,) = problems(default, {name: files[name]})
        assert line.startswith(f"{name}:2:1: defaults: expect.text.required: ")
        return
    if name == "d.parquet":
        pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pa.table({"i": ["a"], "r": [text]}), tmp_path / name)
    else:
        (tmp_path / name).write_text(files.get(name, json.dumps([row])))
    for suite_text in (required, default):
        loaded = load(suite_text)
        (case,) = loaded.suite.cases
        assert case.expect.text is not None
        assert case.expect.text.required == (text,)
        assert loaded.warnings == ()


@pytest.mark.parametrize(("name", "joined"), [("d.jsonl", "e.csv"), ("d.csv", "e.jsonl"), ("d.jsonl", "e.jsonl")])
def test_a_join_with_a_text_table_cannot_tell_either(
    load: Load, problems: Any, tmp_path: Path, name: str, joined: str
) -> None:
    first, second = {"i": "a"}, {"i": "a", "r": "[SALE]"}
    files = {
        name: table([first]) if name.endswith("csv") else json.dumps(first),
        joined: table([second]) if joined.endswith("csv") else json.dumps(second),
    }
    text = fed("id: i, prompt: i, expect.text.required: r", name, f", join: {{path: {joined}, on: i}}")
    if "csv" in name + joined:
        (line,) = problems(text, files)
        assert line.startswith(f"{name}:")
        assert "[SALE] may be a list or a text" in line
        return
    for path, content in files.items():
        (tmp_path / path).write_text(content)
    (case,) = load(text).suite.cases
    assert case.expect.text is not None
    assert case.expect.text.required == ("[SALE]",)


def test_json_needs_no_note(load: Load, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(table([{"i": "a", "r": '["SALE"]', "f": "[SALE] x", "t": "u"}]))
    assert load(fed(FIELDS, "d.csv")).warnings == ()


def test_images_and_turns_are_lists_too(load: Load, tmp_path: Path, problems: Any) -> None:
    turns = "['Make it red.', {'prompt': 'Now blue.'}]"
    files = {"d.csv": table([{"i": "a", "im": "['x.png', {'path': 'y.png', 'role': 'style'}]", "t": turns}])}
    lines = problems(fed("id: i, images: im, turns: t", "d.csv"), files)
    assert any("x.png" in line for line in lines)
    assert any("y.png" in line for line in lines)
    assert not any("prompt" in line or "[" in line for line in lines)


def test_questions_and_paths_are_read_from_pythons_notation(load: Load, tmp_path: Path) -> None:
    row = {"i": "a", "q": "['Is it?', 'Is it red?']", "c": "[['yes', 'no'], ['red', 'blue']]", "a": "['yes', 'red']",
           "raw": "{'objects': [{'name': 'cup'}, {'name': 'plate'}]}"}  # fmt: skip
    (tmp_path / "d.csv").write_text(table([row]))
    fields = "id: i, prompt: i, questions: {question: q, choices: c, answer: a}, tags: 'raw.objects[*].name'"
    loaded = load(fed(fields, "d.csv"))
    (case,) = loaded.suite.cases
    assert case.questions is not None
    assert [(q.id, q.choices, q.answer) for q in case.questions] == [
        ("q1", ("yes", "no"), "yes"), ("q2", ("red", "blue"), "red")
    ]  # fmt: skip
    assert case.tags == ("cup", "plate")
    assert {str(note).split("'")[1] for note in loaded.warnings} == {"q", "c", "a", "raw"}


def test_a_text_that_is_no_list_keeps_its_brackets_elsewhere(load: Load, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(table([{"i": "a", "p": "['SALE', '50 %']"}]))
    loaded = load(fed("id: i, prompt: p, metadata.p: p", "d.csv"))
    (case,) = loaded.suite.cases
    assert case.metadata == {"p": "['SALE', '50 %']"}
    assert "['SALE', '50 %']" in case.prompt
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    ("defaults", "required"),
    [
        ('"{{ row.r }}"', ("SALE", "50 %")),
        ('["{{ row.i }}", B]', ("a", "B")),
        ('["{{ row.r }}"]', None),
    ],
)
def test_defaults_render_lists(tmp_path: Path, defaults: str, required: tuple[str, ...] | None) -> None:
    (tmp_path / "d.csv").write_text(table([{"i": "a", "r": "['SALE', '50 %']"}]))
    more = f", defaults: {{expect: {{text: {{required: {defaults}}}}}}}"
    (tmp_path / "suite.yaml").write_text(fed("id: i, prompt: i", "d.csv", more))
    if required is None:
        with pytest.raises(
            SuiteError, match=r"suite\.yaml:2:\d+: expect: .* write it without a list .* \(line 2 of .*d\.csv\)"
        ):
            load_suite(tmp_path / "suite.yaml", run_labels=lambda _: [])
        return
    (case,) = load_suite(tmp_path / "suite.yaml", run_labels=lambda _: []).suite.cases
    assert case.expect.text is not None
    assert case.expect.text.required == required
