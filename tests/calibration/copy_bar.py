"""``make copy-bar``: what the grader ``text`` decides with its defaults, over images whose copy is known.

    python -m tests.calibration.copy_bar [--images FILTER] [--part PART] [--fit | --state] [--out FILE] [--before FILE]

Parts: ``shared``, images of other people with a truth by hand (in the folder beside the project, or skipped); ``cards``,
drawn in many typefaces; ``words``, lone words and images without text. For each right image, mistakes are planted in what is
required, and for each card one in what is drawn: none of these may pass. Thresholds are fitted on the half ``--fit`` and
figures stated on the half ``--state``. ``--out`` writes every decision, and ``--before`` shows another such file beside.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any, get_args

from PIL import Image

from tests.calibration.copy_cases import NEVER_FAIL, SHARED, Case, CopyImage, Part, copy_images
from visioneval import GraderError, GradingContext, TestCase, grading_context
from visioneval.graders.measures import Measure
from visioneval.graders.text import TextGrader
from visioneval.graders.text.grader import Text
from visioneval.running.cells.measurements import measure_key
from visioneval.suite.case import Expect

KEY = "copy"
OUTCOMES = ("right", "undecided", "wrong")
TITLES = {
    "right": ("right copy", "pass", "cannot decide", "FAIL"),
    "wrong": ("wrong copy", "fail", "cannot decide", "PASS"),
    "alike": ("wrong copy, look-alikes only", "fail", "cannot decide", "PASS"),
    "word": ("lone words", "found", "cannot decide", "MISSED"),
    "blank": ("images without text", "no extra", "cannot decide", "FALSE EXTRA"),
}


@dataclass(frozen=True, slots=True)
class Decision:
    """What the grader decided on a case: ``right``, ``undecided`` or ``wrong``."""

    image: str
    case: str
    part: str
    kind: str
    group: str
    mistake: str
    is_alike: bool
    outcome: str
    expected: str
    reason: str

    @property
    def table(self) -> str:
        """The table that counts it."""
        if self.group in ("right", "word", "blank"):
            return self.group
        return "alike" if self.is_alike else "wrong"

    @property
    def rows(self) -> Iterator[str]:
        """The rows of its table that count it."""
        if self.table == "right":
            yield f"{self.part} {self.kind}"
            if self.kind not in NEVER_FAIL:
                yield f"{self.part} all that it must read"
        elif self.table in ("wrong", "alike"):
            place = {"in image": "in the image: ", "planted": "required: "}.get(self.group, "")
            yield f"{self.part} {place}{self.mistake}"
            yield f"{self.part} all"
        else:
            yield self.kind


def main() -> int:
    """Prints the tables, and lists what is not as it should be."""
    options = _options()
    parts: Sequence[Part] = [options.part] if options.part else get_args(Part)
    if "shared" in parts and not (SHARED / "truth.json").is_file():
        print(f"shared: skipped, as there is no {SHARED}")
    chosen = [
        _with_planted(copy_image, options.planted)
        for part in parts
        for copy_image in copy_images(part)
        if options.images in copy_image.name and copy_image.half in options.halves
    ]
    if not chosen:
        print("no image of this name", file=sys.stderr)
        return 2
    decisions, seconds = asyncio.run(_decide_all(chosen))
    before = json.loads(options.before.read_text(encoding="utf-8")) if options.before else None
    if options.out:
        data = {"decisions": [asdict(decision) for decision in decisions], "seconds": seconds}
        options.out.write_text(json.dumps(data, indent=1, ensure_ascii=False), encoding="utf-8")
    _report(decisions, seconds, chosen, before)
    return 0


def _with_planted(copy_image: CopyImage, most: int | None) -> CopyImage:
    """The image with at most so many mistakes in required text."""
    planted = [case for case in copy_image.cases if case.group == "planted"][:most]
    cases = tuple(case for case in copy_image.cases if case.group != "planted" or case in planted)
    return replace(copy_image, cases=cases)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.calibration.copy_bar")
    parser.add_argument("--images", default="", metavar="FILTER", help="only images whose name contains this")
    parser.add_argument("--part", choices=get_args(Part))
    parser.add_argument("--planted", type=int, metavar="N", help="of each image, the first N mistakes in required text")
    halves = parser.add_mutually_exclusive_group()
    halves.add_argument("--fit", dest="halves", action="store_const", const=("fit",))
    halves.add_argument("--state", dest="halves", action="store_const", const=("state",))
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    parser.add_argument("--before", type=Path, metavar="FILE.json")
    parser.set_defaults(halves=("fit", "state"))
    return parser.parse_args()


async def _decide_all(chosen: Sequence[CopyImage]) -> tuple[list[Decision], dict[str, float]]:
    """The decisions, and by image the CPU seconds of its first case, which finds and reads its text."""
    grader = Text(TextGrader(type="text", key=KEY))
    decisions: list[Decision] = []
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        await _load_models(grader, folder)
        for number, copy_image in enumerate(chosen, 1):
            path = copy_image.write(folder)
            context = replace(grading_context(path), measure=_Measured(path))
            for case in copy_image.cases:
                start = time.process_time()
                decisions.append(await _decide(grader, context, copy_image, case))
                seconds.setdefault(copy_image.name, time.process_time() - start)
            if path.parent == folder:
                path.unlink()
            if number % 50 == 0:
                print(f"{number} of {len(chosen)} images", file=sys.stderr, flush=True)
    return decisions, seconds


async def _load_models(grader: Text, folder: Path) -> None:
    """Reads an image, so that no image's seconds are those of loading the models."""
    path = folder / "first.png"
    Image.new("RGB", (64, 64)).save(path)
    context = grading_context(path)
    expect = Expect.model_validate({"text": {"extra": "forbid"}})
    await grader.grade(replace(context, case=TestCase(id="first", prompt="first", expect=expect)))


