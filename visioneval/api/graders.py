"""How good the graders are: agreement with people, and the perturbations that they catch.

Loads OpenCV, which comparisons do without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from visioneval.analysis.agreement.agreement import Agreement, Minimum, agree, parse_allowed
from visioneval.analysis.agreement.answers import read_labeled
from visioneval.analysis.run_lookup import Warn
from visioneval.api.options import checked_keywords, run_options
from visioneval.api.runs import LOG, Run, log_listener
from visioneval.errors import UsageError
from visioneval.probing.prepare import ProbeRequest
from visioneval.probing.probe import ProbeResult, run_probe
from visioneval.records.stores.lookup import runs_folder
from visioneval.settings import RUNS, SelectionKeywords


def agreement(
    *names: Run | Path | str,
    minimums: Mapping[str, float] | None = None,
    minimum_points: Mapping[str, float] | None = None,
    correct: bool = False,
    allow: Sequence[str] = (),
    runs: Path | str = RUNS,
    warn: Warn = LOG.warning,
) -> Agreement:
    """Compares graders with human labels; several runs are pooled.

    ``minimums`` are required values of the lower bounds of the 95 % intervals, ``minimum_points`` of the estimates, by
    ``METRIC`` or ``METRIC:MEASURE``, such as ``verdict:accuracy``.
    ``correct`` also corrects the graders' figures with the labels of a random draw, and compares those of two runs.
    ``allow`` accepts labeled cells that were not measured: ``unmeasured=RATE``, or ``unmeasured`` for any number.
    Raises ``UsageError``.
    """
    if not names:
        raise UsageError("name at least one run")
    if isinstance(allow, str):
        raise UsageError("allow must be a list of strings, not one string")
    allowed = parse_allowed(allow)
    if allow and not (minimums or minimum_points or correct):
        raise UsageError("--allow: is for --min, --min-point and --correct: add one of them")
    labeled = [read_labeled(str(name), runs_folder(runs), warn) for name in names]
    required = [Minimum(target, value) for target, value in (minimums or {}).items()]
    required += [Minimum(target, value, "estimate") for target, value in (minimum_points or {}).items()]
    return agree(labeled, required, is_corrected=correct, allowed_unmeasured=allowed)


def probe(
    source: Run | Path | str,
    *,
    kinds: Sequence[str] = (),
    seed: int = 0,
    with_judges: bool = False,
    min_detection: Sequence[str] = (),
    max_false_alarm: float | None = None,
    with_images: bool = False,
    **settings: Unpack[SelectionKeywords],
) -> ProbeResult:
    """Perturbs outputs that pass, in known ways and strengths, grades them, and counts what is caught.

    ``source`` is a suite file or a run. ``kinds`` are names or prefixes of kinds, such as ``copy.letter``. With
    ``with_judges``, graders that ask judges are probed too. ``min_detection`` are gates such as ``copy.letter:0.9``,
    ``max_false_alarm`` is a share. Raises ``UsageError``, ``SuiteError``, ``BudgetError`` and ``StorageError``.
    """
    if isinstance(kinds, str) or isinstance(min_detection, str):
        raise UsageError("kinds and min_detection must be lists of strings, not one string")
    options = run_options(**checked_keywords(probe, settings, SelectionKeywords))
    request = ProbeRequest(
        str(source), tuple(kinds), seed, with_judges, tuple(min_detection), max_false_alarm, with_images
    )
    return run_probe(request, options.suite, options.calls, log_listener())
