"""The on-disk format: round trips preserve every byte, and later versions can read it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_factory import info, record
from toys import Toy
from typer.testing import CliRunner

from visioneval import (
    CellError,
    Fingerprint,
    GraderRecord,
    Record,
    RunFormatError,
    StorageError,
    UsageError,
    read_info,
    read_records,
)
from visioneval.cli import app
from visioneval.records import writer as run_writer
from visioneval.records.reader import parse_line
from visioneval.records.stores.lookup import find_run
from visioneval.records.untrusted import list_runs
from visioneval.records.writer import RunWriter, model_slug

RELEASED = Path(__file__).with_name("released")
FIELDS = """
    schema_version run_id test_id model_label sample_index task_type prompt sent_prompt graded_prompt tags flaky
    metadata base_path base_sha256 provider run_params status verdict failed_rules warned_rules skipped_rules scores
    unmeasured_metrics reasons failure_tags graders artifact_path artifact_sha256 mime width height reply_path
    reply_note usage cost_usd seconds waited_seconds attempts cached error generation_key grade_key
"""
GRADER_FIELDS = """
    key type error is_unmeasured is_optional never_asked details usage cost_usd seconds waited_seconds cached
    refused fingerprint judges
"""
FINGERPRINT_FIELDS = ["judge_model", "template_sha256", "schema_sha256", "config_sha256", "tool_versions", "version"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A finished run without records."""
    writer = RunWriter.create(tmp_path, info())
    writer.finish("complete", "2025-01-01T00:00:01+00:00")
    return writer.folder


def write_lines(folder: Path, *lines: str | bytes) -> Path:
    data = b"".join(line if isinstance(line, bytes) else line.encode() + b"\n" for line in lines)
    (folder / "results.jsonl").write_bytes(data)
    return folder


def test_record_fields_are_in_documented_order() -> None:
    full = record(graders=[GraderRecord(key="k", type="t", fingerprint=Fingerprint(config_sha256="0"))])
    written = json.loads(full.model_dump_json())
    assert list(written) == FIELDS.split()
    assert list(written["graders"][0]) == GRADER_FIELDS.split()
    assert list(written["graders"][0]["fingerprint"]) == FINGERPRINT_FIELDS
    error = CellError(stage="grade", kind="k", message="m")
    assert list(json.loads(error.model_dump_json())) == ["stage", "kind", "message"]


def test_run_files_match_the_format(toy: Toy) -> None:
    toy.run({"metadata": {"font": "Futura"}})
    run = json.loads((toy.latest / "run.json").read_text())
    assert {
        "schema_version", "metrics", "visioneval_version", "python_version", "experiment", "note", "suite",
        "source_sha256", "git_commit", "command_line", "started_at", "ended_at", "state",
    } <= run.keys()  # fmt: skip
    assert (run["schema_version"], run["state"]) == (2, "complete")
    assert run["metrics"]["level"] == {"type": "number", "range": [0.0, 1.0], "better": "higher"}
    (line,) = (toy.latest / "results.jsonl").read_text().splitlines()
    assert list(json.loads(line)) == FIELDS.split()


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False, allow_infinity=False), text
)
nested = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=8
)
numbers = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**9), 10**9),
    st.floats(-(2.0**63), 2.0**63, allow_nan=False),
    st.sampled_from([5.0, 1e-7, 1e18, 0.1 + 0.2, -0.0]),
)
records_ = st.builds(
    record,
    prompt=text,
    tags=st.lists(text, max_size=3),
    metadata=st.dictionaries(text, nested, max_size=3),
    run_params=st.dictionaries(text, nested, max_size=3),
    scores=st.dictionaries(text, numbers, max_size=4),
    reasons=st.dictionaries(text, text, max_size=3),
    verdict=st.sampled_from(["PASS", "FAIL", "ERROR"]),
    status=st.sampled_from(["completed", "refused", "error"]),
    failed_rules=st.lists(st.sampled_from(["copy", "not image.blank", "'a name' < 0.5"]), max_size=2),
    usage=st.none() | st.dictionaries(text, st.integers(0, 10**9), max_size=2),
    cost_usd=st.none() | st.floats(0, 1e6),
    seconds=st.floats(0, 1e6),
    error=st.none() | st.builds(CellError, stage=st.just("grade"), kind=text, message=text),
    graders=st.lists(
        st.builds(
            GraderRecord,
            key=text,
            type=text,
            error=st.none() | text,
            details=st.dictionaries(text, nested, max_size=3),
            fingerprint=st.builds(Fingerprint, config_sha256=text, tool_versions=st.dictionaries(text, text)),
        ),
        max_size=2,
    ),
)


