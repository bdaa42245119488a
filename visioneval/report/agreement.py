"""Agreement as a report: graders with human labels, raters with each other and themselves, and judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from visioneval.analysis.agreement.agreement import FLAGS, Agreement, MinimumResult
from visioneval.analysis.agreement.correction import CorrectedMetric, Correction
from visioneval.analysis.agreement.graders import Disputed, GraderAgreement
from visioneval.analysis.agreement.raters import MatchCount, RaterAgreement, RaterFinding
from visioneval.analysis.agreement.same_question import MeasureAgreement
from visioneval.analysis.stats.basic import Statistic
from visioneval.errors import count_of
from visioneval.report.judges import CONTRADICTION, contradiction, judge_sections_of_runs
from visioneval.report.sections import (
    STATES,
    Cell,
    Column,
    Interval,
    Outcome,
    Report,
    Section,
    Value,
    dim,
    numbers,
    quoted,
    texts,
)
from visioneval.report.text import cut_middle, with_interval
from visioneval.rules import show_beside

MAX_DISPUTED, MAX_RATERS, MAX_PAIRS = 5, 20, 10
_NAMES = {
    "kappa": "kappa",
    "quadratic_kappa": "kappa, quadratic weights",
    "accuracy": "accuracy",
    "fail_precision": "precision of FAIL",
    "fail_recall": "recall of FAIL",
    "spearman": "Spearman",
    "kendall": "Kendall tau-b",
    "pearson": "Pearson",
    "pairwise_accuracy": "pairwise accuracy",
}
_VALUES = (*numbers("value"), Column("95%"), *numbers("n"), Column("", min_width=20))


def agreement_report(agreement: Agreement) -> Report:
    """All results, with the most important ones in sentences at the top."""
    graders = [grader for grader in agreement.graders if grader.cells or grader.unmeasured]
    return Report(
        title="visioneval agreement",
        subject=", ".join(agreement.runs),
        outcome=_outcome(agreement),
        facts=[f"labels: {agreement.labels:,}", f"raters: {len(agreement.raters):,}"],
        lines=[
            *(quoted(note, "error") for note in agreement.notes),
            *(quoted(_conclusion(grader, agreement)) for grader in graders if grader.cells),
            *(quoted(_conclusion_beside(pair)) for pair in agreement.same_question),
        ],
        sections=[
            *([Section("Minimums", notes=list(map(_minimum, agreement.minimums)))] if agreement.minimums else []),
            *(section for grader in graders for section in _grader(grader)),
            *_among_raters(agreement.people),
            *_pairs(agreement),
            *(section for pair in agreement.same_question for section in _beside_measure(pair)),
            *_raters(agreement.raters),
            *([] if agreement.correction is None else _correction(agreement.correction)),
            *judge_sections_of_runs(agreement.judges),
        ],
    )


def _outcome(agreement: Agreement) -> Outcome:
    states = {minimum.state for minimum in agreement.minimums}
    if agreement.exit_code == 3:
        what = "minimum" if "unmeasured" in states else "corrected figure"
        return Outcome("error", f"A {what} was not measured", agreement.exit_code)
    if states:
        has_failed = "failed" in states
        sentence = "A minimum failed" if has_failed else "All minimums passed"
        return Outcome("fail" if has_failed else "pass", sentence, agreement.exit_code)
    compared = count_of(sum(grader.cells > 0 for grader in agreement.graders), "metric")
    beside = agreement.same_question
    measured = f"; {count_of(len(beside), 'metric')} of judges with a local measure" if beside else ""
    sentence = f"{compared} compared with {count_of(agreement.labels, 'label')}{measured}"
    return Outcome("plain", sentence, agreement.exit_code)


def _conclusion(grader: GraderAgreement, agreement: Agreement) -> str:
    """The headline in one sentence: how far grader and raters agree, on how many cells, and the raters themselves."""
    measure = grader.measures[grader.headline]
    cells = (
        count_of(grader.cells, "cell")
        if measure.n == grader.cells
        else f"{measure.n:,} of {count_of(grader.cells, 'cell')}"
    )
    name = _NAMES[grader.headline]
    parts = [
        f"no {name} on {cells} ({measure.note})"
        if measure.value is None
        else f"{name} {_with_note(measure)} on {cells}",
        f"raters evenly split on {grader.split:,}" * bool(grader.split),
        grader.left_out.sentence("labeled cell", agreement.allowed_unmeasured),
        "" if grader.ceiling.value is None else f"inter-rater {name} {_with_note(grader.ceiling)}",
    ]
    about = grader.metric if grader.metric == grader.question else f"{grader.metric} and human label {grader.question}"
    return f"{about}: {'; '.join(filter(None, parts))}"


def _conclusion_beside(pair: MeasureAgreement) -> str:
    """How far a judge and a local measure agree, in one sentence."""
    kappa, cells = pair.measures["kappa"], count_of(pair.cells, "cell")
    agreed = f"no kappa on {cells} ({kappa.note})" if kappa.value is None else f"kappa {_with_note(kappa)} on {cells}"
    missing = f"; {pair.unmeasured:,} more not measured" if pair.unmeasured else ""
    return f"{pair.judge} and local measure {pair.measure}: {agreed}{missing}"


def _minimum(minimum: MinimumResult) -> Value:
    state = STATES[minimum.state]
    name = "" if minimum.measure is None else f" {_NAMES[minimum.measure]}"
    line = f"{state.text}  {FLAGS[minimum.bound]} {minimum.metric}:{minimum.required:g}{':' * bool(name)}{name}"
    if minimum.value is not None:
        line += f" {show_beside(minimum.value, minimum.required, 3, 'f')}"
    if minimum.low is not None:
        line += f", lower bound {show_beside(minimum.low, minimum.required, 3, 'f')}"
    return quoted(line + (f" ({minimum.note})" if minimum.note else ""), state.tone)


def _grader(grader: GraderAgreement) -> Iterator[Section]:
    title = f"{grader.metric} and human label {grader.question}, cells: {grader.cells:,}"
    remarks = [
        f"{grader.split:,} evenly split among raters, left out of kappa, accuracy and FAIL" * bool(grader.split),
        f"{grader.unmeasured:,} more not measured" * bool(grader.unmeasured),
        f"FAIL means a violation of {grader.rule}" * bool(grader.rule),
    ]
    measures = {
        **{_NAMES[name]: measure for name, measure in grader.measures.items()},
        f"inter-rater {_NAMES[grader.headline]} (one rater against the others)": grader.ceiling,
        "grader against the others (same references)": grader.grader_as_rater,
    }
    yield _table_of(title, measures, _NAMES[grader.headline], remarks)
    if (confusion := grader.confusion) is not None:
        counts = [(name, *map(str, row)) for name, row in zip(confusion.people, confusion.counts, strict=True)]
        yield Section("Human labels (rows) by grader (columns)", [Column(""), *numbers(*confusion.grader)], counts)
    if grader.disputed:
        yield _disputed(grader.disputed[:MAX_DISPUTED])


def _table_of(title: str, measures: Mapping[str, Statistic], headline: str, remarks: Sequence[str]) -> Section:
    """A row for each measure by its name."""
    rows: list[Sequence[Cell]] = []
    for name, measure in measures.items():
        value, *others = _measure(measure)
        plot = Interval(measure.low, measure.value, measure.high, (-1.0, 1.0), (-1.0, 0.0, 1.0))
        rows.append((Value(name, "strong" if name == headline else "plain"), Value(value, plot=plot), *others))
    value_column = Column("value", is_number=True, axis=("-1", "0", "1"))
    return Section(title, (Column("measure", min_width=18), value_column, *_VALUES[1:]), rows, about=_remarks(remarks))


def _beside_measure(pair: MeasureAgreement) -> Iterator[Section]:
    """How far a judge agrees with a local measure, and cells in which one passes what the other fails."""
    title = f"{pair.judge} and local measure {pair.measure}, cells: {pair.cells:,}"
    remarks = [f"{pair.unmeasured:,} more not measured" * bool(pair.unmeasured)]
    yield _table_of(title, {_NAMES[name]: measure for name, measure in pair.measures.items()}, _NAMES["kappa"], remarks)
    counts = [
        ("fails", f"{pair.both_fail:,}", f"{pair.only_judge_passes:,}"),
        ("passes", f"{pair.only_measure_passes:,}", f"{pair.both_pass:,}"),
    ]
    yield Section("Local measure (rows) by judge (columns)", [Column(""), *numbers("fails", "passes")], counts)
    rows: list[list[Cell]] = [
        [
            quoted(f"{cell.test_id} [{cell.sample_index}]" if cell.sample_index else cell.test_id),
            quoted(cell.model_label),
            *contradiction(pair, cell),
        ]
        for cell in pair.contradicted[:MAX_DISPUTED]
    ]
    if rows:
        yield Section(
            "Where judge and measure contradict each other", [*texts("case", "model run"), *CONTRADICTION], rows
        )


def _disputed(cells: Sequence[Disputed]) -> Section:
    has_reasons = any(cell.reason for cell in cells)
    rows: list[list[Cell]] = [
        [
            quoted(f"{cell.test_id} [{cell.sample_index}]" if cell.sample_index else cell.test_id),
            quoted(cell.model_label),
            quoted(f"{cell.people if isinstance(cell.people, str) else f'{cell.people:.2g}'} ({cell.raters})"),
            quoted(cell.grader if isinstance(cell.grader, str) else f"{cell.grader:.3g}"),
            *([quoted(cut_middle(cell.reason, 120))] if has_reasons else []),
        ]
        for cell in cells
    ]
    columns = [*texts("case", "model run"), *numbers("human", "grader"), *(texts("why") if has_reasons else [])]
    return Section("Largest disagreements", columns, rows)


def _among_raters(questions: Sequence[RaterAgreement]) -> Iterator[Section]:
    """How far raters agree, if any item has answers of two, and a table of their pairs if these are few."""
    if not any(question.shared for question in questions):
        return
    rows: list[Sequence[Cell]] = []
    pairs: list[Sequence[Cell]] = []
    for question in questions:
        name = quoted(question.question if question.tag is None else f"{question.question}: {question.tag}")
        levels = question.alpha.items()
        alpha = "\n".join(f"{_with_note(measure, '.2f')}{f' {level}' * (len(levels) > 1)}" for level, measure in levels)
        size = f" (of {question.fleiss_raters})" if question.fleiss.value is not None else ""
        counts = (f"{number:,}" for number in (question.raters, question.items, question.shared))
        agreed = _kappa(question.fleiss.value) + size, _kappa(question.cohen_mean.value)
        rows.append((name, *counts, alpha, *agreed))
        if len(question.cohen) <= MAX_PAIRS:
            pairs += [(name, *map(quoted, pair.raters), str(pair.n), _kappa(pair.kappa)) for pair in question.cohen]
    alpha_column = Column("Krippendorff's alpha [95%]", min_width=19, short="alpha [95%]")
    counted = (*texts("question"), *numbers("raters", "items", "shared"))
    columns = (*counted, alpha_column, Column("Fleiss"), *numbers("Cohen"))
    yield Section("Agreement among raters", columns, rows, splits=True)
    if pairs:
        columns = (*texts("question", "rater A", "rater B"), *numbers("items", "kappa"))
        yield Section("Pairs of raters (Cohen's kappa, quadratic weights for scales)", columns, pairs)


def _pairs(agreement: Agreement) -> Iterator[Section]:
    """People's preferences between two images, and pairwise judges compared with them."""
    rows: list[Sequence[Cell]]
    if agreement.preferences:
        counts = numbers("rate of B [95%]", "B wins", "A wins", "ties", "pairs", "raters")
        rows = [
            (*map(quoted, (row.question, row.a, row.b)), _interval(row.b_win_rate),
             *map(str, (row.b_wins, row.a_wins, row.ties, row.b_win_rate.n, row.raters)))
            for row in agreement.preferences
        ]  # fmt: skip
        yield Section("People's preferences (a tie counts as half)", [*texts("question", "A", "B"), *counts], rows)
    if agreement.pairwise_judges:
        counts = numbers("accuracy [95%]", "decided", "kappa [95%]", "pairs", "flips", "not judged")
        rows = [
            (*map(quoted, (row.question, row.judge)), _interval(row.accuracy), str(row.decided), _interval(row.kappa),
             *map(str, (row.pairs, row.flips, row.unjudged)))
            for row in agreement.pairwise_judges
        ]  # fmt: skip
        notes = [
            quoted(f"{row.judge}, {row.question}: {name}: {measure.note}")
            for row in agreement.pairwise_judges
            for name, measure in (("accuracy", row.accuracy), ("kappa", row.kappa))
            if measure.note
        ]
        about = "accuracy where people are decided; a tie or flip of the judge counts as half"
        yield Section(f"Pairwise judges and people ({about})", [*texts("question", "judge"), *counts], rows, notes)


