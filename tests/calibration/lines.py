"""What the graders ``layout`` and ``contrast`` decide where the truth is known.

    python -m tests.calibration.lines shared [--images FILTER] [--fit | --state]
    python -m tests.calibration.lines drawn
    python -m tests.calibration.lines contrast [--fit | --state]
    python -m tests.calibration.lines probe [--images FILTER]

``shared``: relations that a person wrote about the images of ``../shared/data/copy`` (``line_relations.yaml``), each as it is and
reversed. ``drawn``: lines at known places, moved step by step over the boundary of each relation. ``contrast``: text in known
colors, by size, typeface and background. ``probe``: what both graders catch of lines that are
faded, shrunk and swapped in shared images, and how often they fail harmless changes. Thresholds are fitted on the half ``--fit`` and figures stated on the half ``--state``.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image, ImageColor, ImageDraw

import visioneval as ve
from tests.calibration.copy_cases import SHARED, half_of
from tests.support.images.drawn_lines import ink_box
from tests.support.images.typefaces import OWN, typeface
from visioneval import Grade, TestCase, grading_context
from visioneval.graders.layout import ContrastGrader, LayoutGrader
from visioneval.graders.layout.contrast import holds
from visioneval.graders.layout.grader import Layout
from visioneval.graders.layout.ink import contrast_ratio, ink_of
from visioneval.graders.layout.relations import LARGER
from visioneval.graders.text.layout import Corners
from visioneval.suite.case import Expect
from visioneval.suite.relations import KINDS

TRUTH = Path(__file__).with_name("line_relations.yaml")
KEY = "layout"
Entry = dict[str, Any]


def main() -> int:
    """Prints the tables of a part."""
    parser = argparse.ArgumentParser(prog="python -m tests.calibration.lines")
    parser.add_argument("part", choices=("shared", "drawn", "contrast", "probe"))
    parser.add_argument("--images", default="", metavar="FILTER", help="only images whose name contains this")
    halves = parser.add_mutually_exclusive_group()
    halves.add_argument("--fit", dest="halves", action="store_const", const=("fit",))
    halves.add_argument("--state", dest="halves", action="store_const", const=("state",))
    parser.set_defaults(halves=("fit", "state"))
    options = parser.parse_args()
    if options.part == "contrast":
        return _contrast(options.halves)
    if options.part == "drawn":
        return asyncio.run(_drawn())
    if not SHARED.is_dir():
        print(f"skipped, as there is no {SHARED}")
        return 0
    if options.part == "probe":
        return _probe(options.images)
    return asyncio.run(_shared(options.images, options.halves))


async def _shared(name: str, halves: Sequence[str]) -> int:
    """Each relation as it is, which must hold, and reversed, which must fail."""
    counts: Counter[tuple[str, str]] = Counter()
    both: Counter[str] = Counter()
    notes = []
    for file, entries in yaml.safe_load(TRUTH.read_text(encoding="utf-8")).items():
        if name not in file or half_of(file) not in halves:
            continue
        pairs = [(_relation(entry), _reversed(entry)) for entry in entries]
        grade = await _grade(SHARED / "images" / file, [each for pair in pairs for each in pair])
        found = grade.details["relations"]
        for at, entry in enumerate(entries):
            kind = next(key for key in KINDS if key in entry)
            as_is, turned = found[2 * at], found[2 * at + 1]
            outcomes = [_outcome(as_is["holds"], True), _outcome(turned["holds"], False)]
            counts[kind, outcomes[0]] += 1
            counts[f"{kind}, reversed", outcomes[1]] += 1
            both["right" if set(outcomes) == {"right"} else "wrong" if "wrong" in outcomes else "undecided"] += 1
            for outcome, result in zip(outcomes, (as_is, turned), strict=True):
                if outcome != "right":
                    notes.append(f"{outcome}: {file}: {result['relation']}: {result.get('why', 'holds')}")
    _print("relation", counts)
    print(f"\nboth ways: {both['right']} of {both.total()} right, {both['undecided']} undecided, {both['wrong']} wrong")
    print("\n".join(notes))
    return 0


def _outcome(holds: bool | None, truth: bool) -> str:
    return "undecided" if holds is None else "right" if holds is truth else "wrong"


def _print(title: str, counts: Counter[tuple[str, str]]) -> None:
    """A table as `docs/reference/measured.md` has it."""
    rows = dict.fromkeys(row for row, _ in counts)
    _print_table(
        [title, "right", "undecided", "wrong"],
        ([row, *(counts[row, outcome] for outcome in ("right", "undecided", "wrong"))] for row in rows),
    )


def _print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")


def _relation(entry: Entry) -> Entry:
    """The relation of an entry; YAML reads some names as numbers."""
    relation = {key: value for key, value in entry.items() if key != "instead"}
    return {key: list(map(str, value)) if key in KINDS else value for key, value in relation.items()}


def _reversed(entry: Entry) -> Entry:
    """A relation that is false where this one is true."""
    relation = _relation(entry)
    kind = next(key for key in KINDS if key in entry)
    if "instead" not in entry:
        return {**relation, kind: relation[kind][::-1]}
    changes = dict(entry["instead"])
    names = changes.pop("names", relation[kind])
    return {**relation, kind: names, **changes}


async def _grade(path: Path, entries: Sequence[Entry]) -> Grade:
    """The grade of all relations on an image, whose lines are all required."""
    relations, regions, lines = [], {}, dict[str, None]()
    for at, entry in enumerate(entries):
        relation = {key: value for key, value in entry.items() if key != "part"}
        if "part" in entry:
            relation["inside"] = [relation["inside"][0], f"part {at}"]
            regions[f"part {at}"] = entry["part"]
        relations.append(relation)
        kind = next(key for key in KINDS if key in relation)
        lines |= dict.fromkeys(name for name in relation[kind] if name not in regions)
    expect = Expect.model_validate({"text": {"required": list(lines)}, "layout": relations, "regions": regions})
    context = grading_context(path)
    case = TestCase(id="case", prompt="relations", expect=expect)
    return await Layout(LayoutGrader(type="layout", key=KEY)).grade(replace(context, case=case))


WORDS = ("Checkout", "Place order", "Total $48.20", "HEADLINE", "new users", "Save 20% today", "Edit basket", "Pay")
SIDE = 1024
IMAGES = 24
FACES = (OWN, "inter", "lora", "roboto slab", "poppins bold", "jetbrains")


async def _drawn() -> int:
    """Lines at random places, in sizes and at left edges that are steps apart: each pair by how far apart it is."""
    counts: Counter[tuple[str, str]] = Counter()
    notes = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(IMAGES):
            image, lines = _page(number)
            path = Path(folder) / f"{number}.png"
            image.save(path)
            asked = list(_questions(lines))
            grade = await _grade(path, [entry for entry, _, _ in asked])
            for (_, row, truth), found in zip(asked, grade.details["relations"], strict=True):
                outcome = _outcome(found["holds"], truth)
                counts[row, outcome] += 1
                if outcome == "wrong":
                    notes.append(f"wrong: {number}: {found['relation']} ({row}): {found.get('why', 'holds')}")
    _print("relation", Counter(dict(sorted(counts.items()))))
    print("\n".join(notes))
    return 0


@dataclass(frozen=True, slots=True)
class Drawn:
    """A drawn line: its font size, and its ink in pixels."""

    size: int
    left: float
    top: float
    right: float
    bottom: float


def _page(number: int) -> tuple[Image.Image, dict[str, Drawn]]:
    """A page of one typeface, with lines from top to bottom at distances of up to a line."""
    chance = np.random.default_rng(number)
    face = FACES[number % len(FACES)]
    image = Image.new("RGB", (SIDE, SIDE), "#fbf7f0")
    pen = ImageDraw.Draw(image)
    base, top, lines = int(chance.integers(18, 40)), 40.0, {}
    for word in chance.permutation(WORDS)[:6]:
        size = round(base * float(chance.choice([1, 1.1, 1.25, 1.5, 2])))
        left = 100 + float(chance.choice([0, 0, 5, 20, 60, 300]))
        font = typeface(face, size)
        ink = ink_box(word, font)
        pen.text((left - ink[0], top), word, "#1c1c22", font)
        box = (left, top + ink[1], left + ink[2] - ink[0], top + ink[3])
        lines[str(word)] = Drawn(size, *box)
        top = box[3] + size * float(chance.choice([0.15, 0.4, 1]))
    return image, lines


def _questions(lines: Mapping[str, Drawn]) -> Iterator[tuple[Entry, str, bool]]:
    """Relations of each two lines, with the row of the table that counts them, and whether they are true."""
    for (one, a), (two, b) in permutations(lines.items(), 2):
        gap = (b.top - a.bottom if a.top < b.top else a.top - b.bottom) / min(a.size, b.size)
        apart = "less than half a font size apart" if gap < 0.5 else "farther apart"
        yield {"above": [one, two]}, f"above, {apart}", a.bottom <= b.top
        ratio = a.size / b.size
        near = abs(ratio - LARGER) < 0.05
        sizes = "about 1.1 times as large" if near else "larger" if ratio > 1 else "of the same size or smaller"
        yield {"larger_than": [one, two]}, f"larger_than, {sizes}", ratio >= LARGER
        if one < two:
            is_aligned = abs(a.left - b.left) <= 0.01 * SIDE
            row = "aligned, up to 10 px apart" if is_aligned else "aligned, 15 px apart or more"
            yield {"aligned": [one, two], "edge": "left"}, row, is_aligned


_PROBED = {
    "drawn_font_caveat.png": None,
    "drawn_small_12_dark.png": None,
    "gpt4o_37.png": "GitHub",
    "gpt4o_59.png": "LONDON",
    "any_ref16.jpeg": None,
    "drawn_lc_c2.png": None,
    "drawn_smallq_14.jpg": None,
}
"""Images whose lines are listed from top to bottom, with the line that is larger than all others, if one is."""
_MOST_LINES = 6


def _probe(name: str) -> int:
    """The rates of each kind and strength of change, by both graders."""
    truth = {row["file"]: row["lines"] for row in json.loads((SHARED / "truth.json").read_text(encoding="utf-8"))}
    cases = []
    for file, largest in _PROBED.items():
        lines = [line for line in truth[file] if truth[file].count(line) == 1][:_MOST_LINES]
        if name not in file:
            continue
        layout: list[Entry] = [{"above": pair} for pair in pairwise(lines)]
        layout += [{"larger_than": [largest, *(line for line in lines if line != largest)]}] if largest else []
        expect = {"text": {"required": lines}, **({"layout": layout} if layout else {})}
        output = str(SHARED / "images" / file)
        cases.append({"id": file.partition(".")[0], "prompt": "x", "outputs": {"shown": [output]}, "expect": expect})
    suite = {
        "name": "lines",
        "cases": cases,
        "models": [{"provider": "files"}],
        "graders": [
            {"key": "copy", "type": "text"},
            {"key": "layout", "type": "layout"},
            {"key": "contrast", "type": "contrast", "min_ratio": 1.2, "min_ratio_large": 1.2},
        ],
        "verdict": ["copy", "layout", "contrast"],
    }
    for limit in (1.2, 3.0):
        suite["graders"][2] |= {"min_ratio": limit, "min_ratio_large": limit}  # type: ignore[index]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "suite.yaml"
            path.write_text(yaml.safe_dump(suite, allow_unicode=True), encoding="utf-8")
            kinds = ["copy.faded"] if limit > 2 else ["copy.smaller", "copy.swapped", "harmless"]
            result = ve.probe(path, kinds=kinds, trust_suite=True).findings
        print(f"\ncontrast of at least {limit:g}:1")
        rates = [rate for rate in (*result.detections, *result.false_alarms) if rate.metric in ("layout", "contrast")]
        rows: dict[str, dict[str, str]] = {}
        for rate in rates:
            rows.setdefault(f"{rate.kind} {rate.strength}", {})[str(rate.metric)] = f"{rate.failed} of {rate.outputs}"
        _print_table(
            ["change", "layout", "contrast"],
            ([row, found.get("layout", "-"), found.get("contrast", "-")] for row, found in rows.items()),
        )
        print("\n".join(result.notes))
    return 0


COLORS = (
    ("#000000", "#ffffff"),
    ("#767676", "#ffffff"),
    ("#999999", "#ffffff"),
    ("#dddddd", "#ffffff"),
    ("#ffffff", "#1a3a6a"),
    ("#2c2c2c", "#202020"),
    ("#1c4f8a", "#1a3a6a"),
    ("#f0b000", "#7a1020"),
    ("#e8e0d0", "#6b5a48"),
)
SIZES = (10, 12, 16, 24, 40, 80)
GROUNDS = ("flat", "JPEG", "gradient", "uneven")


def _contrast(halves: Sequence[str]) -> int:
    """The measured ratio over the true one, and the decisions at 4.5, by size, typeface and ground."""
    errors: dict[str, list[float]] = {}
    decided: Counter[tuple[str, str]] = Counter()
    config = ContrastGrader(type="contrast", key="contrast")
    for at, (face, size, colors, ground) in enumerate(product(FACES, SIZES, COLORS, GROUNDS)):
        if ("fit", "state")[at // len(GROUNDS) % 2] not in halves:
            continue
        image, text, corners, truth = _text(at, face, size, colors, ground)
        ink = ink_of(image, text, corners)
        if ink is None:
            continue
        for row in (f"{size} px", face, f"{ground} background"):
            errors.setdefault(row, []).append(ink.ratio / truth)
        limit = config.min_ratio_large if size >= config.large_px else config.min_ratio
        decided[f"{size} px", _outcome(holds(config, ink, ink.size or size), truth >= limit)] += 1
        decided[f"{ground} background", _outcome(holds(config, ink, ink.size or size), truth >= limit)] += 1
    shares = (
        (row, *(f"{share:.2f}" for share in np.percentile(values, [5, 50, 95]))) for row, values in errors.items()
    )
    _print_table(["measured over true ratio", "lowest 5 %", "median", "highest 5 %"], shares)
    print()
    _print("passes or fails with the defaults", decided)
    return 0


def _text(
    seed: int, face: str, size: int, colors: tuple[str, str], ground: str
) -> tuple[Image.Image, str, Corners, float]:
    """An image of a line in a color, its box as OCR would find it, and the true ratio, the lowest along the line."""
    chance = np.random.default_rng(seed)
    font, text = typeface(face, size), str(chance.choice(WORDS))
    left, top, right, bottom = font.getbbox(text)
    width, height = int(right + 4 * size), int(bottom + 3 * size)
    paper = np.broadcast_to(np.array(ImageColor.getrgb(colors[1]), np.float32), (height, width, 3))
    if ground == "gradient":
        paper = paper * np.linspace(0.7, 1, width)[None, :, None]
    if ground == "uneven":
        rough = chance.normal(0, 25, (4, 7)).astype(np.float32)
        paper = paper + np.asarray(Image.fromarray(rough).resize((width, height), Image.Resampling.BICUBIC))[..., None]
    image = Image.fromarray(np.clip(paper, 0, 255).astype(np.uint8))
    x, y = 2 * size, 1.5 * size
    box = (x + left, y + top, x + right, y + bottom)
    behind = np.asarray(image)[int(box[1]) : int(box[3]), int(box[0]) : int(box[2])].reshape(
        -1, int(box[2]) - int(box[0]), 3
    )
    truth = min(contrast_ratio(ImageColor.getrgb(colors[0]), column) for column in np.median(behind, axis=0))
    ImageDraw.Draw(image).text((x, y), text, colors[0], font)
    if ground == "JPEG":
        file = io.BytesIO()
        image.save(file, "JPEG", quality=85)
        image = Image.open(file).convert("RGB")
    above, beside = 0.27 * (bottom - top) + 1, 0.2 * (bottom - top) + 1
    x0, y0, x1, y1 = box[0] - beside, box[1] - above, box[2] + beside, box[3] + above
    return image, text, ((x0, y0), (x1, y0), (x1, y1), (x0, y1)), truth


if __name__ == "__main__":
    sys.exit(main())
