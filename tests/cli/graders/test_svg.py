"""SVG outputs are drawn by a library without anything outside of the file, and bounded before."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from visioneval.cli import app
from visioneval.errors import ImageError
from visioneval.judging.shown_images import shown
from visioneval.media import images
from visioneval.media import svg as svg_media
from visioneval.media.svg import raster
from visioneval.records.model import Record, read_records
from visioneval.report.html.images import FolderImages

NS = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'


def drawing(body: str, size: str = 'width="120" height="80"', head: str = "") -> bytes:
    return f"{head}<svg {NS} {size}>{body}</svg>".encode()


LOGO = drawing(
    '<defs><linearGradient id="g"><stop stop-color="#c02040"/><stop offset="1" stop-color="#2040c0"/></linearGradient>'
    "<style>.ring { stroke: url(#g); fill: none }</style></defs>"
    '<rect x="10" y="10" width="60" height="60" fill="url(#g)"/><circle class="ring" cx="90" cy="40" r="20"/>'
    '<a href="https://example.com/"><rect x="2" y="2" width="5" height="5"/></a>',
    head='<?xml version="1.0"?>\n<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "svg11.dtd">\n<!-- a logo -->\n',
)


class Runner:
    """Runs a suite of one case whose output is a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.case: dict[str, Any] = {"id": "logo", "prompt": "x", "expect": {"size": "120x80", "format": "svg"}}
        self.graders: list[dict[str, Any]] = [{"key": "file", "type": "properties"}]

    def __call__(self, output: bytes, *flags: str, run_id: str = "r") -> Result:
        (self.folder / "output").write_bytes(output)
        suite = {
            "name": "drawings",
            "cases": [self.case],
            "models": [{"provider": "files", "path": "output"}],
            "graders": self.graders,
            "verdict": [self.graders[0]["key"]],
        }
        (self.folder / "suite.yaml").write_text(json.dumps(suite))
        runs = ["--runs", str(self.folder / "runs"), "--run-id", run_id, "--cache", str(self.folder / "cache")]
        return CliRunner().invoke(app, ["run", str(self.folder / "suite.yaml"), *runs, *flags])

    def record(self, run_id: str = "r") -> Record:
        (record,) = read_records(self.folder / "runs" / run_id)
        return record


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def test_without_the_extra_the_error_names_it(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svg_media, "has_extra", lambda _: False)
    raster.cache_clear()
    assert runner(LOGO).exit_code == 3
    error = runner.record().error
    assert error is not None
    assert (error.kind, "\n" in error.message) == ("missing_extra", False)
    assert "SVGs need an extra: run pip install" in error.message
    assert "[svg]" in error.message


@pytest.mark.parametrize("data", [b"<html><svg></html>", b"svg", b"an <svg>"])
def test_other_text_is_no_svg(data: bytes) -> None:
    with pytest.raises(ImageError, match=r"not a supported image \(supported: .*svg\)"):
        images.identify(data)