def _raters(raters: Sequence[RaterFinding]) -> Iterator[Section]:
    rows: list[Sequence[Cell]] = [
        (quoted(rater.rater), f"{rater.answers:,}", _matches(rater.repeats), _matches(rater.anchors),
         ", ".join(f"{day.day} {day.same}/{day.n}" for day in rater.days))
        for rater in raters[:MAX_RATERS]
    ]  # fmt: skip
    more = len(raters) - MAX_RATERS
    matches = (Column("same answer on repeats"), Column("matching anchors"), Column("by day", min_width=16))
    if rows:
        columns = (*texts("rater"), *numbers("answers"), *matches)
        yield Section("Raters", columns, rows, [dim(f"... and {more} more raters")] if more > 0 else [])


def _correction(correction: Correction) -> Iterator[Section]:
    """The three figures of each metric, corrected by the labels of a random draw, and the difference of two runs."""
    yield from map(_corrected, correction.metrics)
    rows: list[Sequence[Cell]] = []
    for entry in correction.differences:
        *numbers_of, note = _measure(entry.difference)
        labels = f"labels: {entry.labels_a:,} and {entry.labels_b:,}"
        about = "; ".join(filter(None, (labels, note)))
        rows.append((quoted(entry.metric), quoted(entry.question), *numbers_of, about))
    if rows:
        title = f"Corrected figure of {correction.differences[0].b} minus that of {correction.differences[0].a}"
        yield Section(title, (*texts("metric", "human label"), *_VALUES), rows)


