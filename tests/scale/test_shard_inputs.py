"""``merge`` refuses shards that were run with different files: on the suite's machine, and on any other."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from visioneval import TestCase, read_records
from visioneval.cli import app
from visioneval.suite.runs import Shard, cases_of_shard

CASES: list[dict[str, Any]] = [
    {"id": "boat", "prompt": "a red boat"},
    {"id": "cow", "prompt": "a cow"},
    {"id": "own", "prompt": "a bird", "images": ["own.png"]},
    {"id": "turns", "turns": [{"prompt": "three trees"}, {"prompt": "four trees"}]},
]
SUITE: dict[str, Any] = {
    "name": "edits",
    "task": "image_editing",
    "cases": [
        {"images": ["in.png"], "masks": {"editable": "mask.png"}, "reference": "ref.png", **case} for case in CASES
    ],
    "models": [{"provider": "mock", "params": {"size": "64x64"}}],
    "judges": {"eyes": {"provider": "recorded", "path": "answers.csv"}},
    "graders": [
        {"key": "file", "type": "properties"},
        {"key": "same", "type": "reference"},
        {
            "key": "look",
            "type": "rubric",
            "judge": "eyes",
            "template": "look.md.j2",
            "metrics": {"nice": {"type": "pass_fail", "description": "it is nice"}},
        },
    ],
    "samples": 2,
    "verdict": ["nice"],
    "gates": ["pass_rate >= 0"],
}
ANSWERS = "case,question,answer\n" + "".join(
    f"{case},nice,yes\n" for case in ("boat", "cow", "own", "turns/1", "turns/2")
)
FILES = {"answers.csv": ANSWERS, "look.md.j2": "{% include 'part.md.j2' %} {{ prompt }}", "part.md.j2": "Look."}


def image(path: Path, color: str) -> None:
    Image.new("RGB", (64, 64), color).save(path)


class Machine:
    """A folder with a suite of two shards, whose files can be changed between them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write()
        for name, text in FILES.items():
            (folder / name).write_text(text)
        for name in ("in.png", "own.png", "ref.png"):
            image(folder / name, "white")
        mask = Image.new("RGBA", (64, 64), "white")
        mask.paste((0, 0, 0, 0), (16, 16, 48, 48))
        mask.save(folder / "mask.png")

    def write(self, **changes: Any) -> None:
        (self.folder / "suite.yaml").write_text(json.dumps({**SUITE, **changes}))

    def __call__(self, *arguments: str) -> Any:
        return CliRunner().invoke(app, arguments, catch_exceptions=False)

    def shard(self, number: int, *flags: str) -> None:
        done = self("run", "suite.yaml", "--shard", f"{number}/2", "--run-id", f"s{number}", *flags)
        assert done.exit_code == 0, done.output

    def merge(self, code: int) -> str:
        done = self("merge", "s1", "s2", "--run-id", "all")
        assert done.exit_code == code, done.output
        assert (self.folder / "runs" / "all").exists() == (code != 2)
        return str(done.stderr)

    def move_away(self) -> None:
        """Afterwards, the folder has only the runs, as on a machine that shares a bucket."""
        for path in self.folder.iterdir():
            if path.name != "runs":
                path.unlink()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.chdir(tmp_path)
    return Machine(tmp_path)


def edited(name: str, old: str = "Look", new: str = "Look hard") -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text((folder / name).read_text().replace(old, new))


def repainted(name: str) -> Callable[[Path], object]:
    return lambda folder: image(folder / name, "yellow")


def smaller_mask(folder: Path) -> None:
    mask = Image.open(folder / "mask.png")
    mask.paste((255, 255, 255, 255), (16, 16, 20, 20))
    mask.save(folder / "mask.png")


CHANGES = [
    (edited("look.md.j2", "{{ prompt", "Well: {{ prompt"), "the template look.md.j2 or what it includes of the grader 'look'"),
    (edited("part.md.j2"), "the template look.md.j2 or what it includes of the grader 'look'"),
    (edited("answers.csv", "cow,nice,yes", "cow,nice,no"), "the table of recorded answers answers.csv of the grader 'look'"),
    (repainted("in.png"), "the input image in.png"),
    (smaller_mask, "the mask mask.png"),
    (repainted("ref.png"), "the reference ref.png"),
]  # fmt: skip
NAMES = ["template", "included template", "recorded answers", "input image", "mask", "reference"]