class TestDrawn:
    """With resvg."""

    @pytest.fixture(autouse=True)
    def _needs_resvg(self) -> None:
        pytest.importorskip("resvg_py")
        raster.cache_clear()

    def test_an_output_is_graded_as_drawn_and_stored_as_it_is(self, runner: Runner) -> None:
        result = runner(LOGO)
        assert result.exit_code == 0, result.output
        record = runner.record()
        path = runner.folder / "runs" / "r" / (record.artifact_path or "")
        assert (record.mime, record.width, record.height, path.suffix) == ("image/svg+xml", 120, 80, ".svg")
        assert path.read_bytes() == LOGO
        assert record.graders[0].details["transparent"] is True
        again = runner(LOGO, "--offline", run_id="again")
        assert again.exit_code == 0, again.output

    def test_local_graders_and_judges_get_the_same_pixels(self, runner: Runner) -> None:
        (runner.folder / "right.png").write_bytes(raster(LOGO))
        runner.case = {"id": "logo", "prompt": "x", "reference": "right.png"}
        runner.graders = [{"key": "like", "type": "reference"}]
        assert runner(LOGO).exit_code == 0
        assert runner.record().scores["like.delta_e"] == 0
        (runner.folder / "a.svg").write_bytes(LOGO)
        part = shown(runner.folder / "a.svg")
        assert part.mime == "image/png"
        assert images.load_image(part.data).tobytes() == images.load_image(LOGO).tobytes()

    def test_a_report_shows_the_drawn_image_and_never_the_svg(self, runner: Runner) -> None:
        assert runner(LOGO).exit_code == 0
        run = runner.folder / "runs" / "r"
        (run / "report" / "images").mkdir(parents=True, exist_ok=True)
        entry = FolderImages(run, runner.folder, run / "report", trust=False).run_image(
            runner.record().artifact_path or ""
        )
        assert entry["src"].endswith(".png")
        assert (run / "report" / entry["src"]).read_bytes().startswith(b"\x89PNG")

    @pytest.mark.parametrize(
        "body",
        [
            '<image href="{path}" width="120" height="80"/>',
            '<image xlink:href="{path}" width="120" height="80"/>',
            '<image xlink:href="file://{path}" width="120" height="80"/>',
            '<image href="secret.png" width="120" height="80"/>',
            '<image xmlns:q="http://www.w3.org/1999/xlink" q:href="&#47;{path}" width="120" height="80"/>',
            '<filter id="f"><feImage href="{path}"/></filter><rect width="99" height="80" filter="url(#f)"/>',
            '<use href="{path}#a"/>',
            '<image href="data:image/svg+xml;base64,{nested}" width="120" height="80"/>',
            '<image href="data:text/xml;base64,{nested}" width="120" height="80"/>',
            '<rect width="99" height="80" fill="url({path}#g)"/>',
            '<rect width="99" height="80" style="fill: URL( \'{path}\' )"/>',
            "<style>@import '{path}';</style>",
            "<style><![CDATA[rect {{ mask: url({path}) }}]]></style>",
        ],
    )
    def test_nothing_outside_of_the_file_is_drawn(self, tmp_path: Path, body: str) -> None:
        secret = tmp_path / "secret.png"
        Image.new("RGB", (120, 80), (1, 200, 3)).save(secret)
        nested = base64.b64encode(drawing(f'<image href="{secret}" width="120" height="80"/>')).decode()
        with pytest.raises(ImageError, match="refers to something outside of it"):
            images.load_image(drawing(body.format(path=secret, nested=nested)))

    def test_an_embedded_image_is_drawn(self) -> None:
        target = io.BytesIO()
        Image.new("RGB", (4, 4), (1, 200, 3)).save(target, "PNG")
        data = base64.b64encode(target.getvalue()).decode()
        image = images.load_image(drawing(f'<image href="data:image/png;base64,{data}" width="120" height="80"/>'))
        assert image.convert("RGB").getpixel((60, 40)) == (1, 200, 3)

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (drawing("<script>1</script>"), "has a script"),
            (drawing("<g><foreignObject><p>text</p></foreignObject></g>"), "has <foreignObject>, which is not drawn"),
            (drawing('<rect width="9" height="9"><animate attributeName="x" to="9"/></rect>'), "has an animation"),
            (drawing("<style>@keyframes a { to { x: 9px } }</style>"), "has an animation"),
            (drawing("&x;", head='<!DOCTYPE svg [<!ENTITY x SYSTEM "file:///etc/passwd">]>'), "entities in its DOCTYPE"),
            (drawing("", head='<?xml-stylesheet href="a.css"?>'), "refers to something outside"),
            (drawing("<g>"), "not valid XML"),
            (drawing("<g>" * 200 + "</g>" * 200), "100 levels"),
            (drawing("<g/>" * 100_001), "100,000 elements"),
            (drawing("", "width='60000' height='60000'"), "60000 x 60000 pixels, over the limit of 50 million"),
            (drawing("", "width='1' viewBox='0 0 1 1e9'"), "over the limit of 50 million"),
            (drawing("", "width='1e400' height='1'"), "over the limit of 50 million"),
            (drawing("", "width='100%' height='100%'"), "has no size"),
            (drawing("", "viewBox='0 0 -5 5'"), "has no size"),
            (b"<x><svg/></x>", "begins with <x>"),
            (drawing("<!--" + " " * svg_media.MAX_SVG_BYTES + "-->"), "over the limit of 10,000,000"),
            (b"<svg>\xff</svg>", "not UTF-8"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_drawn_is_refused_before(
        self, monkeypatch: pytest.MonkeyPatch, data: bytes, reason: str
    ) -> None:
        monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("it was drawn"))
        with pytest.raises(ImageError, match=reason) as caught:
            images.identify(data)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("size", "expected"),
        [
            ('viewBox="0 0 30 20"', (30, 20)),
            ('width="60" viewBox="0,0,30,20"', (60, 40)),
            ('width="1in" height="50"', (96, 50)),
            ('width="100%" height="100%" viewBox="0 0 30 20"', (30, 20)),
            ('width="30.4" height="20.6"', (30, 21)),
        ],
    )
    def test_the_size_is_that_of_the_drawing(self, size: str, expected: tuple[int, int]) -> None:
        assert images.identify(drawing('<rect width="9" height="9"/>', size)) == ("image/svg+xml", *expected)

    def test_a_drawing_that_takes_too_long_is_stopped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(svg_media, "_SECONDS", 1)
        noise = '<filter id="f"><feTurbulence numOctaves="99999" baseFrequency="0.1"/></filter>'
        slow = drawing(f'{noise}<rect width="3000" height="3000" filter="url(#f)"/>', 'width="3000" height="3000"')
        with pytest.raises(
            ImageError, match=r"the SVG cannot be drawn: it (needs too much memory or time|takes more than)"
        ):
            images.load_image(slow)

    def test_a_drawing_that_copies_itself_is_an_error(self) -> None:
        many = "".join(f'<g id="g{n}">' + f'<use href="#g{n + 1}"/>' * 10 + "</g>" for n in range(9))
        bomb = drawing(f'<defs>{many}<g id="g9"><rect width="9" height="9"/></g></defs><use href="#g0"/>')
        with pytest.raises(ImageError, match="the SVG cannot be drawn"):
            images.load_image(bomb)

    def test_a_drawing_that_needs_too_much_memory_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(svg_media, "_MEMORY", 1 << 29)
        target = io.BytesIO()
        Image.new("1", (14_000, 14_000)).save(target, "PNG")
        data = base64.b64encode(target.getvalue()).decode()
        with pytest.raises(ImageError, match="the SVG cannot be drawn: it needs too much memory or time"):
            images.load_image(drawing(f'<image href="data:image/png;base64,{data}" width="120" height="80"/>'))

    @pytest.mark.parametrize("family", ["", 'font-family="No Such Font, sans-serif"', "style='font-family: Inter'"])
    def test_text_is_drawn_or_the_missing_font_is_an_error(self, family: str) -> None:
        try:
            image = images.load_image(drawing(f'<text x="10" y="60" font-size="40" {family}>Ag</text>'))
        except ImageError as error:
            assert "this machine has none of the usual fonts" in str(error)
        else:
            assert image.getchannel("A").getextrema()[1] > 0

    def test_text_without_a_font_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        draw = "import resvg_py\nfrom functools import partial\nsvg_to_bytes = resvg_py.svg_to_bytes\n"
        draw += "resvg_py.svg_to_bytes = partial(svg_to_bytes, skip_system_fonts=True)\n"
        monkeypatch.setattr(svg_media, "_DRAW", draw + svg_media._DRAW)
        with pytest.raises(
            ImageError, match="the SVG cannot be drawn: it has text, and this machine has none of the usual"
        ):
            images.load_image(drawing('<text x="10" y="60">Ag</text>'))
        images.load_image(LOGO)  # without text

    def test_an_input_is_drawn_for_graders_and_models(self, runner: Runner) -> None:
        (runner.folder / "base.svg").write_bytes(LOGO)
        runner.case = {"id": "logo", "prompt": "x", "images": ["base.svg"]}
        runner.graders = [{"key": "file", "type": "properties"}]
        result = runner(raster(LOGO))
        assert result.exit_code == 0, result.output
        assert runner.record().scores["file.alpha"] is True

    def test_a_stranger_s_drawing_as_input_is_a_problem_of_the_suite(self, runner: Runner) -> None:
        (runner.folder / "base.svg").write_bytes(drawing('<image href="/etc/hostname"/>'))
        runner.case = {"id": "logo", "prompt": "x", "images": ["base.svg"]}
        result = runner(LOGO)
        assert result.exit_code == 2
        assert "base.svg: the SVG refers to something outside of it (/etc/hostname)" in result.output


def test_no_module_beside_a_suite_is_run(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("resvg_py")
    raster.cache_clear()
    for name in ("json", "resource", "resvg_py"):
        text = f"import pathlib; pathlib.Path({str(runner.folder / 'ran')!r}).write_text('')\n"
        (runner.folder / f"{name}.py").write_text(text)
    (runner.folder / "base.svg").write_bytes(LOGO)
    runner.case = {"id": "logo", "prompt": "x", "images": ["base.svg"]}
    monkeypatch.chdir(runner.folder)
    assert runner(raster(LOGO)).exit_code == 0
    assert not (runner.folder / "ran").exists()