def _corrected(metric: CorrectedMetric) -> Section:
    title = f"{metric.metric} corrected by human label {metric.question}, {metric.run}"
    text = f"NOT MEASURED: {metric.note} (--allow unmeasured=RATE accepts more)"
    warning: list[Cell] = [Value(text, "error")] if metric.is_unreliable else []
    if metric.reason is not None:
        return Section(title, about=[*warning, quoted(f"not corrected: {metric.reason}", "error")])
    rows: list[Sequence[Cell]] = [
        ("judge, all cells", *_measure(metric.judge)),
        ("labels alone", *_measure(metric.labels)),
        (Value("corrected", "strong"), *_measure(metric.corrected)),
    ]
    remarks = [
        f"draw {metric.draw}, weight of the judge {metric.tuning or 0.0:.2f}",
        f"{metric.missing:,} drawn without an answer" * bool(metric.missing),
        f"{metric.waiting:,} still to label" * bool(metric.waiting),
        f"{metric.uncovered:,} cells not covered by the draw" * bool(metric.uncovered),
        metric.note * (not metric.is_unreliable),
        "the judge's figure has the unit of the metric, the others that of the labels" * (metric.kind == "continuous"),
    ]
    return Section(title, (*texts("figure"), *_VALUES), rows, about=[*warning, *_remarks(remarks)])


def _measure(measure: Statistic) -> tuple[str, str, str, str]:
    """The value, the interval, the number of rows and the note."""
    value, _, interval = _interval(measure, ".3f").partition(" ")
    return value, interval, f"{measure.n:,}", measure.note or ""


def _kappa(value: float | None) -> str:
    return with_interval(value, None, None)


def _interval(measure: Statistic, form: str = ".2f") -> str:
    return with_interval(measure.value, measure.low, measure.high, form)


def _with_note(measure: Statistic, form: str = ".3f") -> str:
    """The value with its interval and a note, or why there is none."""
    if measure.value is None:
        return measure.note or "-"
    return _interval(measure, form) + (f" ({measure.note})" if measure.note else "")


def _matches(matches: MatchCount) -> str:
    distance = f", {matches.distance:.2g} steps apart" if matches.distance else ""
    return f"{matches.same}/{matches.n}{distance}" if matches.n else "-"


def _remarks(remarks: Sequence[str]) -> list[Cell]:
    """Those that apply, in one line."""
    text = "; ".join(filter(None, remarks))
    return [quoted(text, "dim")] if text else []