def test_the_cases_are_in_both_shards() -> None:
    cases = [TestCase(id=case["id"], prompt=case["prompt"], task="image_editing") for case in CASES[:3]]
    shards = [set(cases_of_shard(cases, Shard(number=number, count=2))) for number in (1, 2)]
    assert shards == [{"boat", "own"}, {"cow"}]


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["here", "elsewhere"])
@pytest.mark.parametrize(("change", "subject"), CHANGES, ids=NAMES)
def test_a_file_that_changed_between_shards_is_named(
    machine: Machine, change: Callable[[Path], object], subject: str, is_elsewhere: bool
) -> None:
    machine.shard(1)
    change(machine.folder)
    machine.shard(2)
    if is_elsewhere:
        machine.move_away()
    refused = machine.merge(2)
    assert refused.count("\n") == 1
    start = "runs/s2: differs from runs/s1 in" if is_elsewhere else r"runs/s1: '\S+' on 'mock' used"
    assert re.match(f"{start} {re.escape(subject)}[,:]", refused), refused
    if not is_elsewhere:
        assert machine("run", "--resume", "s1").exit_code == 0
        machine.merge(0)


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["here", "elsewhere"])
def test_shards_with_the_same_files_are_merged(machine: Machine, is_elsewhere: bool) -> None:
    machine.shard(1)
    image(machine.folder / "in.png", "white")  # written again, with the same content
    machine.shard(2)
    if is_elsewhere:
        machine.move_away()
    assert machine.merge(0) == ""


def test_a_file_of_one_shard_only_is_compared_with_the_suite(machine: Machine) -> None:
    """As a run of the whole suite would now use the new one, like the shard that is still to be run."""
    machine.shard(1)
    before = (machine.folder / "own.png").read_bytes()
    image(machine.folder / "own.png", "yellow")
    machine.shard(2)
    assert "runs/s1: 'own' on 'mock' used the input image own.png, which changed since then" in machine.merge(2)
    (machine.folder / "own.png").write_bytes(before)
    machine.merge(0)


def test_a_suite_that_changed_after_the_shards_is_not_the_one_to_compare_with(machine: Machine) -> None:
    machine.shard(1)
    machine.shard(2)
    machine.write(description="edited")
    image(machine.folder / "own.png", "yellow")
    machine.merge(0)


@pytest.mark.parametrize("lost", ["in.png", "mask.png", "ref.png", "part.md.j2", "look.md.j2", "answers.csv"])
def test_a_file_that_is_gone_hides_none_that_was_replaced(machine: Machine, lost: str) -> None:
    for number in (1, 2):
        machine.shard(number)
    image(machine.folder / "own.png", "yellow")
    assert "'own' on 'mock' used the input image own.png, which changed" in machine.merge(2)
    content = (machine.folder / lost).read_bytes()
    (machine.folder / lost).unlink()
    refused = machine.merge(2)
    assert (refused.count("\n"), lost in refused) == (1, True), refused
    assert refused.startswith("runs/s1: cannot be compared with its suite on this machine: "), refused
    (machine.folder / lost).write_bytes(content)
    assert "own.png" in machine.merge(2)


CODE = """
from visioneval.graders.base import Grade
class Grader:
    def __init__(self, config): pass
    async def grade(self, subject): return Grade(scores={"neat": True})
"""


def test_a_suite_that_needs_trust_is_not_compared_and_that_is_printed(machine: Machine) -> None:
    (machine.folder / "mine.py").write_text(CODE)
    neat = {"key": "neat", "type": "mine:Grader", "writes": {"neat": {"type": "bool"}}}
    machine.write(graders=[*SUITE["graders"], neat])
    for number in (1, 2):
        machine.shard(number, "--trust-suite")
    skipped = (
        "the shards are compared with each other, but not with the suite on this machine, which needs --trust-suite"
    )
    assert machine.merge(0) == f"{skipped}\n"
    shutil.rmtree(machine.folder / "runs/all")
    (machine.folder / "in.png").unlink()
    refused = machine.merge(2)
    assert (refused.count("\n"), "in.png" in refused) == (1, True), refused


