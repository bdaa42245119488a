"""A custom program as a provider, and every way in which it can break the contract."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fake_api.samples import encode
from toys import Toy

from visioneval import Record

pytestmark = pytest.mark.slow

GENERATE = f"""
import json, os, signal, subprocess, sys, time
asked = json.load(sys.stdin)
with open(asked["output"], "wb") as file: file.write({encode()!r})
"""


def run(toy: Toy, program: str, *cases: dict[str, Any], **entry: Any) -> Record:
    """Runs cases on a program, and returns the record of the last; its output is not checked."""
    (toy.folder / "generate.py").write_text(program)
    model = {"provider": "command", "label": "mine", "argv": [sys.executable, "generate.py"], **entry}
    result = toy.run(*(cases or [{}]), models=[model])
    assert "Traceback" not in result.stdout
    return list(toy.records.values())[-1]


def error_of(record: Record) -> tuple[str, str]:
    assert record.error is not None
    assert (record.status, record.verdict, record.error.stage) == ("error", "ERROR", "generate")
    return record.error.kind, record.error.message


@pytest.mark.parametrize(
    "prompt", ["a tree", 'say "hi" & $(rm -rf) `ls` \\ \'', "zwei\nZeilen\t\u2028", "木 🌳 \u202e"]
)
def test_a_program_gets_the_request_and_writes_the_image(toy: Toy, prompt: str) -> None:
    toy.outputs("base.png", "coat.png")
    program = GENERATE + "json.dump([asked, os.getcwd(), sys.argv], open('asked.json', 'w'))"
    case = {"prompt": "{{ metadata.text }}", "metadata": {"text": prompt}}
    images = {"images": ["base.png", {"path": "coat.png", "role": "garment"}]}
    record = run(toy, program, {**case, **images}, params={"steps": 20, "scale": 1.5})
    assert record.verdict == "PASS"
    asked, folder, argv = json.loads((toy.folder / "asked.json").read_text())
    output = asked.pop("output")
    assert asked == {
        "version": 1,
        "task_type": "image_editing",
        "prompt": prompt,
        "images": [
            {"role": "base", "path": str(toy.folder / "base.png")},
            {"role": "garment", "path": str(toy.folder / "coat.png")},
        ],
        "masks": {},
        "params": {"steps": 20, "scale": 1.5},
        "sample_index": 0,
    }
    assert Path(folder) == toy.folder.resolve()
    assert argv == ["generate.py"]
    assert not Path(output).parent.exists()
    assert (record.prompt, record.run_params) == (prompt, {"steps": 20, "scale": 1.5})


def test_masks_are_named(toy: Toy, mask: Any) -> None:
    toy.outputs("base.png")
    mask("mask.png", size=(32, 24), box=(0, 0, 8, 8))
    program = GENERATE + "print(file=open('masks', 'w'), *asked['masks'].items())"
    run(toy, program, {"images": ["base.png"], "mask": "mask.png"})
    assert (toy.folder / "masks").read_text().strip() == f"('editable', '{toy.folder / 'mask.png'}')"


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ('{"refused": "not that"}', "not that"),
        ('loading...\\n{"refused": "a\u2028b"}\\n\\n', "a\u2028b"),
        ('{"refused": "\\\\ud800"}', "?"),
    ],
)
def test_a_program_may_refuse(toy: Toy, output: str, why: str) -> None:
    record = run(toy, f"# encoding: utf-8\nimport sys\nsys.stdout.buffer.write('{output}'.encode())")
    assert (record.status, record.verdict, record.reasons) == ("refused", "FAIL", {"refused": why})


def test_other_output_is_ignored(toy: Toy) -> None:
    outputs = [b"done", b"{}", b'{"refused": null}', b"[" * 100_000, b"null", b"\xff"]
    (toy.folder / "outputs").write_text(repr(outputs))
    program = f"{GENERATE}sys.stdout.buffer.write(eval(open('outputs').read())[int(asked['prompt'])])"
    run(toy, program, *({"prompt": str(at)} for at in range(1, len(outputs))), {"prompt": "0"})
    assert [record.verdict for record in toy.records.values()] == ["PASS"] * len(outputs)


def test_standard_error_is_reported_when_a_program_fails(toy: Toy) -> None:
    kind, message = error_of(run(toy, "import sys; sys.stderr.write('x' * 5000 + ' no GPU \\u00fc'); sys.exit(3)"))
    assert kind == "invalid"
    assert message.startswith("the command ended with exit status 3; its standard error: xxx")
    assert message.endswith("no GPU \u00fc")
    assert len(message) < 2100


FAILURES = [
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "invalid", "ended with signal SIGSEGV; its standard"),
    ("import os; os.kill(os.getpid(), 40)", "invalid", "ended with signal 40"),
    ("pass", "invalid", "wrote no image to 'output'; its standard error is empty"),
    (GENERATE + "os.remove(asked['output']); os.mkdir(asked['output'])", "invalid", "wrote no image to 'output'"),
    (GENERATE + "os.remove(asked['output']); os.mkfifo(asked['output'])", "invalid", "wrote no image to 'output'"),
    (GENERATE + "open(asked['output'], 'w').write('hello')", "unusable", "not a supported image"),
    (GENERATE + "open(asked['output'], 'w').close()", "unusable", "the file is empty"),
    (GENERATE + "open(asked['output'], 'w').truncate(10**9)", "bad_image", "1,000,000,000 bytes, over the limit"),
]


@pytest.mark.parametrize(("program", "kind", "message"), FAILURES)
def test_every_program_failure_is_an_error_of_its_cell(toy: Toy, program: str, kind: str, message: str) -> None:
    result = error_of(run(toy, program))
    assert result[0] == kind
    assert message in result[1]


def test_output_of_a_program_that_ignores_its_input_is_read(toy: Toy) -> None:
    case = {"prompt": "x" * 300_000}
    record = run(toy, "import sys\nfor _ in range(400): sys.stdout.write('y' * 50_000)\nsys.exit('at last')", case)
    assert error_of(record)[1] == "the command ended with exit status 1; its standard error: at last"


def has_exited(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except OSError:
        return True


CHILD = "child = subprocess.Popen(['sleep', '60']); open('pids', 'w').write(f'{os.getpid()} {child.pid}')\n"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
def test_a_time_limit_ends_the_program_and_what_it_started(toy: Toy) -> None:
    record = run(toy, f"import os, subprocess, time\n{CHILD}time.sleep(60)", timeout_s=1)
    assert error_of(record) == ("transient", "the command took more than 1 s (timeout_s)")
    pids = [int(word) for word in (toy.folder / "pids").read_text().split()]
    deadline = time.monotonic() + 10
    while not all(map(has_exited, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert all(map(has_exited, pids))


def test_a_surviving_child_process_does_not_block(toy: Toy) -> None:
    record = run(toy, GENERATE + CHILD, timeout_s=50)
    os.kill(int((toy.folder / "pids").read_text().split()[1]), 9)
    assert record.verdict == "PASS"
    assert record.seconds < 30


def test_a_program_that_cannot_be_started_is_an_error_of_the_cell(toy: Toy) -> None:
    script = toy.folder / "generate"
    script.write_text("no program")
    script.chmod(0o755)
    record = run(toy, "", argv=["./generate"])
    assert error_of(record) == ("invalid", "cannot start './generate': Exec format error")


def test_a_script_beside_the_suite_is_found_from_any_directory(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    script = toy.folder / "generate"
    script.write_text(f"#!{sys.executable}\n{GENERATE}")
    script.chmod(0o755)
    path = toy.write({}, models=[{"provider": "command", "argv": ["./generate"]}])
    elsewhere = toy.folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    result = toy("run", path, "--trust-suite", "--runs", toy.folder / "runs")
    assert (result.exit_code, toy.record.verdict) == (0, "PASS")


def test_a_program_is_not_run_without_trust(toy: Toy) -> None:
    path = toy.write({}, models=[{"provider": "command", "argv": [sys.executable, "-c", "open('ran', 'w')"]}])
    for command in ("validate", "plan", "run"):
        result = toy(command, path)
        assert result.exit_code == 2
        assert "runs code from the suite: pass --trust-suite" in result.stderr
    assert not (toy.folder / "ran").exists()


def test_each_model_run_of_a_sweep_gets_its_parameters(toy: Toy) -> None:
    (toy.folder / "generate.py").write_text(GENERATE + "open(f\"got-{asked['params']['q']}\", 'w')")
    model = {
        "provider": "command",
        "argv": [sys.executable, "generate.py"],
        "params": {"a": 1},
        "grid": {"q": [1.5, "x"]},
    }
    toy.run({}, models=[model])
    assert {path.name for path in toy.folder.glob("got-*")} == {"got-1.5", "got-x"}
