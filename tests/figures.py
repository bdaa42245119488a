"""Figures of the code, by ``make figures [visioneval of another checkout]``: size, length of functions, depth of calls.

Static figures come from the syntax tree of every file below ``visioneval/``. The depth of a judgement is counted in a
real run: a custom judge inspects the stack of its caller.

- Code lines are lines with code, without imports, docstrings, comments and blank lines.
- Lines of tests are all lines of Python files. Behavior is what pytest runs by ``make test``; support are its helpers and
  fake servers. Golden outputs, corpora of bad input, benches, calibrations and the tests of heavy clients are not counted.
- A private module is any but ``visioneval`` and ``visioneval.cli``, which have the Python API and the command line.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

PACKAGE = Path(sys.argv[1] if len(sys.argv) > 1 else "visioneval")
VAGUE = frozenset({"found", "told", "said", "kept", "place", "one", "each", "own", "wanted", "made", "held"})
NOT_BEHAVIOR = frozenset({"bench", "calibration", "integration", "mutants", "soak", "suites"})
MOST_PARAMETERS, MOST_ATTRIBUTES = 7, 12
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Trees = dict[str, ast.Module]


def read_trees() -> Trees:
    """The syntax tree of every module, by its dotted name."""
    trees = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join((PACKAGE.name, *path.relative_to(PACKAGE).with_suffix("").parts))
        trees[name.removesuffix(".__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def names_used(tree: ast.Module) -> Iterator[str]:
    """Every use of a variable, parameter or attribute name in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute):
            yield node.attr


def code_lines(tree: ast.Module) -> int:
    """Lines with code, without imports and docstrings."""
    left_out: set[int] = set()
    code: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)) or (isinstance(node, ast.Expr) and _is_text(node.value)):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, (ast.stmt, ast.expr, ast.arg, ast.alias, ast.keyword, ast.excepthandler)):
            code.update((node.lineno, node.end_lineno or node.lineno))
            if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
                code.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(code - left_out)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def sizes(trees: Trees) -> Iterator[str]:
    """Code lines and files by package."""
    packages = defaultdict(list)
    for name, tree in trees.items():
        package = name.split(".")[1] if (PACKAGE / name.split(".")[-1]).is_dir() or name.count(".") > 1 else "(top)"
        packages[package].append(code_lines(tree))
    for package, counts in sorted(packages.items()):
        yield f"  {package:<35}{sum(counts)} in {len(counts)} files"


def long_parameter_lists(trees: Trees) -> int:
    """Functions with over seven parameters, beside those of commands and the API."""
    return sum(
        len([*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs]) - _is_method(f) > MOST_PARAMETERS
        for name, tree in trees.items()
        if name.split(".")[1:2] not in (["cli"], ["api"])
        for f in ast.walk(tree)
        if isinstance(f, FUNCTIONS)
    )