@pytest.mark.slow
@settings(max_examples=50)
@given(records_)
def test_record_round_trip_is_byte_identical(written: Record) -> None:
    line = written.model_dump_json().encode()
    again = parse_line("record", line + b"\n", "here", Record)
    assert again is not None
    assert again == written
    assert again.model_dump_json().encode() == line


def test_scores_preserve_their_types() -> None:
    line = record(scores={"yes": True, "one": 1, "whole": 5.0, "tiny": 1e-7, "none": None}).model_dump_json()
    assert '"scores":{"yes":true,"one":1,"whole":5.0,"tiny":1e-7,"none":null}' in line
    scores = Record.model_validate_json(line).scores
    assert {name: type(score) for name, score in scores.items()} == {
        "yes": bool, "one": int, "whole": float, "tiny": float, "none": type(None)
    }  # fmt: skip


def test_run_json_round_trip_is_byte_identical(toy: Toy) -> None:
    toy.run({}, vars={"ratio": 1.10}, arguments=("--note", "ünïcode"))
    data = (toy.latest / "run.json").read_bytes()
    assert run_writer._json_bytes(read_info(toy.latest)) == data


def test_last_record_of_a_cell_counts(folder: Path) -> None:
    lines = [record(test_id=name, prompt=prompt).model_dump_json() for name, prompt in ("ax", "by", "az")]
    result = list(read_records(write_lines(folder, *lines)))
    assert [(item.test_id, item.prompt) for item in result] == [("b", "y"), ("a", "z")]


@pytest.mark.parametrize("cut", [1, 40, -1])
def test_truncated_last_line_is_ignored(folder: Path, cut: int) -> None:
    line = record(prompt="ü" * 30).model_dump_json().encode()
    assert [item.test_id for item in read_records(write_lines(folder, record().model_dump_json(), line[:cut]))] == [
        "one"
    ]


def test_complete_last_line_without_newline_counts(folder: Path) -> None:
    write_lines(folder, record(test_id="two").model_dump_json().encode())
    assert [item.test_id for item in read_records(folder)] == ["two"]


BAD_LINES = [
    ('{"schema_version": 2, "run_', "not a record"),
    ("[1]", "not a JSON object"),
    ('{"run_id": "r"}', "no schema_version"),
    ('{"schema_version": true}', "no schema_version"),
    ('{"schema_version": 1}', "older than the supported version 2: create it again"),
    ('{"schema_version": 3}', "newer than the supported version 2"),
    (record().model_dump_json().replace('"PASS"', '"MAYBE"'), "verdict"),
    (record().model_dump_json().replace('"prompt":', '"promt":'), "prom"),
    (record().model_dump_json().replace('"sample_index":0', '"sample_index":-1'), "sample_index"),
    ("[" * 100_000, "not a record"),
    ("\0" * 100, "not a record: damaged or truncated: delete this line; then 'visioneval run --resume "),
    (record().model_dump_json().replace('"task_type":"', '"ta'), "not a record: damaged or truncated: delete"),
]


@pytest.mark.parametrize(("line", "message"), BAD_LINES)
def test_invalid_line_is_reported_with_location(folder: Path, line: str, message: str) -> None:
    write_lines(folder, record().model_dump_json(), line, record(test_id="two").model_dump_json())
    with pytest.raises(RunFormatError, match=r"results\.jsonl:2: ") as caught:
        list(read_records(folder))
    assert message in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"schema_version": 2}'])
