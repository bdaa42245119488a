"""A run in a notebook: its table, its cells that did not pass, and one case in full."""

from __future__ import annotations

import base64
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from people_runs import people_run
from PIL import Image
from report_runs import demo
from toys import Toy

import visioneval as ve
from visioneval.report.html.notebook import MAX_ROWS

FAILS: dict[str, Any] = {"metadata": {"look": "bad"}}
FIRE: dict[str, Any] = {"metadata": {"generate": "raises"}}
MARKUP = '<img src=x onerror="alert(1)"><b>bold</b>'


class Reader(HTMLParser):
    """The texts of each row, and the addresses and names of images."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.images: list[tuple[str, str]] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "img":
            self.images.append((values["src"], values["alt"]))
            assert values.keys() == {"src", "alt"}

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.strip()


def shown(value: Any) -> Reader:
    """What a notebook shows, which loads nothing and runs nothing."""
    html = value._repr_html_()
    reader = Reader(html)
    assert all(address.startswith("data:image/webp;base64,") for address, _ in reader.images)
    assert not {"script", "link", "style", "iframe", "a"} & reader.tags
    assert "http" not in re.sub(r'src="data:[^"]+"', "", html)
    return reader


def pixels(address: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))


def test_the_table_begins_with_what_did_not_pass(toy: Toy) -> None:
    toy.run({}, FIRE, FAILS, {}, arguments=("--run-id", "r"))
    run = ve.load_run("r")
    table = shown(run)
    assert table.rows[0] == ["verdict", "case", "model run", "output", "why"]
    assert [row[:3] for row in table.rows[1:]] == [
        ["FAIL", "case2", "toy"],
        ["ERROR", "case1", "toy"],
        ["PASS", "case0", "toy"],
        ["PASS", "case3", "toy"],
    ]
    assert table.rows[1][4] == "fine: all is ill"
    assert "the model is on fire" in table.rows[2][4]
    assert table.rows[2][3] == "no image"
    assert [name for _, name in table.images] == [
        f"{row[0]}: {row[1]} [0] of toy" for row in table.rows if row[3] == ""
    ]
    assert "visioneval: toy: " in table.text
    assert "4 of 4 cells, 2 PASS, 1 FAIL, 1 ERROR" in table.text
    assert "more cell" not in table.text
    assert [record.test_id for record in run.failed] == ["case2", "case1"]


@pytest.mark.parametrize(("cases", "more"), [(MAX_ROWS, None), (MAX_ROWS + 1, "1 more cell:"), (45, "25 more cells:")])
def test_a_long_run_says_how_many_cells_it_does_not_show(cases: int, more: str | None, toy: Toy) -> None:
    toy.run(*({} for _ in range(cases - 1)), FAILS, arguments=("--run-id", "r"))
    table = shown(ve.load_run("r"))
    assert len(table.rows) == 1 + MAX_ROWS
    assert table.rows[1][:2] == ["FAIL", f"case{cases - 1}"]
    assert (more is None) == ("more cell" not in table.text)
    assert more is None or more in table.text


def test_failed_cells_come_as_in_the_command(toy: Toy) -> None:
    graders = [
        {"key": "look", "type": "mine:Look", "writes": {"fine": {"type": "bool"}, "level": {"type": "number"}}},
        {"key": "second", "type": "mine:Second", "writes": {"second": {"type": "bool"}}},
    ]
    both = {"metadata": {"look": "bad", "second": "fails"}}
    toy.run(FIRE, FAILS, {}, both, graders=graders, verdict=["fine", "second"], arguments=("--run-id", "r"))
    run = ve.load_run("r")
    assert [record.test_id for record in run.failed] == ["case3", "case1", "case0"]
    listed = re.findall(r"^ *(?:FAIL|ERROR) +(case\d)", toy("show", "r", "--failed").stdout, re.MULTILINE)
    assert listed == [record.test_id for record in run.failed]
    assert ve.load_run("r", cases=["case2"]).failed == ()


def test_a_suite_without_rules_has_no_failed_cell(toy: Toy) -> None:
    path = toy.write({}, graders=[], labels={"questions": [{"key": "usable", "ask": "Usable?", "type": "yes_no"}]})
    suite = json.loads(path.read_text())
    del suite["graders"], suite["verdict"]
    path.write_text(json.dumps(suite))
    result = toy("run", path, "--trust-suite", "--run-id", "r")
    assert result.exit_code == 0, result.output
    run = ve.load_run("r")
    assert run.failed == ()
    assert [row[:2] for row in shown(run).rows[1:]] == [["NONE", "case0"]]


def test_of_a_model_run_only_its_cells_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    demo(tmp_path, samples=2)
    whole, part = ve.load_run("demo-run"), ve.load_run("demo-run@steady")
    assert len(whole.failed) == 4
    assert part.failed == ()
    assert [row[1:3] for row in shown(part).rows[1:]] == [
        [f"{case} [{sample}]", "steady"] for case in ("sign", "flyer") for sample in (0, 1)
    ]
    assert [cell.sample_index for cell in part.show("sign").cells] == [0, 1]


def test_text_of_a_suite_is_no_markup(toy: Toy) -> None:
    reasons = f'Grade(scores={{"fine": False, "level": 0.5}}, reasons={{"fine": {MARKUP!r}}})'
    toy.run({"prompt": MARKUP, "metadata": {"look": reasons}}, arguments=("--run-id", "r"))
    run = ve.load_run("r")
    for value in (run, run.show("case0")):
        reader = shown(value)
        assert "b" not in reader.tags
        assert MARKUP in reader.text.replace("\n", "")
        assert len(reader.images) == 1


@pytest.mark.parametrize("tags", [[], ["person"]])
def test_a_redacted_case_has_no_image(tags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    people_run(tmp_path, "r")
    run = ve.load_run("r", redact=tags)
    outputs = {(row[1], row[2]): row[3] for row in shown(run).rows[1:]}
    assert outputs["face", "other"] == ("left out by --redact" if tags else "")
    assert outputs["open", "other"] == ""
    case = shown(run.show("face"))
    assert len(case.images) == (0 if tags else 2)
    assert ("left out by --redact" in case.text) == bool(tags)
    text = repr(run.show("face"))
    assert text.count("left out by --redact\n") == (2 if tags else 0)
    assert ("artifacts/" in text) == (not tags)
    assert "r/(redacted)" not in text


@pytest.mark.parametrize(("data", "why"), [(None, "there is no such file"), (b"text", "not a supported image")])
def test_an_output_that_cannot_be_read_says_why(data: bytes | None, why: str, toy: Toy) -> None:
    toy.run(arguments=("--run-id", "r"))
    run = ve.load_run("r")
    path = run.folder / str(run.records[0].artifact_path)
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    assert shown(run).rows[1][3].startswith(why)
    assert why in shown(run.show("case0")).text


def test_outputs_are_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy: Toy) -> None:
    monkeypatch.chdir(tmp_path)
    toy.run(arguments=("--run-id", "r"))
    run = ve.load_run("r")
    Image.new("RGB", (2000, 1000), "red").save(run.folder / str(run.records[0].artifact_path))
    assert pixels(shown(run).images[0][0]).size == (128, 64)
    assert pixels(shown(run.show("case0")).images[0][0]).size == (384, 192)


def test_a_case_is_shown_as_in_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy: Toy) -> None:
    monkeypatch.chdir(tmp_path)
    demo(tmp_path, samples=2)
    case = ve.load_run("demo-run").show("sign")
    printed = toy("show", "demo-run", "sign", COLUMNS="100").stdout
    assert [line.rstrip() for line in repr(case).splitlines()] == [line.rstrip() for line in printed.splitlines()]
    reader = shown(case)
    assert len(reader.images) == 4
    assert "it spills over the window" in reader.text
    assert printed.partition("\n")[0].rstrip() in reader.text


def test_the_turns_of_a_case_are_shown_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    people_run(tmp_path, "r")
    run = ve.load_run("r@other")
    assert [cell.test_id for cell in run.show("steps").cells] == ["steps/1", "steps/2"]
    assert [cell.test_id for cell in run.show("steps/2").cells] == ["steps/2"]
    assert "steps/1\n" in repr(run.show("steps"))


def test_an_unknown_case_is_named(toy: Toy) -> None:
    toy.run({}, {}, arguments=("--run-id", "r"))
    run = ve.load_run("r")
    for wrong in (None, 5):
        with pytest.raises(ve.UsageError, match=rf"^no case {wrong} in this run \(known: "):
            run.show(wrong)  # type: ignore[arg-type]
    with pytest.raises(ve.UsageError, match=r"^no case 'cas1' in this run \(did you mean 'case1'\?\)$"):
        run.show("cas1")
