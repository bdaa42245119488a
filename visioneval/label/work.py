"""What one start of the label server asks about: runs read, cells chosen, the seed found again or made."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from visioneval.analysis.review_priority import ReviewPriority
from visioneval.errors import UsageError
from visioneval.label.asking import questions
from visioneval.label.images import FILMS, can_strip_videos
from visioneval.label.sampling import Candidate, Which, choose, pairs
from visioneval.label.sittings import LabelSession, SessionEntry, append_entries, read_entries
from visioneval.records.labels import LABELS, Label, is_of, of_today, read_anchors, read_labels
from visioneval.records.model import Record, RunInfo, find_run, read_info, read_records
from visioneval.suite.labels import LabelPair, LabelQuestion
from visioneval.suite.loading.messages import did_you_mean
from visioneval.suite.outputs import split_run


@dataclass(frozen=True, slots=True)
class LabelRequest:
    """What the command line asks for. ``run`` and ``pairs`` are a RUN or RUN@LABEL; ``repeat`` is a share, 0 to 1."""

    run: str
    out: Path
    which: str = "all"
    pairs: str | None = None
    repeat: float = 0.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What raters are asked, ready to be dealt. ``other`` is the folder of the run that is held against this one."""

    folder: Path
    other: Path
    info: RunInfo
    asked: tuple[LabelQuestion, ...] | tuple[LabelPair, ...]
    subjects: tuple[Candidate, ...]
    anchors: tuple[Candidate, ...]
    session: LabelSession
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    """A run that was read, narrowed to one model run where a label was named.

    ``seen`` are the cells with an image that is still there.
    """

    folder: Path
    info: RunInfo
    records: tuple[Record, ...]
    seen: tuple[Record, ...]
    label: str | None

    @classmethod
    def named(cls, name: str, out: Path) -> _Run:
        path = (Path(name) / "run.json").is_file()
        run, label = (name, None) if path else split_run(name)
        folder = find_run(run, out)
        info, records = read_info(folder), tuple(read_records(folder))
        if label is not None:
            labels = {record.model_label for record in records}
            if label not in labels:
                raise UsageError(f"no model run {label!r} in {folder.name}{did_you_mean(label, sorted(labels))}")
            records = tuple(record for record in records if record.model_label == label)
        seen = tuple(each for each in records if each.artifact_path and (folder / each.artifact_path).is_file())
        return cls(folder, info, records, seen, label)


def prepare(wish: LabelRequest) -> Work:
    """Chooses what is asked, and records the session.

    Without a seed that of the last session that asked for the same is used again. Raises ``UsageError`` where there
    is nothing to ask about, ``StorageError`` where the run's folder cannot be written.
    """
    which = Which.parse(wish.which)
    run = _Run.named(wish.run, wish.out)
    other = _Run.named(wish.pairs, wish.out) if wish.pairs is not None else None
    asked = questions(run.info.suite, of_pairs=other is not None)
    everything = _subjects(run, other)
    session = _session(wish, run, other)
    chosen = choose(everything, which, session.seed, ReviewPriority(run.info.suite, run.info.metrics).weight)
    if not chosen:
        raise UsageError(f"--which {wish.which}: nobody disputes a cell here; try random:N or stratified:N")
    anchors, lost = _anchored(run, everything)
    append_entries(run.folder, [SessionEntry(at=datetime.now(UTC).isoformat(), session=session)])
    return Work(
        folder=run.folder,
        other=other.folder if other else run.folder,
        info=run.info,
        asked=asked,
        subjects=tuple(chosen),
        anchors=tuple(anchors),
        session=session,
        notes=tuple(_notes(run, everything, lost)),
    )


def _subjects(run: _Run, other: _Run | None) -> list[Candidate]:
    if other is None:
        found = [Candidate(record) for record in run.seen]
        if not found:
            raise UsageError(f"{run.folder}: there is no image here to ask about")
        return found
    found = pairs(run.seen, other.seen, other.info.run_id)
    if not found:
        raise UsageError(
            f"--pairs {other.info.run_id}: no cell has an image here and there;"
            " two model runs of one run are RUN@LABEL --pairs RUN@LABEL"
        )
    return found


def _session(wish: LabelRequest, run: _Run, other: _Run | None) -> LabelSession:
    against = None if other is None else f"{other.info.run_id}@{other.label}" if other.label else other.info.run_id
    seed = secrets.randbelow(2**31) if wish.seed is None else wish.seed
    new = LabelSession(which=wish.which, repeat=wish.repeat, cells=run.label, pairs=against, seed=seed)
    if wish.seed is not None:
        return new
    past = [entry.session for entry in read_entries(run.folder) if entry.session is not None]
    return next((each for each in reversed(past) if each.asks_the_same(new)), new)


def _anchored(run: _Run, everything: Iterable[Candidate]) -> tuple[list[Candidate], int]:
    """The subjects with an agreed answer, and how many agreed answers are about something that cannot be shown."""
    known = {each.key: each for each in everything}
    pairing = any(key[3] is not None for key in known)
    wanted = {
        (*label.cell, label.other)
        for label in read_anchors(run.folder, run.info)
        if (label.other is not None) is pairing and _is_of_today(known.get((*label.cell, label.other)), label)
    }
    found = [known[key] for key in sorted(wanted & known.keys(), key=repr)]
    return found, len(wanted) - len(found)


def _is_of_today(subject: Candidate | None, anchor: Label) -> bool:
    return subject is None or is_of(subject.outputs, anchor)


def _notes(run: _Run, everything: Iterable[Candidate], lost: int) -> Iterable[str]:
    generated = [each for each in run.records if each.artifact_path]
    gone = len(generated) - len(run.seen)
    if len(run.records) > len(generated):
        yield f"{_cells(len(run.records) - len(generated))} without an image left out"
    if gone:
        yield f"{_cells(gone)} whose image is missing left out"
    if any(each.mime in FILMS for each in run.seen) and not can_strip_videos():
        yield "videos are shown with what their files say of their maker; to hide it: pip install '.[video]' (checkout)"
    known = {each.key: each.outputs for each in everything}
    labels = read_labels(run.folder / LABELS)
    _, outdated = of_today(labels, lambda label: known.get((*label.cell, label.other), (None, None)))
    if outdated:
        yield f"answers about images that were generated again since, which count no more: {outdated:,}"
    if lost:
        yield f"{_cells(lost)} with an agreed answer not in what is asked here, left out"


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count:,} cells"