def test_broken_run_json_is_reported_in_one_line(folder: Path, data: bytes) -> None:
    (folder / "run.json").write_bytes(data)
    with pytest.raises(RunFormatError, match=r"run\.json: ") as caught:
        read_info(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("version", sorted(path.name for path in RELEASED.iterdir()))
def test_a_run_and_a_baseline_of_a_released_version_stay_readable(tmp_path: Path, version: str) -> None:
    """Never renew these files: they are as this version wrote them."""
    folder = RELEASED / version
    run = shutil.copytree(folder / "run", tmp_path / "runs" / "r02")
    assert read_info(run).visioneval_version.startswith(version)
    assert [item.verdict for item in read_records(run)] == ["PASS"] * 4
    for command in (["show"], ["compare", str(folder / "baseline.jsonl")], ["export"]):
        result = CliRunner().invoke(app, [*command, str(run)])
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("version", "message"), [(1, "older .*: create it again with this version"), (3, "newer .*: upgrade")]
)
def test_a_run_of_another_version_is_refused_with_advice(folder: Path, version: int, message: str) -> None:
    data = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**data, "schema_version": version}))
    with pytest.raises(RunFormatError, match=rf"run\.json: schema_version {version} is {message}"):
        read_info(folder)


@pytest.mark.parametrize("path", ["/etc/passwd", "../x.png", "artifacts/../../x.png", "a\\..\\x.png", "", "a\0b"])
def test_rejects_image_paths_outside_the_run(folder: Path, path: str) -> None:
    line = json.dumps({**json.loads(record().model_dump_json()), "artifact_path": path})
    write_lines(folder, line)
    with pytest.raises(RunFormatError, match="artifact_path"):
        list(read_records(folder))


labels = st.text(min_size=1, max_size=30) | st.sampled_from(
    ["..", ".", "../x", "a/b", "CON", "con", "nul.x", "lpt1", "console", "\x00", "/", "a" * 300]
)
_DEVICES = {"con", "prn", "aux", "nul", *(f"{name}{number}" for name in ("com", "lpt") for number in range(10))}


@settings(max_examples=60)
@given(st.lists(labels, min_size=2, max_size=2, unique=True))
def test_slugs_are_safe_and_unique_per_label(pair: list[str]) -> None:
    slugs = [model_slug(label) for label in pair]
    for slug in slugs:
        assert slug == Path(slug).name
        assert slug.strip(".")
        assert len(slug) <= 80
        assert slug == slug.lower()
        assert not set('<>:"|?*\\') & set(slug)  # which Windows refuses, as it does a dot at the end
        assert not slug.endswith((".", " "))
        assert slug.partition(".")[0] not in _DEVICES
    assert slugs[0] != slugs[1]


def test_a_simple_label_is_its_slug_and_cannot_collide() -> None:
    assert model_slug("m-1,size=64x64".replace(",", "-")) == "m-1-size=64x64"
    assert model_slug(model_slug("Loud")) != model_slug("Loud")
    assert model_slug("loud") != model_slug("Loud")


@pytest.mark.parametrize("name", ["../x.png", "/x.png", "a/b.png", "", ".hidden", "a\0.png", "x" * 200])
def test_rejects_file_names_outside_the_run(tmp_path: Path, name: str) -> None:
    writer = RunWriter.create(tmp_path, info())
    with pytest.raises(ValueError, match="is not a valid file name"):
        writer.save("one", "m", name, b"")
    writer.finish("complete", "")


def test_an_output_shares_the_file_of_the_cache_until_it_is_saved_again(tmp_path: Path) -> None:
    writer, cached = RunWriter.create(tmp_path, info()), tmp_path / "cached"
    cached.write_bytes(b"first")
    path = writer.folder / writer.save("one", "m", "0.png", None, source=cached)
    assert path.samefile(cached)
    writer.save("one", "m", "0.png", b"second")
    assert (path.read_bytes(), cached.read_bytes()) == (b"second", b"first")
    writer.save("one", "m", "0.png", None, source=cached)
    assert (path.samefile(cached), [item.name for item in path.parent.iterdir()]) == (True, ["0.png"])
    writer.finish("complete", "")


def test_a_symbolic_link_is_copied(tmp_path: Path) -> None:
    writer, link = RunWriter.create(tmp_path, info()), tmp_path / "link"
    (tmp_path / "file").write_bytes(b"image")
    link.symlink_to(tmp_path / "file")
    path = writer.folder / writer.save("one", "m", "0.png", None, source=link)
    assert (path.is_symlink(), path.read_bytes(), path.stat().st_nlink) == (False, b"image", 1)
    writer.finish("complete", "")