@pytest.mark.parametrize("path", ["/dev/zero", "a\x00b", "x" * 5000, ""])
def test_a_path_of_a_suite_from_a_stranger_is_not_the_suite(machine: Machine, path: str) -> None:
    for number in (1, 2):
        machine.shard(number)
        header = machine.folder / f"runs/s{number}/run.json"
        header.write_text(json.dumps({**json.loads(header.read_text()), "suite_path": path}))
    machine.merge(0)


def test_outputs_that_changed_between_shards(machine: Machine) -> None:
    """Existing outputs, which only one shard reads each. Without them here, the suite's copy of them is unknown."""
    (machine.folder / "out").mkdir()
    for case in ("boat", "cow"):
        image(machine.folder / f"out/{case}.png", "red")
    models = [{"provider": "files", "label": "mine", "path": "out/{case}.png"}]
    machine.write(models=models, samples=1, cases=SUITE["cases"][:2])
    machine.shard(1)
    image(machine.folder / "out/boat.png", "blue")
    machine.shard(2)
    assert "'boat' on 'mine' used the output out/boat.png, which changed since then" in machine.merge(2)
    (machine.folder / "out/boat.png").unlink()
    assert machine.merge(0) == "not compared with the suite, whose outputs are not on this machine: out/boat.png\n"


def test_a_shard_whose_resume_was_interrupted_is_named(machine: Machine) -> None:
    """Its cells were graded with two templates: some before the resume, some after it."""
    machine.shard(1)
    machine.shard(2)
    results = machine.folder / "runs/s1/results.jsonl"
    lines = results.read_text().splitlines(keepends=True)
    edited("part.md.j2")(machine.folder)
    assert machine("run", "--resume", "s1").exit_code == 0
    results.write_text("".join([*lines, results.read_text().splitlines(keepends=True)[-1]]))
    machine.move_away()
    assert "runs/s1: its cells differ in the template look.md.j2" in machine.merge(2)


def test_secret_variables_are_not_needed_to_compare_shards(machine: Machine) -> None:
    machine.write(vars={"token": "x"})
    secret = ("--var", "token=sk-abcdefghijklmnopqrstuvwxyz0123456789")
    machine.shard(1, *secret)
    edited("part.md.j2")(machine.folder)
    machine.shard(2, *secret)
    assert "runs/s2: differs from runs/s1 in the template look.md.j2" in machine.merge(2)
    machine("run", "--resume", "s1", *secret)
    assert machine.merge(0).endswith("not with the suite on this machine, which needs its secret variables\n")


def test_changed_rows_of_a_dataset_are_another_suite(machine: Machine) -> None:
    rows = machine.folder / "rows.csv"
    rows.write_text("id,prompt\nboat,a red boat\ncow,a cow\n")
    table = {"dataset": {"path": "rows.csv", "fields": {"id": "id", "prompt": "prompt"}}}
    machine.write(task="image_generation", cases=[table], graders=[SUITE["graders"][2]])
    machine.shard(1)
    rows.write_text(rows.read_text().replace("a cow", "a cow outside"))
    machine.shard(2)
    assert "runs/s2: differs from runs/s1 in the suite" in machine.merge(2)


def test_other_versions_of_a_tool_are_a_warning(machine: Machine) -> None:
    """As in a run that was resumed on another machine, whose keys are the same."""
    machine.shard(1)
    machine.shard(2)
    results = machine.folder / "runs/s2/results.jsonl"
    record = next(read_records(results.parent))
    tool, version = next(iter(record.graders[0].fingerprint.tool_versions.items()))
    results.write_text(results.read_text().replace(f'"{tool}":"{version}"', f'"{tool}":"0.1"'))
    warned = machine.merge(0)
    assert warned == f"the shards were graded with different versions of {tool}: {version} (runs/s1), 0.1 (runs/s2)\n"
