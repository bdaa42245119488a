"""Lines of records that ``merge`` copies under a new run id: each is what writing the record anew would give."""

from __future__ import annotations

import pytest
from record_factory import record

from visioneval import Record
from visioneval.scale.merge import _with_run_id

WRITTEN = record(run_id="s1", prompt='say "run_id" twice \u00fc').model_dump_json().encode() + b"\n"
REPEATED = WRITTEN.replace(b'"cached":', b'"run_id":"s2","cached":')


@pytest.mark.parametrize(
    "line",
    [
        record(run_id="s1").model_dump_json().encode() + b"\n",
        WRITTEN,
        REPEATED,
        WRITTEN.replace(b'"cached":', b'"run\\u005fid":"s2","cached":'),
        b" " + WRITTEN,
        WRITTEN[:-1],
        WRITTEN.replace(b'"run_id":"s1"', b'"run_id": "s1"'),
    ],
)
def test_a_copied_line_is_the_record_under_the_new_id(line: bytes) -> None:
    written = Record.model_validate_json(line)
    copied = _with_run_id(line, written, "all")
    assert copied.endswith(b"\n")
    assert Record.model_validate_json(copied) == written.model_copy(update={"run_id": "all"})
    assert copied.count(b"s1") + copied.count(b"s2") == 0


def test_a_line_of_a_run_is_copied_and_not_written_anew() -> None:
    line = record(run_id="s1").model_dump_json().encode() + b"\n"
    slower = line.replace(b'"flaky":false', b'"flaky": false')
    assert b'"flaky": false' in _with_run_id(slower, Record.model_validate_json(slower), "all")
