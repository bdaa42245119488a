"""Packages with plug-ins, as an installer leaves them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from toys import Toy

CODE = """
import io
from pathlib import Path
from PIL import Image
from pydantic import BaseModel
from visioneval import Generation, Grade, Reply

def count(what):
    with Path("calls.txt").open("a") as file:
        file.write(what + "\\n")

class Look:
    class Options(BaseModel):
        answer: bool = True
    def __init__(self, config): self.key, self.options = config.key, config.options
    def metrics(self, case): return {self.key: {"type": "bool"}}
    async def grade(self, context):
        count("grade")
        answer = await context.ask("Fine?", {"fine": {"type": "boolean"}})
        return Grade(scores={self.key: answer["fine"] is self.options.answer})

class Draw:
    def __init__(self, config): pass
    def generate(self, request):
        count("generate")
        data = io.BytesIO()
        Image.new("RGB", (8, 8), "navy" if "tree" in request.prompt else "teal").save(data, "PNG")
        return Generation(outputs=(data.getvalue(),), cost_usd=0.0)

class Answer:
    def __init__(self, config): pass
    def ask(self, question, about):
        count("ask")
        return Reply(text='{"fine": true}', model="fixed", cost_usd=0.0)
"""
GROUPS = {"graders": "acme_look = acme:Look", "providers": "acme_draw = acme:Draw", "judges": "acme_eye = acme:Answer"}
SUITE = """\
name: acme
cases: [{id: one, prompt: a tree}, {id: two, prompt: a house}]
models:
  - {provider: acme_draw, label: acme}
judges:
  eye: {provider: acme_eye}
graders:
  - {key: look, type: acme_look, judge: eye}
verdict: [look]
"""


class Site:
    """A folder of installed packages, and a suite that uses those of ``acme``."""

    def __init__(self, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
        self.toy = toy
        self._monkeypatch = monkeypatch
        self._installed = 0
        self.suite()

    def install(
        self,
        *changes: tuple[str, str],
        name: str = "acme",
        version: str = "1.0",
        groups: dict[str, str] | None = None,
        code: str = CODE,
        editable: bool = False,
    ) -> Path:
        """Installs a package with one module of its name, in place of the one that had it. Returns its folder."""
        for old, new in changes:
            assert old in code
            code = code.replace(old, new)
        self.uninstall(name)
        self._installed += 1
        site = self.toy.folder.parent / f"{self.toy.folder.name}-site{self._installed}-{name}"
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (site / f"{name}.py").write_text(code)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        entries = (
            f"[visioneval.{group}]\n{lines}\n" for group, lines in (GROUPS if groups is None else groups).items()
        )
        (info / "entry_points.txt").write_text("\n".join(entries))
        if editable:
            (info / "direct_url.json").write_text(json.dumps({"url": "file:///x", "dir_info": {"editable": True}}))
        self._monkeypatch.syspath_prepend(site)
        return site

    def uninstall(self, name: str = "acme") -> None:
        """Removes a package, if it is installed."""
        self._monkeypatch.setattr(sys, "path", [path for path in sys.path if not path.endswith(f"-{name}")])
        sys.modules.pop(name, None)

    def suite(self, *changes: tuple[str, str]) -> None:
        """Writes the suite with changes."""
        text = SUITE
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (self.toy.folder / "suite.yaml").write_text(text)

    def calls(self) -> dict[str, int]:
        """What the classes did since the last question."""
        path = self.toy.folder / "calls.txt"
        words = path.read_text().split() if path.exists() else []
        path.unlink(missing_ok=True)
        return {word: words.count(word) for word in sorted(set(words))}

    def problem(self) -> str:
        """The only line of what ``validate`` reports, without trust."""
        result = self.toy("validate", "suite.yaml")
        assert result.exit_code == 2, result.output
        assert "Traceback" not in result.output
        (line,) = result.stderr.splitlines()
        return str(line)
