"""Local measurements are cached by the content of their files: what was measured once is not measured again."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from caches import answer_files, read_only, rewrite
from PIL import Image, ImageDraw
from toys import Toy

pytest.importorskip("rapidocr")

from visioneval import GraderError, Record, Verdict, read_records
from visioneval.graders.measures import Measure
from visioneval.graders.pixels import locality, reference
from visioneval.graders.properties import grader as properties
from visioneval.graders.text import grader as text
from visioneval.graders.text import ocr, second_look
from visioneval.graders.text.layout import Reading
from visioneval.running.calls.cache_files import CacheEntry

pytestmark = pytest.mark.slow

LOCAL: list[dict[str, Any]] = [
    {"key": "copy", "type": "text"},
    {"key": "place", "type": "locality"},
    {"key": "like", "type": "reference"},
    {"key": "file", "type": "properties"},
]
MODEL = {"provider": "files", "label": "m", "path": "out/{case}.png"}
CASE = {
    "prompt": "p",
    "images": ["base.png"],
    "mask": "mask.png",
    "reference": "ref.png",
    "expect": {"text": {"required": ["HELLO"]}, "size": "96x64"},
}
LOOKED = Counter({"comparison": 1, "second look": 1})
"""What other expected lines need that were not read as they are."""
ONCE = Counter(ocr=1, comparison=1, locality=1, reference=1, properties=1)
"""The measurements of one image by all graders."""


class Suite:
    """A suite of edits with all local graders, and the number of real measurements by kind."""

    def __init__(self, toy: Toy) -> None:
        self.toy = toy
        self.counted: Counter[str] = Counter()
        picture(toy.folder / "base.png", "white", "gray")
        picture(toy.folder / "ref.png", "red", "gray")
        mask = Image.new("RGBA", (96, 64), (0, 0, 0, 255))
        mask.paste((0, 0, 0, 0), (30, 20, 66, 44))
        mask.save(toy.folder / "mask.png")
        (toy.folder / "out").mkdir()
        for name, color in (("a", "red"), ("b", "blue"), ("c", "green")):
            picture(toy.folder / f"out/{name}.png", color, "gray")

    def spy(self, monkeypatch: pytest.MonkeyPatch, module: Any, function: str, name: str) -> None:
        real = getattr(module, function)

        def counting(*arguments: Any, **options: Any) -> Any:
            self.counted[name] += 1
            return real(*arguments, **options)

        monkeypatch.setattr(module, function, counting)

    def write(self, *ids: str, **changes: Any) -> Path:
        case = {**CASE, **changes.pop("case", {})}
        cases = [{"id": name, **case} for name in ids or ("a",)]
        settings = {"models": [MODEL], "graders": LOCAL, "verdict": ["copy", "file"]}
        return self.toy.write(*cases, **{**settings, **changes})

    def __call__(self, *words: str | Path, code: int | None = 0) -> Counter[str]:
        """Runs a command, and returns what it measured."""
        self.counted.clear()
        result = self.toy(*words)
        assert code is None or result.exit_code == code, result.output
        self.output = result.output
        return Counter(self.counted)

    def run(self, run_id: str, *words: str | Path, code: int | None = 0) -> Counter[str]:
        return self("run", "suite.yaml", "--trust-suite", "--run-id", run_id, *words, code=code)

    def records(self, run_id: str) -> dict[str, Record]:
        return {record.test_id: record for record in read_records(self.toy.folder / "runs" / run_id)}

    def edit_cache(self, folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
        """Changes the stored entries of all measurements."""

        def changed(entry: CacheEntry) -> dict[str, Any]:
            answer = dict(entry.answer)
            change(answer)
            return {"answer": answer}

        rewrite(folder, changed)


def picture(path: Path, inside: str, outside: str) -> None:
    image = Image.new("RGB", (96, 64), outside)
    ImageDraw.Draw(image).rectangle((34, 24, 60, 40), fill=inside)
    image.save(path)


def without_run(record: Record) -> dict[str, Any]:
    """A record without what belongs to one run: its ID, times and sources."""
    data = record.model_dump(exclude={"run_id", "seconds", "waited_seconds", "cached", "attempts", "cost_usd"})
    for grader in data["graders"]:
        for name in ("seconds", "waited_seconds", "cached"):
            del grader[name]
    return data


def saved(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("artifacts/**/*.png")}


@pytest.fixture
def suite(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Suite]:
    suite = Suite(toy)
    box = ((1.0, 2.0), (30.5, 2.0), (30.5, 9.0), (1.0, 9.0))
    monkeypatch.setattr(ocr, "read_flat", lambda image: [Reading("HELLO", 0.9876, box), Reading("x", 0.25, box)])
    suite.spy(monkeypatch, ocr, "read_flat", "ocr")
    monkeypatch.setattr(second_look, "look_again", lambda images, readings, expected, limit: readings)
    suite.spy(monkeypatch, second_look, "look_again", "second look")
    suite.spy(monkeypatch, text, "check", "comparison")
    suite.spy(monkeypatch, locality, "measure_locality", "locality")
    suite.spy(monkeypatch, reference, "measure_reference", "reference")
    suite.spy(monkeypatch, properties, "read_facts", "properties")
    return suite


def test_a_second_run_measures_nothing_and_records_the_same(suite: Suite) -> None:
    suite.write("a", "b")
    assert suite.run("one") == Counter(dict.fromkeys(ONCE, 2))
    assert suite.run("two") == {}
    one, two = suite.records("one"), suite.records("two")
    assert {name: without_run(two[name]) for name in two} == {name: without_run(one[name]) for name in one}
    assert {grader.cached for record in one.values() for grader in record.graders} == {False}
    assert {grader.cached for record in two.values() for grader in record.graders} == {True}
    folders = [suite.toy.folder / "runs" / name for name in ("one", "two")]
    assert saved(folders[0]) == saved(folders[1])
    assert len(saved(folders[1])) == 2 * 3, "two outputs, each with two difference maps"


def test_transparency_survives_the_cache(suite: Suite) -> None:
    for name in ("base", "ref", "out/a"):
        path = suite.toy.folder / f"{name}.png"
        with Image.open(path) as image:
            clear = image.convert("RGBA")
        ImageDraw.Draw(clear).text((2, 2), "fine detail", fill="black")
        clear.putalpha(Image.linear_gradient("L").resize(clear.size) if name == "out/a" else 200)
        clear.save(path)
    suite.write()
    assert suite.run("one", code=None) == ONCE
    assert suite.run("two", code=None) == {}
    one, two = suite.records("one")["a"], suite.records("two")["a"]
    assert without_run(two) == without_run(one)
    details = {grader.key: grader.details for grader in two.graders}
    assert details["place"]["alpha_outside"], "measured on two backgrounds"
    assert details["like"]["alpha"]
    assert two.scores["file.alpha"] is True, "the image to edit is transparent"
    assert {"place.sharpness_outside", "place.shift", "place.magnification", "like.shift"} <= two.scores.keys()


def test_what_glyphs_show_and_doubtful_signs_survive_the_cache(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    box = ((1.0, 2.0), (30.5, 2.0), (30.5, 9.0), (1.0, 9.0))
    readings = [Reading("0ffice", 0.99, box, ((0, "O"),)), Reading("三", 0.95, box)]
    monkeypatch.setattr(ocr, "read_flat", lambda image: readings)
    suite.spy(monkeypatch, ocr, "read_flat", "ocr")
    suite.write(graders=[LOCAL[0]], verdict=["copy"])
    assert suite.run("one", code=1) == Counter(ocr=1) + LOOKED
    case = {"expect": {"text": {"required": ["Office"], "extra": "forbid"}}}
    suite.write(graders=[LOCAL[0]], verdict=["copy"], case=case)
    assert suite.run("two") == LOOKED, "what is extra may hide"
    assert suite.run("three") == {}
    two, three = suite.records("two")["a"], suite.records("three")["a"]
    assert without_run(three) == without_run(two)
    assert (three.scores["copy"], three.scores["copy.doubtful_extra"]) == (True, 1)
    (copy,) = three.graders
    assert copy.details["doubtful_extra"][0]["box"] == [list(corner) for corner in box]


def test_a_second_look_is_replayed_without_the_image(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    box = ((40.0, 20.0), (90.0, 20.0), (90.0, 40.0), (40.0, 40.0))
    again = [Reading("GOODBYE", 0.9, box, read_as="GOODBVE"), Reading("SALF", 0.8, box, possible="SALE")]
    monkeypatch.setattr(second_look, "look_again", lambda images, readings, expected, limit: again)
    suite.spy(monkeypatch, second_look, "look_again", "second look")
    suite.write(graders=[LOCAL[0]], verdict=["copy"], case={"expect": {"text": {"required": ["GOODBYE", "SALE"]}}})
    assert suite.run("one", code=None) == Counter({"ocr": 1, "comparison": 2, "second look": 1})
    for function in ("load_image", "size_of"):
        suite.spy(monkeypatch, text, function, "opened")
    assert suite.run("two", code=None) - Counter(opened=1) == {}, "its size decides whether there is a second look"
    one, two = suite.records("one")["a"], suite.records("two")["a"]
    assert without_run(two) == without_run(one)
    (copy,) = two.graders
    assert two.scores["copy"] is None
    assert [(line["text"], line.get("read_as"), line.get("possible")) for line in copy.details["lines"]] == [
        ("GOODBYE", "GOODBVE", None),
        ("SALF", None, "SALE"),
    ]
    assert suite("grade", "one", "--trust-suite", "--run-id", "three", "--reuse", "none", code=None) != {}


def test_a_comparison_belongs_to_its_readings(suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    suite.write(graders=[LOCAL[0]], verdict=["copy"])
    suite.run("one", "--cache", cache)
    monkeypatch.setattr(ocr, "read_flat", lambda image: [Reading("OTHER", 0.9)])
    rewrite(cache, lambda entry: {} if "passed" in str(entry.answer) else None)  # not those of OCR
    assert suite.run("two", "--cache", cache, code=1) == LOOKED
    assert suite.records("two")["a"].scores["copy"] is False


def test_equal_images_share_their_measurements_in_one_run(suite: Suite) -> None:
    shutil.copyfile(suite.toy.folder / "out/a.png", suite.toy.folder / "out/b.png")
    suite.write("a", "b")
    assert suite.run("one") == ONCE
    one = suite.records("one")
    assert one["a"].scores == one["b"].scores


def test_samples_and_selections_share_measurements(suite: Suite) -> None:
    suite.write("a", "b", "c")
    assert suite.run("one", "--case", "b") == ONCE
    assert suite.run("two", "--limit", "2", "--samples", "2") == ONCE, "only case a is new"
    assert suite.run("three", "--grader", "file", "--grader", "copy") == Counter(ocr=1, comparison=1, properties=1)
    assert suite.run("four", "--resume", "three", code=2) == {}
    assert suite.run("five") == Counter(locality=1, reference=1)


def test_resume_and_grade_measure_nothing_again(suite: Suite) -> None:
    suite.write("a", "b")
    suite.run("one", "--case", "a")
    results = suite.toy.folder / "runs/one/results.jsonl"
    results.write_bytes(b"")
    assert suite("run", "--resume", "one", "--trust-suite") == {}
    assert suite.records("one")["a"].verdict is Verdict.PASS
    assert suite("grade", "one", "--trust-suite", "--run-id", "two") == {}
    assert suite("grade", "one", "--trust-suite", "--run-id", "three", "--reuse", "none") == ONCE
    assert suite("report", "one", "-o", suite.toy.folder / "page.html") == {}


def test_a_second_probe_measures_nothing(suite: Suite) -> None:
    suite.write()
    suite.run("one")
    words = ("probe", "one", "--trust-suite", "--kinds", "pixels.blank")
    assert suite(*words, code=None) == ONCE, "the output itself is measured already"
    assert suite(*words, code=None) == {}


CHANGES: dict[str, tuple[dict[str, Any], Counter[str]]] = {
    "a limit": ({"max_changed_outside": 0.5, "min_changed_inside": 0}, Counter()),
    "the border": ({"dilate": 2}, Counter(locality=1)),
    "the tolerance": ({"tolerance": "exact", "dilate": 8}, Counter(locality=1)),
    "the key": ({"key": "spot"}, Counter()),
}


def test_only_options_that_change_a_measurement_make_it_again(suite: Suite) -> None:
    suite.write()
    suite.run("one")
    for number, (options, expected) in enumerate(CHANGES.values()):
        suite.write(graders=[{**grader, **options} if grader["key"] == "place" else grader for grader in LOCAL])
        assert suite("grade", "one", "--suite", "suite.yaml", "--run-id", f"r{number}") == expected, options


def test_changed_expectations_need_no_ocr(suite: Suite) -> None:
    suite.write()
    suite.run("one")
    suite.write(case={"expect": {"text": {"required": ["GOODBYE"]}, "size": "97x64"}})
    assert suite.run("two", code=1) == LOOKED
    assert suite.records("two")["a"].failed_rules == ("copy", "file")
    confident = [{**grader, "min_confidence": 0.2} if grader["key"] == "copy" else grader for grader in LOCAL]
    suite.write(graders=confident)
    assert suite.run("three") == Counter(comparison=1)
    assert [line["counted"] for line in suite.records("three")["a"].graders[0].details["lines"]] == [True, True]  # type: ignore[index, union-attr, call-overload]


def test_a_changed_file_at_the_same_path_is_measured(suite: Suite) -> None:
    suite.write()
    suite.run("one")
    again = {"base": Counter(locality=1), "mask": Counter(locality=1), "ref": Counter(reference=1), "out/a": ONCE}
    for number, (name, expected) in enumerate(again.items()):
        path = suite.toy.folder / f"{name}.png"
        with Image.open(path) as image:
            changed = image.copy()
        changed.putpixel((50, 30), (1, 2, 3, 0)[: len(changed.getbands())])
        changed.save(path)
        assert suite.run(f"r{number}", code=None) == expected, name


def test_other_tools_measure_again(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    suite.write()
    suite.run("one")
    monkeypatch.setattr(ocr, "tool_versions", lambda: {"rapidocr": "next"})
    assert suite.run("two") == Counter(ocr=1, comparison=1)
    monkeypatch.setattr("visioneval.graders.measures.code_sha256", lambda: "changed")
    assert suite.run("three") == ONCE
    assert suite.run("four") == {}
    monkeypatch.setattr("visioneval.graders.measures.code_sha256", lambda: None)
    assert suite.run("five") == ONCE, "code that cannot be identified is not cached"
    assert suite.run("six") == ONCE


def test_a_committed_cache_replays_elsewhere_offline(suite: Suite, tmp_path: Path) -> None:
    models = [{"provider": "mine:Generate", "label": "m"}]
    case = {"id": "a", "expect": {"text": {"required": ["HELLO"]}}}
    suite.toy.write(case, models=models, graders=[LOCAL[0], LOCAL[3]], verdict=["copy"])
    expected = Counter(ocr=1, comparison=1, properties=1)
    assert suite.run("one", "--cache", tmp_path / "cache") == expected
    (tmp_path / "cache").rename(tmp_path / "elsewhere")
    with read_only(tmp_path / "elsewhere"):
        assert suite.run("two", "--cache", tmp_path / "elsewhere", "--offline") == {}
        assert "read-only" not in suite.output
    rewrite(tmp_path / "elsewhere", lambda entry: None if entry.kind == "measure" else {})
    assert suite.run("three", "--cache", tmp_path / "elsewhere", "--offline") == expected, "measuring is no call"
    one, three = suite.records("one")["a"], suite.records("three")["a"]
    assert [grader.details for grader in one.graders] == [grader.details for grader in three.graders]


def with_path(answer: dict[str, Any]) -> None:
    answer["images"] = dict.fromkeys(answer["images"], "../../../victim")


DAMAGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "no result": lambda answer: answer.pop("result"),
    "numbers": lambda answer: answer.update(result=1, images=2),
    "a checksum of something else": lambda answer: answer.update(sha256="0" * 64),
    "another image": with_path,
    "cut": lambda answer: answer.update(result=answer["result"][:-5]),
}


def test_a_damaged_entry_is_measured_again_with_one_line(suite: Suite, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    suite.write(graders=[LOCAL[1]], verdict=["place.changed_outside <= 1"])
    suite.run("one", "--cache", cache)
    for number, (name, damage) in enumerate(DAMAGES.items()):
        damaged = shutil.copytree(cache, tmp_path / str(number))
        suite.edit_cache(damaged, damage)
        assert suite.run(f"r{number}", "--cache", damaged) == Counter(locality=1), name
        assert suite.output.count("ignoring a damaged measurement in the cache") == 1
        assert suite.records(f"r{number}")["a"].scores == suite.records("one")["a"].scores
    assert suite.run("last", "--cache", damaged) == {}, "it was replaced"


def test_entries_of_other_files_are_no_results(suite: Suite, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    suite.write("a", "b", graders=[LOCAL[1]], verdict=["place.changed_outside <= 1"])
    suite.run("one", "--cache", cache)
    one, two = answer_files(cache).values()
    answers = {one.key: two.answer, two.key: one.answer}
    rewrite(cache, lambda entry: {"answer": answers[entry.key]})
    assert suite.run("two", "--cache", cache) == Counter(locality=2)
    assert suite.output.count("its checksum does not match") == 2


def test_a_forged_image_name_deletes_and_reads_no_file(suite: Suite, tmp_path: Path) -> None:
    from visioneval.running.cells.measurements import _checksum

    cache, victim = tmp_path / "cache", tmp_path / "victim"
    victim.write_text("here first")
    suite.write(graders=[LOCAL[1]], verdict=["place.changed_outside <= 1"])
    suite.run("one", "--cache", cache)
    name = "../../victim"
    (entry,) = answer_files(cache).values()
    answer = {**entry.answer, "images": {"difference_map": name}}
    answer["sha256"] = _checksum(entry.key, answer["result"], answer["images"])
    rewrite(cache, lambda _: {"answer": answer})
    assert suite.run("two", "--cache", cache) == Counter(locality=1)
    assert "names no image" in suite.output
    assert suite.toy("cache", "clear", "--yes", "--cache", cache).exit_code == 0
    assert victim.read_text() == "here first"


def test_a_damaged_map_is_made_again(suite: Suite, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    suite.write(graders=[LOCAL[1]], verdict=["place.changed_outside <= 1"])
    suite.run("one", "--cache", cache)
    before = saved(suite.toy.folder / "runs/one")
    (stored,) = cache.glob("files/*/*")
    for number, content in enumerate((b"", b"not the map")):
        stored.unlink()
        stored.write_bytes(content)
        assert suite.run(f"r{number}", "--cache", cache) == Counter(locality=1)
        assert saved(suite.toy.folder / f"runs/r{number}") == before


def test_errors_are_not_cached(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        suite.counted["broken"] += 1
        raise GraderError("the lens is dirty")

    monkeypatch.setattr(locality, "measure_locality", broken)
    suite.write("a", "b", graders=[LOCAL[1]], verdict=["place"])
    shutil.copyfile(suite.toy.folder / "out/a.png", suite.toy.folder / "out/b.png")
    for name in ("one", "two"):
        assert suite.run(name, code=3) == Counter(broken=2), "nor are they shared"
        errors = [record.error for record in suite.records(name).values()]
        assert [error.message for error in errors if error] == ["place: the lens is dirty"] * 2
    assert suite.toy("cache", "info").output.splitlines()[3].split() == ["measurements", "0"]


def test_custom_graders_are_asked_each_time(suite: Suite) -> None:
    (suite.toy.folder / "counted.py").write_text(
        "from visioneval import Grade\n"
        "class Count:\n"
        "    calls = 0\n"
        "    def __init__(self, config): pass\n"
        "    def grade(self, context):\n"
        "        Count.calls += 1\n"
        "        return Grade(scores={'calls': Count.calls})\n"
    )
    custom = {"key": "count", "type": "counted:Count", "writes": {"calls": {"type": "number"}}}
    suite.write(graders=[LOCAL[3], custom], verdict=["file"])
    suite.run("one")
    assert suite.run("two") == {}
    assert [suite.records(name)["a"].scores["calls"] for name in ("one", "two")] == [1, 2]
    assert [grader.cached for grader in suite.records("two")["a"].graders] == [True, False]


def test_a_full_cache_does_not_stop_measuring(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    suite.write("a", "b")
    monkeypatch.setattr("visioneval.running.calls.cache.store_content", full)
    assert suite.run("one")["locality"] == 2
    assert suite.output.count("measurements of this run are no longer cached") == 1
    assert {record.verdict for record in suite.records("one").values()} == {Verdict.PASS}


def test_two_processes_share_a_cache(suite: Suite, tmp_path: Path) -> None:
    path = suite.write("a", "b", "c", graders=LOCAL[1:], verdict=["file"])
    words = ["run", path, "--trust-suite", "--cache", tmp_path / "cache", "--quiet"]
    programs = [suite.toy.program(*words, "--run-id", name) for name in ("one", "two")]
    ended = [(program.communicate(timeout=120)[1], program.returncode) for program in programs]
    assert [code for _, code in ended] == [0, 0], ended
    one, two = suite.records("one"), suite.records("two")
    assert {name: one[name].scores for name in one} == {name: two[name].scores for name in two}
    suite.write("a", "b", "c", graders=LOCAL[1:], verdict=["file"])
    assert suite.run("three", "--cache", tmp_path / "cache") == {}


def test_the_code_of_one_grader_is_in_the_key_of_its_own_measures_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def versions(*code: str) -> dict[str, str] | None:
        return Measure("m", {}, lambda: 1, int, code=code).versions

    before, of_all = versions("palette"), versions()
    monkeypatch.setattr("visioneval.graders.measures.hash_of", lambda *patterns: str(patterns))
    monkeypatch.setattr("visioneval.graders.measures.code_sha256", lambda: (of_all or {})["code"])
    assert versions() == of_all
    assert versions("palette") != before
    assert versions("palette") != versions("codes")