class _Measured:
    """The measurements of an image, each made once, by the key of a run's cache."""

    def __init__(self, path: Path) -> None:
        digest = sha256(path.read_bytes()).hexdigest()
        self._hash_of = lambda _: digest
        self._results: dict[str, Any] = {}

    async def __call__(self, measure: Measure[Any]) -> Any:
        key = measure_key(measure, self._hash_of)
        assert key is not None
        if key not in self._results:
            self._results[key] = measure.run()
        return self._results[key]


async def _decide(grader: Text, context: GradingContext, copy_image: CopyImage, case: Case) -> Decision:
    """The grader's decision on a case. What it refuses to read is undecided."""
    expect = Expect(text=case.expect)
    test = TestCase(id="case", prompt=case.name, expect=expect)
    try:
        grade = await grader.grade(replace(context, case=test))
        passed, reason = grade.scores[KEY], grade.reasons[KEY]
    except GraderError as error:
        passed, reason = None, str(error)
    outcome = "undecided" if passed is None else OUTCOMES[2 * (passed != case.passes)]
    expected = " | ".join((*case.expect.required, *case.expect.forbidden))
    return Decision(
        copy_image.name,
        case.name,
        copy_image.part,
        copy_image.kind,
        case.group,
        case.mistake,
        case.is_alike,
        outcome,
        expected,
        reason,
    )


def _report(
    decisions: Sequence[Decision],
    seconds: Mapping[str, float],
    chosen: Sequence[CopyImage],
    before: Mapping[str, Any] | None,
) -> None:
    names = {(decision.image, decision.case) for decision in decisions}
    earlier = [Decision(**item) for item in before["decisions"]] if before else []
    earlier = [decision for decision in earlier if (decision.image, decision.case) in names]
    counts, earlier_counts = _counts(decisions), _counts(earlier) if before else None
    for table, (title, *columns) in TITLES.items():
        rows = {row: count for (of, row), count in counts.items() if of == table}
        if rows:
            print(f"\n{title:<44}" + "".join(f"{column:>16}" for column in columns))
        for row, count in sorted(rows.items()):
            past = earlier_counts[table, row] if earlier_counts is not None else None
            print(f"{row:<44}" + "".join(f"{_both(past, count, outcome):>16}" for outcome in OUTCOMES))
    _print_seconds(seconds, chosen, before["seconds"] if before else None)
    of_copy = ("wrong", "alike")
    _list("right cases that do not pass", (d for d in decisions if d.table not in of_copy and d.outcome != "right"))
    _list("wrong cases that pass", (d for d in decisions if d.table in of_copy and d.outcome == "wrong"))
    if before:
        _print_changes(decisions, earlier)


def _counts(decisions: Iterable[Decision]) -> dict[tuple[str, str], Counter[str]]:
    """Counts of outcomes by table and row."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for decision in decisions:
        for row in decision.rows:
            counts[decision.table, row][decision.outcome] += 1
    return counts


def _both(past: Counter[str] | None, count: Counter[str], outcome: str) -> str:
    now = str(count[outcome])
    return now if past is None or past[outcome] == count[outcome] else f"{past[outcome]} -> {now}"


def _print_seconds(
    seconds: Mapping[str, float], chosen: Sequence[CopyImage], before: Mapping[str, float] | None
) -> None:
    """The CPU of the first case of an image, by part."""
    print(f"\n{'CPU seconds of the first case of an image':<44}{'images':>16}{'median':>16}{'most':>16}{'total':>16}")
    for part in dict.fromkeys(copy_image.part for copy_image in chosen):
        names = [copy_image.name for copy_image in chosen if copy_image.part == part]
        for label, source in (("before", before), (part, seconds)):
            found = [source[name] for name in names if name in source] if source is not None else []
            if found:
                figures = "".join(f"{value:>16.2f}" for value in (median(found), max(found), sum(found)))
                print(f"{label:<44}{len(found):>16}{figures}")


def _list(title: str, decisions: Iterable[Decision]) -> None:
    listed = list(decisions)
    print(f"\n{title}: {len(listed)}")
    for decision in listed:
        print(f"  {decision.image} ({decision.kind}), {decision.case}, {decision.outcome}: {decision.expected}")
        print(f"      {decision.reason}")


def _print_changes(decisions: Sequence[Decision], earlier: Sequence[Decision]) -> None:
    """The cases with another outcome than before."""
    past = {(decision.image, decision.case): decision.outcome for decision in earlier}
    changed = [d for d in decisions if past.get((d.image, d.case), d.outcome) != d.outcome]
    print(f"\ncases with another outcome: {len(changed)} of {len(past)}")
    for decision in changed:
        was = past[decision.image, decision.case]
        print(f"  {decision.image}, {decision.case}: {was} -> {decision.outcome}: {decision.expected}")


if __name__ == "__main__":
    sys.exit(main())