def _is_method(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return bool(function.args.args) and function.args.args[0].arg in ("self", "cls")


def wide_classes(trees: Trees) -> list[str]:
    """Classes with over twelve attributes: fields, and what methods set on ``self``."""
    wide = []
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                fields = {
                    n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
                }
                stored = {
                    n.attr
                    for n in ast.walk(node)
                    if isinstance(n, ast.Attribute)
                    and isinstance(n.ctx, ast.Store)
                    and isinstance(n.value, ast.Name)
                    and n.value.id == "self"
                }
                if len(fields | stored) > MOST_ATTRIBUTES:
                    wide.append(f"{name}.{node.name}")
    return wide


def test_lines() -> Iterator[str]:
    """Lines of tests of behavior and of their support, and the files that import private modules."""
    tests = PACKAGE.parent / "tests"
    behavior, support, private = 0, 0, 0
    for path in sorted(tests.rglob("*.py")):
        folder = path.relative_to(tests).parts[0]
        text = path.read_text(encoding="utf-8")
        if folder in ("support", "fake_api", "conftest.py"):
            support += text.count("\n")
        elif folder not in NOT_BEHAVIOR and len(path.relative_to(tests).parts) > 1:
            behavior += text.count("\n")
            private += bool(re.search(r"^(from|import) visioneval\.(?!cli import\b)", text, re.MULTILINE))
    yield f"lines of tests of behavior           {behavior}"
    yield f"lines of support and fakes           {support}"
    yield f"tests that import private modules    {private} files"


def private_used_once(trees: Trees) -> tuple[int, int]:
    """Private functions of modules, and how many of them are named exactly once outside their definition."""
    total = once = 0
    for tree in trees.values():
        uses = Counter(names_used(tree))
        private = [f.name for f in tree.body if isinstance(f, FUNCTIONS) and f.name.startswith("_")]
        total += len(private)
        once += sum(uses[name] == 1 for name in private)
    return total, once


def imported_by_one(trees: Trees) -> int:
    """Modules that exactly one other module imports."""
    importers: dict[str, set[str]] = {name: set() for name in trees}
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                targets = [f"{node.module}.{alias.name}" for alias in node.names]
                for target in (t if t in trees else node.module for t in targets):
                    if target in trees and target != name:
                        importers[target].add(name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name in trees:
                        importers[alias.name].add(name)
    return sum(len(item) == 1 for item in importers.values())


def grader_checks(trees: Trees) -> list[str]:
    """Where code outside the graders' packages asks whether something is a grader of one type."""
    concrete = re.compile(r"^(?!Base|Custom)\w+(Grader|Options)$")
    places = []
    for name, tree in trees.items():
        if name.startswith(f"{PACKAGE.name}.graders."):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                kinds = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
                if any(concrete.match(kind) for kind in kinds):
                    places.append(f"{name}:{node.lineno}")
    return places


PROBE_JUDGE = """
import json, sys, traceback
from visioneval.providers.base import Reply
class Probe:
    def __init__(self, config):
        pass
    async def ask(self, *question):
        frames = [f for f in traceback.extract_stack()[:-1] if "/visioneval/" in f.filename]
        modules = sorted({f.filename.rpartition("/visioneval/")[2] for f in frames})
        open("depth.json", "w").write(json.dumps([len(frames), modules]))
        return Reply(text='{"reason": "fine", "layout": 5, "verdict": "PASS"}')
"""
PROBE_SUITE = """
name: depth
cases: [{id: a, prompt: a tree}]
judges: {default: {provider: "probe_judge:Probe", model: probe}}
models: [{provider: mock}]
graders: [{key: look, type: rubric, metrics: {layout: {type: score, scale: [0, 5], description: Order.}}}]
verdict: [layout >= 3]
"""


def depth_of_a_judgement() -> str:
    """Frames of ours on the stack that asks a judge, and their modules, in a run of one cell."""
    import os
    import subprocess
    import tempfile

    if not (Path(sys.executable).with_name("visioneval")).is_file():
        return "not measured: no installed command"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "probe_judge.py").write_text(PROBE_JUDGE, encoding="utf-8")
        Path(folder, "suite.yaml").write_text(PROBE_SUITE, encoding="utf-8")
        command = [sys.executable, "-m", "visioneval", "run", "suite.yaml", "--trust-suite", "--quiet", "--no-fail"]
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "XDG_CACHE_HOME": folder},
            capture_output=True,
            text=True,
            check=False,
        )
        if not Path(folder, "depth.json").is_file():
            return f"not measured: {done.stderr.strip().splitlines()[-1:]}"
        frames, modules = json.loads(Path(folder, "depth.json").read_text(encoding="utf-8"))
    return f"{frames} in {len(modules)} modules"


def main() -> None:
    """Prints one figure a line."""
    trees = read_trees()
    functions = [f for tree in trees.values() for f in ast.walk(tree) if isinstance(f, FUNCTIONS)]
    lengths = [(f.end_lineno or f.lineno) - f.lineno + 1 for f in functions]
    uses = Counter(name for tree in trees.values() for name in names_used(tree))
    vague = sum(uses[word] for word in VAGUE)
    classes = Counter(c.name for tree in trees.values() for c in ast.walk(tree) if isinstance(c, ast.ClassDef))
    private, once = private_used_once(trees)
    lines = {p: p.read_text(encoding="utf-8").count("\n") for p in PACKAGE.rglob("*.py")}
    folders = Counter(p.parent for p in lines)
    checks = grader_checks(trees)
    print(f"code lines                           {sum(map(code_lines, trees.values()))}")
    print("\n".join(sizes(trees)))
    print(f"modules                              {len(trees)}, {sum(lines.values())} lines")
    print(f"functions, mean length               {len(functions)}, {mean(lengths):.1f} lines (longest {max(lengths)})")
    print(f"private functions used once          {once} of {private}")
    print(f"modules imported by exactly one      {imported_by_one(trees)}")
    print(f"class names defined more than once   {sum(n > 1 for n in classes.values())}")
    print(f"uses of vague names                  {100 * vague / sum(uses.values()):.1f} % of {sum(uses.values())}")
    print(f"isinstance on one grader, elsewhere  {len(checks)} in {len({c.partition(':')[0] for c in checks})} files")
    print(
        f"files over 400 lines                 {sum(n > 400 for n in lines.values())} (longest {max(lines.values())})"
    )
    print(f"files in the fullest folder          {max(folders.values())}")
    print(f"functions of over seven parameters   {long_parameter_lists(trees)}")
    print(f"classes of over twelve attributes    {len(wide_classes(trees))}")
    print(f"frames of ours that ask a judge      {depth_of_a_judgement()}")
    print("\n".join(test_lines()))


if __name__ == "__main__":
    main()
