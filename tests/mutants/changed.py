"""``python -m tests.mutants.changed COMMIT FILE``: lists one bug per mutation of a line that changed since a commit.

Cosmic Ray makes the mutations; it is in the environment ``.integration/ci``. The tests of a bug are those that the
lists in this folder name for its file; if there are none, the files of tests that name its module, or else the tests of
its folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

from tests.mutants.entries import Mutant, read_mutants
from visioneval.errors import count_of

_NOT_USED = [
    # One arithmetic operator for another says as much as ten; most of "|" are types.
    r"core/ReplaceBinaryOperator_(?!(Add_Sub|Sub_Add|Mul_Add|Div_Mul|FloorDiv_Mul|Mod_Mul)$)",
    # The limit itself, and the opposite.
    r"core/ReplaceComparisonOperator_(?!(Eq_NotEq|NotEq_Eq|Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Is_IsNot|IsNot_Is|In_NotIn|NotIn_In)$)",
    r"core/ReplaceUnaryOperator_(?!Delete_Not$)",
]
_RUNS_ELSEWHERE = ("integration", "soak")


def changed_files(commit: str) -> list[str]:
    """The modules of the package that differ from a commit."""
    command = ["git", "diff", "--name-only", "--diff-filter=d", commit, "--", "visioneval/*.py"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def mutations(files: Sequence[str], commit: str) -> Iterator[tuple[str, str]]:
    """The file and the whole text of each mutation of a changed line, each text once."""
    if not files:
        return
    config = f"""
        [cosmic-ray]
        module-path = {json.dumps(files)}
        timeout = 1.0
        excluded-modules = []
        test-command = "none"
        distributor.name = "local"
        filters.git-filter.branch = {json.dumps(commit)}
        filters.operators-filter.exclude-operators = {json.dumps(_NOT_USED)}
    """
    seen = set()
    with tempfile.TemporaryDirectory() as folder:
        session, settings = f"{folder}/session.sqlite", f"{folder}/config.toml"
        Path(settings).write_text(config, encoding="utf-8")
        _cosmic_ray("cli", "init", settings, session)
        _cosmic_ray("tools.filters.git", "--config", settings, session)
        _cosmic_ray("tools.filters.operators_filter", session, settings)
        items = _cosmic_ray("cli", "dump", session).splitlines()
    left = [item["mutations"][0] for item, result in map(json.loads, items) if not result]
    for mutation in sorted(left, key=lambda mutation: (mutation["module_path"], mutation["start_pos"])):
        operator = get_operator(mutation["operator_name"])(**mutation["operator_args"])
        file = mutation["module_path"]
        text = mutate_code(Path(file).read_text("utf-8"), operator, mutation["occurrence"])
        # Its name for an exception that never comes would be undefined.
        mutant = file, text.replace("CosmicRayTestingException", "()")
        if mutant not in seen:
            seen.add(mutant)
            yield mutant


def _cosmic_ray(module: str, *arguments: str) -> str:
    command = [sys.executable, "-m", f"cosmic_ray.{module}", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def bug(file: str, text: str, planted: str, tests: Sequence[str]) -> dict[str, object]:
    """An entry of a list, with as many lines to find as make them unique."""
    old, new = text.splitlines(keepends=True), planted.splitlines(keepends=True)
    first = next(number for number, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1])
    last = next(number for number, pair in enumerate(zip(old[::-1], new[::-1], strict=False)) if pair[0] != pair[1])
    sentence = f"{file}:{first + 1} {old[first].strip()} -> {new[first].strip()}"
    start, behind = first, last
    while text.count(find := "".join(old[start : len(old) - behind])) > 1:
        start, behind = max(0, start - 1), max(0, behind - 1)
    replace = "".join(new[start : len(new) - behind])
    return {"bug": sentence, "file": file, "find": find, "replace": replace, "tests": list(tests)}


def tests_of(file: str, listed: Sequence[Mutant]) -> list[str]:
    """The tests to run for a bug in a file."""
    tests = [test for mutant in listed if mutant.file == file for test in mutant.tests]
    if not tests:
        module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        paths = (path for path in Path("tests").rglob("test_*.py") if path.parts[1] not in _RUNS_ELSEWHERE)
        tests = sorted(str(path) for path in paths if module in path.read_text("utf-8"))
    if not tests:
        tests = [test for mutant in listed if Path(mutant.file).parent == Path(file).parent for test in mutant.tests]
    whole = {test for test in tests if "::" not in test}
    return [test for test in dict.fromkeys(tests) if test in whole or test.partition("::")[0] not in whole]


def main(commit: str, target: str) -> None:
    """Writes the list."""
    files, listed = changed_files(commit), read_mutants()
    tests = {file: tests_of(file, listed) for file in files}
    for file in (file for file in files if not tests[file]):
        print(f"no tests are known for {file}", file=sys.stderr)
    known = [file for file in files if tests[file]]
    bugs = [bug(file, Path(file).read_text("utf-8"), text, tests[file]) for file, text in mutations(known, commit)]
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(target).write_text(json.dumps(bugs, indent=1), encoding="utf-8")
    print(f"{count_of(len(bugs), 'bug')} in {count_of(len({entry['file'] for entry in bugs}), 'file')}")


if __name__ == "__main__":
    main(*sys.argv[1:])
