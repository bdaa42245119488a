"""Rows as cases: paths into values, groups, joins, filters, defaults and ids, and every row that cannot be one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite_text import suite

from visioneval import TestCase
from visioneval.bounds import CELLS
from visioneval.suite.load import LoadedSuite
from visioneval.suite.loading.rows import Row
from visioneval.templates.render import render

Problems = Callable[..., list[str]]
Load = Callable[..., LoadedSuite]
Cases = Callable[..., list[TestCase]]


def fed(dataset: str, *more: str, **sections: str) -> str:
    return suite(*more, cases=f"cases: [{{dataset: {{{dataset}}}}}]", **sections)


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def cases(load: Load, tmp_path: Path) -> Cases:
    """``cases(dataset, *sections, name=text)``: the cases of a suite with one dataset; ``d_csv`` is ``d.csv``."""

    def loaded(dataset: str, *more: str, **files: str) -> list[TestCase]:
        for name, text in files.items():
            (tmp_path / name.replace("_", ".")).write_text(text, encoding="utf-8", newline="")
        return list(load(fed(dataset, *more)).suite.cases)

    return loaded


VALUES = {
    "meta": {"size": "large", "deep": {"n": 1}, "none": None},
    "objects": [{"name": "cup", "tags": ["a", "b"]}, {"name": "plate", "tags": []}, {"tags": ["c"]}],
    "cell": '{"qas": [{"q": "x"}, {"q": "y"}]}',
    "by_id": {"k1": {"n": 1}, "k2": {"n": 2}},
    "dotted.name": 5,
    "text": "{not json",
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("meta.size", "large"),
        ("meta.deep.n", 1),
        ("meta.none", None),
        ("meta.none.more", None),
        ("meta.gone", None),
        ("objects[*].name", ["cup", "plate", None]),
        ("objects[*].tags[*]", ["a", "b", "c"]),
        ("objects[1].name", "plate"),
        ("objects[9].name", None),
        ("objects.name", None),
        ("cell.qas[*].q", ["x", "y"]),
        ("by_id[*].n", [1, 2]),
        ("dotted.name", 5),
        ("_row", 7),
        ("meta..size", None),
        ("meta[x]", None),
    ],
)
def test_a_path_leads_to_a_value(path: str, value: Any) -> None:
    assert Row(3, VALUES, 7).get(path) == value


@given(st.text(st.sampled_from("ab_.[]*0"), max_size=10))
def test_any_path_is_a_value_or_nothing(path: str) -> None:
    row = Row(1, {"a": [{"b": 0}, None, "a"], "b": {"a": {"0": "{}"}}, "a.b": 1, "0": '[{"a": [1]}]'}, 1)
    value = row.get(path)
    assert row.has(path) or value is None or not any(item is not None for item in value)


def test_a_path_into_text_that_is_not_json() -> None:
    with pytest.raises(ValueError, match="not JSON: expecting property name"):
        Row(3, VALUES).get("text.x")


def test_paths_and_lists_as_keys(cases: Cases) -> None:
    row = {"id": "a", "meta": {"prompt": "x"}, "objects": [{"name": "cup"}, {"name": "plate"}]}
    (case,) = cases("path: d.jsonl, fields: {id: id, prompt: meta.prompt, tags: 'objects[*].name'}", d_jsonl=lines(row))
    assert (case.prompt, case.tags) == ("x", ("cup", "plate"))


def test_ids_of_several_columns(cases: Cases, problems: Problems) -> None:
    table = "item,seed,p\na,1,x\na,2,x\n"
    loaded = cases("path: d.csv, fields: {id: [item, seed], prompt: p}", d_csv=table)
    assert [case.id for case in loaded] == ["a_1", "a_2"]
    loaded = cases("path: d.csv, fields: {id: '{{ row.item }}-{{ row.seed }}', prompt: p}", d_csv=table)
    assert [case.id for case in loaded] == ["a-1", "a-2"]
    text = fed("path: d.csv, fields: {id: [item, seed], prompt: p}")
    assert problems(text, {"d.csv": "item,seed,p\na_b,c,x\na,b_c,x\n"}) == [
        "d.csv:3:1: the ID 'a_b_c' is repeated: another case has it in line 2"
    ]
    assert problems(text, {"d.csv": "item,seed,p\na,,x\n"}) == [
        "d.csv:2:1: the row has no value in one of the columns of its ID: item, seed"
    ]


GROUPS = """\
item_id,text,pid,q,cat,dep
one,A cup on a plate,1,Is there a cup?,object,0
two,A dog,1,Is there a dog?,animal,
one,A cup on a plate,2,Is there a plate?,object,0
one,,3,Is the cup on the plate?,spatial,"1, 2"
one,A cup on a plate,1,Is there a cup?,object,0
"""
GROUPED = "path: q.csv, group_by: item_id, fields: {id: item_id, prompt: text, questions: {id: pid, question: q, type: cat, depends_on: dep}}"


def test_rows_of_a_group_are_one_case(cases: Cases) -> None:
    one, two = cases(f"{GROUPED}, defaults: {{tags: [dpg]}}", q_csv=GROUPS)
    assert (one.id, one.prompt, one.tags) == ("one", "A cup on a plate", ("dpg",))
    assert [(q.id, q.type, q.depends_on) for q in one.questions or ()] == [
        ("1", "object", ()),
        ("2", "object", ()),
        ("3", "spatial", ("1", "2")),
    ]
    assert [q.question for q in two.questions or ()] == ["Is there a dog?"]


def test_lists_of_a_group_grow(cases: Cases) -> None:
    table = "id,p,line,tag\na,x,SALE,t\na,x,50 %,t\na,x,SALE,u\n"
    dataset = "path: d.csv, group_by: id, fields: {prompt: p, expect.text.required: line, tags: tag}"
    (case,) = cases(dataset, d_csv=table)
    assert case.expect.text is not None
    assert (case.id, case.expect.text.required, case.tags) == ("a", ("SALE", "50 %"), ("t", "u"))


def test_outputs_of_a_group_are_listed_once(cases: Cases) -> None:
    table = "id,p,q,file\na,x,Q1?,1.png\na,x,Q2?,1.png\na,x,Q1?,2.png\n"
    dataset = "path: d.csv, group_by: id, fields: {prompt: p, questions: {question: q}, output: file}"
    (case,) = cases(dataset, d_csv=table)
    assert [entry.path for entry in case.outputs["d"]] == ["1.png", "2.png"]
    assert [(q.id, q.question) for q in case.questions or ()] == [("q1", "Q1?"), ("q2", "Q2?")]


def test_a_join_adds_columns(cases: Cases) -> None:
    questions = "item,q\none,Q1?\ntwo,Q2?\none,Q3?\n"
    prompts = lines({"name": "two", "text": "a dog"}, {"name": "one", "text": "a cup"}, {"name": "more", "text": "-"})
    dataset = "path: q.csv, group_by: item, join: {path: p.jsonl, on: {item: name}}, fields: {id: item, prompt: text, questions: {question: q}}"
    one, two = cases(dataset, q_csv=questions, p_jsonl=prompts)
    assert [(one.prompt, len(one.questions or ())), (two.prompt, len(two.questions or ()))] == [
        ("a cup", 2),
        ("a dog", 1),
    ]


def test_a_join_by_line_number(cases: Cases) -> None:
    loaded = cases("path: a.csv, join: [{path: b.csv, on: _row}], fields: {id: i, prompt: p}",
                   a_csv="i\na\n\nb\n", b_csv="p\nx\ny\n")  # fmt: skip
    assert [(case.id, case.prompt) for case in loaded] == [("a", "x"), ("b", "y")]


def test_all_matches_of_a_join(cases: Cases) -> None:
    dataset = "path: a.csv, join: {path: b.csv, on: i, as: qs, many: true}, fields: {id: i, prompt: p, questions: {question: 'qs[*].q', answer: 'qs[*].answer'}}"
    one, two = cases(dataset, a_csv="i,p\na,x\nb,y\n", b_csv="i,q,answer\na,Q1?,yes\na,Q2?,no\nb,Q3?,yes\n")
    assert [(q.id, q.question, q.answer) for q in one.questions or ()] == [("q1", "Q1?", "yes"), ("q2", "Q2?", "no")]
    assert len(two.questions or ()) == 1


def test_columns_under_a_name_and_rows_without_a_match(cases: Cases) -> None:
    dataset = (
        "path: a.csv, join: {path: b.csv, on: [i, k], as: b, optional: true}, fields: {id: i, prompt: p, region: b.p}"
    )
    loaded = cases(dataset, a_csv="i,k,p\na,1,x\nb,1,y\n", b_csv="i,k,p\na,1,left\nb,2,right\n")
    assert [(case.prompt, case.region) for case in loaded] == [("x", "left"), ("y", None)]


ROWS = lines(
    {"id": "a", "p": "x", "kind": "sign", "n": 10, "ok": True, "tags": ["u", "v"]},
    {"id": "b", "p": "x", "kind": "poster", "n": 20, "ok": False, "tags": ["v"]},
    {"id": "c", "p": "x", "kind": "label", "n": 30.5, "ok": None, "tags": []},
    {"id": "d", "p": "x", "kind": "", "n": None, "ok": True},
)


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("kind: sign", "a"),
        ("kind: [sign, label]", "ac"),
        ("kind: {not: sign}", "bcd"),
        ("kind: {not: [sign, poster]}", "cd"),
        ("kind: null", "d"),
        ("kind: {not: null}", "abc"),
        ("n: {min: 20}", "bc"),
        ("n: {min: 10, max: 20}", "ab"),
        ("n: {max: 20, not: 10}", "b"),
        ("n: 20", "b"),
        ("n: 20.0", "b"),
        ("ok: true", "ad"),
        ("ok: false", "b"),
        ("tags: v", "ab"),
        ("tags: [u, v]", "ab"),
        ("kind: [sign, poster], ok: true", "a"),
    ],
)
def test_filters(cases: Cases, condition: str, ids: str) -> None:
    loaded = cases(f"path: d.jsonl, filter: {{{condition}}}, fields: {{id: id, prompt: p}}", d_jsonl=ROWS)
    assert "".join(case.id for case in loaded) == ids


def test_filters_compare_the_text_of_a_table(cases: Cases) -> None:
    table = "id,n,ok\na,10,True\nb,9.5,FALSE\nc,,\n"
    for condition, ids in [
        ("n: 10", "a"),
        ("n: {min: 9}", "ab"),
        ("ok: true", "a"),
        ("ok: false", "b"),
        ("n: null", "c"),
    ]:
        loaded = cases(f"path: d.csv, filter: {{{condition}}}, fields: {{id: id, prompt: id}}", d_csv=table)
        assert "".join(case.id for case in loaded) == ids


def test_a_limit_counts_cases(cases: Cases) -> None:
    assert [case.id for case in cases(f"{GROUPED}, limit: 1", q_csv=GROUPS)] == ["one"]
    assert len(cases(f"{GROUPED}, limit: 9", q_csv=GROUPS)) == 2


def test_defaults_fill_what_rows_lack(cases: Cases) -> None:
    table = "id,name,tag,line\na,red fox,wild,\nb,{{ brand }},,SALE\n"
    dataset = (
        "path: d.csv, fields: {id: id, tags: tag, expect.text.required: line, metadata.name: name}, defaults: {"
        "prompt: 'A photo of {{ row.name }} by {{ brand }}', criteria: 'In the style of {{ brand }}', tags: ['t_{{ row.id }}'],"
        " expect: {format: png, text: {extra: forbid}}, metadata: {name: x, kind: animal}}"
    )
    one, two = cases(dataset, "vars: {brand: ACME}", d_csv=table)
    assert (one.prompt, one.tags, one.expect.format) == ("A photo of red fox by ACME", ("wild",), "png")
    assert one.metadata == {"name": "red fox", "kind": "animal"}
    assert render(two.prompt, {}) == "A photo of {{ brand }} by ACME"  # data is never a template
    assert render(two.criteria or "", {"brand": "ACME"}) == "In the style of ACME"  # rendered with the case
    assert two.tags == ("t_b",)
    assert two.expect.text is not None
    assert (two.expect.text.required, two.expect.text.extra) == (("SALE",), "forbid")


def test_paths_in_defaults_are_relative_to_the_suite(
    load: Load, tmp_path: Path, save_image: Callable[..., Path]
) -> None:
    save_image("a.png")
    save_image("data/b.png")
    (tmp_path / "data" / "d.csv").write_text("id,p,ref\none,x,b.png\n")
    text = fed(
        "path: data/d.csv, fields: {id: id, prompt: p, reference: ref}, defaults: {images: ['{{ row.id[0:0] }}a.png']}"
    )
    (case,) = load(text).suite.cases
    assert (case.images[0].path, case.reference) == ("a.png", "data/b.png")


def test_a_template_as_a_field(cases: Cases, problems: Problems) -> None:
    dataset = "path: d.csv, fields: {id: id, prompt: 'A {{ row.color }} {{ row.name }}', tags: '{{ row.color }}'}"
    one, two = cases(dataset, d_csv="id,color,name\na,red,fox\nb,,{{ x }}\n")
    assert (one.prompt, one.tags) == ("A red fox", ("red",))
    assert (render(two.prompt, {}), two.tags) == ("A  {{ x }}", ())
    found = problems(fed(dataset.replace("row.color }} ", "row.colour }} ")), {"d.csv": "id,color,name\na,red,fox\n"})
    message = "undefined template variable: there is no 'colour' (did you mean 'color'?)"
    assert found == [f"suite.yaml:2:58: prompt: {message} (line 2 of d.csv)"]


def test_nested_nulls(cases: Cases, problems: Problems) -> None:
    rows = lines(
        {"id": "a", "p": "x", "m": None},
        {"id": "b", "p": "y", "m": {"t": None}},
        {"id": "c", "p": "z", "m": {"t": [{"n": "u"}]}},
    )
    dataset = "path: d.jsonl, fields: {id: id, prompt: p, tags: 'm.t[*].n'}"
    assert [case.tags for case in cases(dataset, d_jsonl=rows)] == [(), (), ("u",)]
    found = problems(
        fed(dataset), {"d.jsonl": rows + lines({"id": "d", "p": "w", "m": {"t": [{"n": None}, {"n": "v"}]}})}
    )
    assert found == ["d.jsonl:4:1: tags: expected text, not null"]
    assert problems(fed("path: d.jsonl, fields: {id: id, prompt: m.gone}"), {"d.jsonl": rows}) == [
        "suite.yaml:2:60: no row has a value at 'm.gone' (known: m.t)"
    ]


def test_too_many_rows_are_refused(problems: Problems, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CELLS, "override", 3)
    text = fed("path: d.csv, group_by: id, fields: {id: id, prompt: p}")
    (line,) = problems(text, {"d.csv": "id,p\n" + "a,x\n" * 4})
    assert line.startswith("d.csv:5:1: the dataset has more than 3 rows")


def test_joins_have_a_limit(problems: Problems, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CELLS, "override", 10)
    text = fed("path: a.csv, join: {path: b.csv, on: k, as: b, many: true}, fields: {id: i, prompt: k}")
    files = {"a.csv": "i,k\na,x\nb,x\nc,x\n", "b.csv": "k\n" + "x\n" * 4}
    assert problems(text, files)[0].startswith("a.csv:4:1: more than 10 rows of b.csv match (to raise it: ")


def test_a_resumed_run_has_the_cases_of_its_dataset(load: Load, tmp_path: Path) -> None:
    """What a dataset becomes is stored in the run, so it loads again as the same cases."""
    (tmp_path / "q.csv").write_text(GROUPS)
    loaded = load(fed(GROUPED))
    again = type(loaded.suite).model_validate(loaded.suite.model_dump(mode="json"))
    assert again.cases == loaded.suite.cases