@pytest.mark.parametrize("run_id", ["../x", "", ".x", "a/b", "a b", "latest", "-x", "x" * 200, "a@b"])
def test_rejects_run_ids_outside_the_folder(tmp_path: Path, run_id: str) -> None:
    reason = "'latest' is reserved for the newest run: use another ID" if run_id == "latest" else ""
    with pytest.raises(UsageError, match=f"--run-id: {reason}"):
        RunWriter.create(tmp_path / "runs", info(run_id=run_id))
    assert list(tmp_path.iterdir()) == []


def test_rejects_latest_as_run_id(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--run-id: 'latest' is reserved for the newest run: use another ID"):
        RunWriter.create(tmp_path / "runs", info(run_id="latest"))


def test_rejects_an_existing_run_id_and_leaves_the_run_unchanged(folder: Path) -> None:
    before = (folder / "run.json").read_bytes()
    with pytest.raises(UsageError, match="already exists"):
        RunWriter.create(folder.parent, info(state="interrupted"))
    assert (folder / "run.json").read_bytes() == before


def test_rejects_a_suite_that_is_not_unicode(tmp_path: Path) -> None:
    suite = info().suite.model_copy(update={"vars": {"a": "\ud800"}})
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        RunWriter.create(tmp_path / "runs", info(suite=suite))
    assert list(tmp_path.iterdir()) == []


class Full:
    """A file on a disk with limited space."""

    def __init__(self, path: Path, room: int) -> None:
        self.file = path.open("r+b", buffering=0)
        self.room = room

    def write(self, data: bytes) -> int:
        if self.room <= 0:
            raise OSError(28, "No space left on device")
        taken = self.file.write(data[: self.room])
        self.room -= taken
        return taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def test_record_is_appended_completely_or_not_at_all(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path, info())
    writer.append(record())
    writer._results.close()
    single = len((writer.folder / "results.jsonl").read_bytes())
    full: Any = Full(writer.folder / "results.jsonl", room=single // 2)
    full.seek(0, 2)
    writer._results = full
    with pytest.raises(StorageError, match="No space left"):
        writer.append(record(test_id="two"))
    writer.finish("interrupted", "")
    assert len((writer.folder / "results.jsonl").read_bytes()) == single
    assert [item.test_id for item in read_records(writer.folder)] == ["one"]


@pytest.mark.parametrize("deletes_folder", [False, True])
def test_a_run_whose_results_were_deleted_is_not_complete(tmp_path: Path, deletes_folder: bool) -> None:
    """Its open file can still be written to."""
    writer = RunWriter.create(tmp_path, info())
    writer.append(record())
    (writer.folder / "results.jsonl").unlink()
    if deletes_folder:
        shutil.rmtree(writer.folder)
    with pytest.raises(StorageError, match=r"results\.jsonl was deleted during the run: run again with --reuse all"):
        writer.finish("complete", "")
    assert deletes_folder or read_info(writer.folder).state != "complete"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with three runs and some other files."""
    for at, run_id in enumerate(("20250101-a-1111", "20250102-a-2222", "20250102-b-3333")):
        started = f"2025-01-0{3 - at}T00:00:00+00:00"
        RunWriter.create(tmp_path, info(run_id=run_id, started_at=started)).finish("complete", "")
    (tmp_path / "notes").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    return tmp_path


def test_runs_are_listed_oldest_first_without_invalid_folders(root: Path) -> None:
    assert [path.name for path, _ in list_runs(root)] == ["20250102-b-3333", "20250102-a-2222", "20250101-a-1111"]


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("latest", "20250101-a-1111"),
        ("20250102-a-2222", "20250102-a-2222"),
        ("20250101", "20250101-a-1111"),
        ("20250102-b", "20250102-b-3333"),
    ],
)
def test_finds_run_by_id_prefix_or_latest(root: Path, name: str, result: str) -> None:
    assert find_run(name, root) == root / result
    assert find_run(str(root / result), Path("nowhere")) == root / result


@pytest.mark.parametrize(
    ("name", "message"), [("20250102", "matches 2 runs: "), ("nope", "no such run in"), ("x\0", "no such run in")]
)
def test_missing_run_is_reported_in_one_line(root: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_run(name, root)


def test_empty_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="contains no runs"):
        find_run("latest", tmp_path / "runs")
