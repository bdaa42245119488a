"""Hostile changes of a run's files, and the faults of a command that reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from hostile import COMMANDS, FILES, LABEL_PAGE, call, serve_label_page
from markdown_it import MarkdownIt

from visioneval import RunFormatError, VisionEvalError, read_info, read_records
from visioneval.analysis.sides import Cell
from visioneval.label.work import read_entries
from visioneval.records.baselines import read_baseline
from visioneval.records.between_cells import read_diversity, read_preferences
from visioneval.records.labels import read_draws, read_labels
from visioneval.records.questions import read_questions
from visioneval.records.reader import open_records

MARK = "hostilemark"
ESCAPES = f"\x1b[31m{MARK}\x1b]0;title\x07\x9b2J\u202e\x00\r\nnext"
HTML = f"</script><{MARK} on{MARK}=1><script>{MARK}()</script>\"'><img src=x on{MARK}=1>{{{{ 7*7 }}}}"
MARKDOWN = f"\n\n# {MARK}\n[{MARK}](http://{MARK}.example) ![{MARK}](http://{MARK}.example) <{MARK}>`` @{MARK}"
RICH = f"[red]{MARK}[/red] [link=http://{MARK}.example]x[/link] [/] :smile:"
RAW = ("NaN", "Infinity", "-Infinity", "1e999", "1" * 400, "1" * 5000)
"""Numbers that JSON does not know, or that no float and no digit limit takes."""


@dataclass(frozen=True)
class _Raw:
    """A token that is written verbatim."""

    token: str


VALUES: tuple[Any, ...] = (
    None, True, 7, -3, 0, 1e308, -1e308, 1e15, 2**70, "word", "", [], {}, ["word"], [None], {"word": 1}, [[[{}]]],
    "x" * 200_000, ESCAPES, HTML, MARKDOWN, RICH, "\ud800", "../../x", "/etc/passwd", *map(_Raw, RAW),
)  # fmt: skip
Path_ = tuple[str | int, ...]


@dataclass(frozen=True)
class Change:
    """One change of one file: a value, or ``DELETE``, at a path in one of its documents; ``key`` renames a key."""

    file: str
    line: int
    path: Path_
    value: Any
    is_key: bool = False

    def __str__(self) -> str:
        what = repr(self.value)
        return f"{self.file}:{self.line + 1}: {'.'.join(map(str, self.path))} {'called' if self.is_key else '='} {what:.60}"


class _Delete:
    def __repr__(self) -> str:
        return "DELETE"


DELETE = _Delete()
KEYS = (ESCAPES, HTML, "x" * 3000, "")


def documents(path: Path, kind: str) -> list[Any]:
    """The JSON documents of a file."""
    text = path.read_text()
    return [json.loads(text)] if kind == "one" else [json.loads(line) for line in text.splitlines()]


def paths_in(data: Any, at: Path_ = ()) -> Iterator[Path_]:
    """Every value within a document, containers included, by its keys and indices."""
    if at:
        yield at
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from paths_in(value, (*at, key))


def apply(change: Change, folder: Path) -> None:
    """Writes the file anew, changed."""
    path, kind = folder / change.file, FILES[change.file]
    result = documents(path, kind)
    *way, last = change.path
    inner = result[change.line]
    for key in way:
        inner = inner[key]
    if change.value is DELETE:
        del inner[last]
    elif change.is_key:
        inner[change.value] = inner.pop(last)
    else:
        inner[last] = change.value
    raw = {f"@raw{at}@": token for at, token in enumerate(RAW)}
    names = {token: name for name, token in raw.items()}
    text = "".join(
        json.dumps(item, default=lambda value: names[value.token], separators=(",", ":")) + "\n" for item in result
    )
    for name, token in raw.items():
        text = text.replace(f'"{name}"', token)
    path.write_text(text)


def changes(folder: Path) -> Iterator[Change]:
    """Every change of every file, in a fixed order."""
    for name, kind in FILES.items():
        for line, document in enumerate(documents(folder / name, kind)):
            for position in paths_in(document):
                yield Change(name, line, position, DELETE)
                yield from (Change(name, line, position, value) for value in VALUES)
                if isinstance(position[-1], str):
                    yield from (Change(name, line, position, key, is_key=True) for key in KEYS)


def _door(name: str) -> Callable[[Path], Any]:
    """What reads one of the files, and refuses it where it does not fit."""
    folders = {
        "run.json": read_info,
        "questions.json": read_questions,
        "labeling.jsonl": read_entries,
        "labeling_draws.jsonl": read_draws,
        "preferences.jsonl": read_preferences,
        "diversity.jsonl": read_diversity,
        "results.jsonl": lambda folder: list(read_records(folder)),
    }
    files = {
        "labels.jsonl": read_labels,
        "anchors.jsonl": read_labels,
        "loose.jsonl": lambda path: list(open_records(path, Cell)),
        "main.jsonl": read_baseline,
    }
    last = Path(name).name
    if last in folders:
        return lambda root: folders[last]((root / name).parent)
    return lambda root: files[last](root / name) if last in files else None


DOORS = {name: _door(name) for name in FILES}


def refusal(name: str, folder: Path) -> str | None:
    """Why a file is not read; ``None`` where it is. Any other exception is a fault."""
    try:
        DOORS[name](folder)
    except RunFormatError as error:
        return str(error)
    return None


def saturate(folder: Path, fits: Callable[[Any], bool], value: Any, *, skip: Sequence[str] = ()) -> int:
    """Sets every value that ``fits``, in the last document of every file, wherever its reader accepts it; returns how
    many.
    """
    many = 0
    for name, kind in FILES.items():
        path = folder / name
        *lines, before = [path.read_text()] if kind == "one" else path.read_text().splitlines()
        for position in list(paths_in(json.loads(before))):
            document = json.loads(before)
            old = _at(document, position)
            if position[-1] in skip or old is _MISSING or not fits(old):
                continue
            _at(document, position[:-1])[position[-1]] = value
            after = json.dumps(document, separators=(",", ":"))
            path.write_text("".join(f"{text}\n" for text in (*lines[:1], after)))  # those between are not read again
            if refusal(name, folder) is None:
                many, before = many + 1, after
        path.write_text("".join(f"{text}\n" for text in (*lines, before)))
    return many


_MISSING = object()


def _at(data: Any, position: Path_) -> Any:
    """The value at a path, or ``_MISSING`` if an earlier change removed it."""
    for key in position:
        if not (isinstance(data, dict) and key in data) and not (
            isinstance(data, list) and isinstance(key, int) and key < len(data)
        ):
            return _MISSING
        data = data[key]
    return data


ESCAPE = re.compile(r"[\x00-\x08\x0b-\x1f]")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


def faults(name: str, folder: Path) -> list[str]:
    """What a reader does wrong: a traceback, an exit code of no meaning, several lines of error, markup, escapes."""
    done = None if name == LABEL_PAGE else call(*COMMANDS[name])
    if done is None:
        return _label_page_faults()
    result = []
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        result.append(f"{name}: traceback: {done.exception!r:.300}")
    if done.exit_code not in (0, 1, 2, 3):
        result.append(f"{name}: exit code {done.exit_code}")
    problems = [line for line in done.stderr.splitlines() if " as stored in the run: " not in line]
    if done.exit_code == 2 and (len(problems) > 2 or not done.stderr.strip()):
        result.append(f"{name}: not one line of error: {done.stderr!r:.800}")
    if hit := CONTROL.search(done.output):
        result.append(f"{name}: {hit[0]!r} reaches the terminal")
    return result + [f"{name}: {fault}" for word in COMMANDS[name] for fault in _file_faults(folder / word)]


def _label_page_faults() -> list[str]:
    try:
        sent = serve_label_page()
    except VisionEvalError:
        return []
    except Exception as error:
        return [f"{LABEL_PAGE}: traceback: {error!r:.300}"]
    return [f"{LABEL_PAGE}: control characters"] if ESCAPE.search(sent) else []


def _file_faults(path: Path) -> Iterator[str]:
    """What is wrong with what a command wrote."""
    if path.is_dir() and (path / "index.html").is_file():
        for item in (path / "index.html", *(path / "data").iterdir()):
            yield from _file_faults(item)
    elif path.is_file() and path.suffix in (".html", ".js", ".md", ".xml"):
        text = path.read_text(encoding="utf-8")
        if ESCAPE.search(text):
            yield f"{path.name}: control characters"
        if _marked(path.suffix, text):
            yield f"{path.name}: the stranger's text is markup"


class _Tags(HTMLParser):
    """Whether a page has an injected element or attribute, or a script that is not the project's."""

    def __init__(self) -> None:
        super().__init__()
        self.hits = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hits += MARK in tag or any(MARK in name for name, _ in attrs)
        self.hits += any(
            name in ("href", "src") and MARK in (value or "") and value[:1] != "#" for name, value in attrs if value
        )


def _marked(kind: str, text: str) -> bool:
    if kind == ".js":
        return "</script" in text.lower()
    if kind == ".xml":
        return any(MARK in item.tag for item in ET.fromstring(text).iter())
    if kind == ".md":
        text = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    tags = _Tags()
    tags.feed(text)
    return tags.hits > 0
