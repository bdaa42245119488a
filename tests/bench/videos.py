"""What the video grader catches, and which flawless videos fail: the figures of docs/reference/measured.md.

At low quality, the encoder still refines an image that stands still, which shortens the frozen time.
Run it with ``python -m tests.bench.videos``. It takes about ten minutes of CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.images import moving_videos
from visioneval.graders.properties import VideoGrader
from visioneval.graders.properties.frames import VideoFacts, measure_video

CRFS = (18, 28, 35)
"""Qualities of the encoding: high, usual and low."""
SEEDS = (1, 2, 3)
LIMITS = VideoGrader(key="video", type="video", duration=(moving_videos.SECONDS * 0.97, moving_videos.SECONDS * 1.03))
Damage = Callable[[moving_videos.Frames], moving_videos.Frames]

STRENGTHS: Mapping[str, Mapping[str, Damage]] = {
    "frozen": {f"{s:g} s": partial(moving_videos.frozen, seconds=s) for s in (0.25, 0.5, 0.75, 1, 1.5)},
    "black": {f"{s:g} s": partial(moving_videos.black, seconds=s) for s in (0.04, 0.1, 0.2, 0.25, 0.5, 1)},
    "flicker": {f"{s:g} %": partial(moving_videos.flickering, share=s / 100) for s in (1, 2, 4, 6, 8, 12, 20)},
    "slow flicker": {f"{s:g} %": partial(moving_videos.flickering, share=s / 100, period=4) for s in (4, 8, 12, 20)},
    "short": {f"-{s:g} %": partial(moving_videos.shortened, share=s / 100) for s in (2, 5, 10, 25, 50)},
}
DAMAGED = ("camera pan", "slow zoom", "hard cuts", "handheld camera")
"""The flawless videos in which damage is planted."""


def caught(facts: VideoFacts) -> set[str]:
    """The limits of the grader, with its defaults, that a video exceeds."""
    assert facts.frozen is not None
    assert facts.black is not None
    assert facts.flicker is not None
    assert facts.duration_s is not None
    assert LIMITS.duration is not None
    longest = max((end - start for start, end in facts.frozen), default=0.0)
    dark = sum(end - start for start, end in facts.black) / facts.duration_s
    exceeded = {
        "frozen": longest > (LIMITS.max_frozen_s or 0),
        "black": dark > (LIMITS.max_black_share or 0),
        "flicker": facts.flicker > (LIMITS.max_flicker or 0),
        "short": facts.duration_s < LIMITS.duration[0],
    }
    return {name for name, is_exceeded in exceeded.items() if is_exceeded}


def measured(frames: moving_videos.Frames, crf: int, folder: Path) -> VideoFacts:
    """The measures of frames that are encoded at this quality."""
    return measure_video(moving_videos.stored(folder / "video.mp4", frames, crf=crf))


def detections(folder: Path) -> Iterator[tuple[str, str, int, int]]:
    """Kind and strength of damage, how many videos were caught by any limit, and of how many."""
    for kind, strengths in STRENGTHS.items():
        for strength, damage in strengths.items():
            results = [
                bool(caught(measured(damage(moving_videos.CLEAN[name](seed)), crf, folder)))
                for name in DAMAGED
                for seed in SEEDS
                for crf in CRFS
            ]
            yield kind, strength, sum(results), len(results)


def false_alarms(folder: Path) -> Iterator[tuple[str, list[str], int, float]]:
    """Kind of flawless video, the limits that one of them exceeds, their number, and the largest flicker."""
    for name, make in moving_videos.CLEAN.items():
        results = [measured(make(seed), crf, folder) for seed in SEEDS for crf in CRFS]
        alarms = [alarm for facts in results for alarm in caught(facts)]
        yield name, alarms, len(results), max(facts.flicker or 0 for facts in results)


def main() -> None:
    """Prints both tables."""
    with TemporaryDirectory() as name:
        print("| video | false alarms | largest `flicker` |\n|---|---|---|")
        for video, alarms, count, most in false_alarms(Path(name)):
            print(f"| {video} | {len(alarms)} of {count} {' '.join(sorted(set(alarms)))} | {most:.4f} |", flush=True)
        print("\n| damage | strength | caught |\n|---|---|---|")
        for kind, strength, hits, count in detections(Path(name)):
            print(f"| {kind} | {strength} | {hits} of {count} |", flush=True)


if __name__ == "__main__":
    main()
