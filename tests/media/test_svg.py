"""SVG outputs are drawn by a library without anything outside of the file, and bounded before."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from file_runner import FileRunner
from PIL import Image

from visioneval import ImageError
from visioneval.errors import MissingExtraError
from visioneval.judging.attachments import shown
from visioneval.media import images
from visioneval.media import svg as svg_media
from visioneval.media.images import encode_png
from visioneval.media.svg import checked_raster, raster
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


@pytest.fixture
def runner(tmp_path: Path) -> FileRunner:
    case = {"id": "logo", "prompt": "x", "expect": {"size": "120x80", "format": "svg"}}
    return FileRunner(tmp_path, case, {"key": "file", "type": "properties"})


def test_without_the_extra_the_error_names_it(runner: FileRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svg_media, "has_extra", lambda _: False)
    checked_raster.cache_clear()
    raster.cache_clear()
    assert runner(LOGO).exit_code == 3
    error = runner.record().error
    assert error is not None
    assert (error.kind, "\n" in error.message) == ("missing_extra", False)
    assert "SVGs need an extra: run pip install" in error.message
    assert "[svg]" in error.message


@pytest.mark.parametrize(
    "data",
    [b"<html><svg></html>", b"svg", b"an <svg>", b"<x><svg/></x>", b"<!-- <svg> -->", b"<svgs/>", b"<?xml <svg>"],
)
def test_other_text_is_no_svg(data: bytes) -> None:
    with pytest.raises(ImageError, match=r"not a supported image \(supported: .*svg\)"):
        images.identify(data)


class TestDrawn:
    """With resvg."""

    @pytest.fixture(autouse=True)
    def _needs_resvg(self) -> None:
        pytest.importorskip("resvg_py")
        checked_raster.cache_clear()
        raster.cache_clear()

    def test_an_output_is_graded_as_drawn_and_stored_as_it_is(self, runner: FileRunner) -> None:
        result = runner(LOGO)
        assert result.exit_code == 0, result.output
        record = runner.record()
        path = runner.folder / "runs" / "r" / (record.artifact_path or "")
        assert (record.mime, record.width, record.height, path.suffix) == ("image/svg+xml", 120, 80, ".svg")
        assert path.read_bytes() == LOGO
        assert record.graders[0].details["transparent"] is True
        again = runner(LOGO, "--offline", run_id="again")
        assert again.exit_code == 0, again.output

    def test_local_graders_and_judges_get_the_same_pixels(self, runner: FileRunner) -> None:
        (runner.folder / "right.png").write_bytes(raster(LOGO))
        runner.case = {"id": "logo", "prompt": "x", "reference": "right.png"}
        runner.graders = [{"key": "like", "type": "reference"}]
        assert runner(LOGO).exit_code == 0
        assert runner.record().scores["like.delta_e"] == 0
        (runner.folder / "a.svg").write_bytes(LOGO)
        part = shown(runner.folder / "a.svg")
        assert part.mime == "image/png"
        assert images.load_image(part.data).tobytes() == images.load_image(LOGO).tobytes()

    def test_a_report_shows_the_drawn_image_and_never_the_svg(self, runner: FileRunner) -> None:
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
        ("type_", "damage", "message"),
        [
            ("image/png", lambda data: data, None),
            ("image/jpeg", lambda data: data, "is no jpeg: write data:image/png"),
            ("image/png", lambda data: data[:-20], r"\(data:image/png;base64\) that is damaged"),
            ("image/png", lambda _: drawing('<image href="/etc/hostname"/>'), "that is damaged"),
        ],
    )
    @pytest.mark.parametrize("element", ["image", "feImage"])
    def test_an_embedded_image_that_would_be_left_out_is_refused(
        self, element: str, type_: str, damage: Callable[[bytes], bytes], message: str | None
    ) -> None:
        content = base64.b64encode(damage(encode_png(Image.effect_noise((9, 9), 50)))).decode()
        data = drawing(f'<g><{element} href="data:{type_};base64,{content}" width="9" height="9"/></g>')
        if message is None:
            assert images.identify(data)
        else:
            with pytest.raises(ImageError, match=message):
                images.identify(data)

    def test_an_embedded_jpeg_may_be_jpg_but_not_in_cmyk(self) -> None:
        def embedded(mode: str) -> bytes:
            target = io.BytesIO()
            Image.new(mode, (4, 4)).save(target, "JPEG")
            content = base64.b64encode(target.getvalue()).decode().rstrip("=")
            return drawing(f'<image href="data:image/jpg;base64,{content}" width="120" height="80"/>')

        assert images.load_image(embedded("RGB")).convert("RGB").getpixel((60, 40)) == (0, 0, 0)
        with pytest.raises(ImageError, match="in CMYK, whose colors are not drawn right"):
            images.load_image(embedded("CMYK"))

    @pytest.mark.parametrize("pixels", [9_000, 14_000])
    def test_an_embedded_image_over_the_limit_is_refused(self, pixels: int) -> None:
        content = base64.b64encode(encode_png(Image.new("1", (pixels, pixels)))).decode()
        with pytest.raises(ImageError, match=r"over the limit of 50 million pixels"):
            images.load_image(drawing(f'<image href="data:image/png;base64,{content}"/>'))

    @pytest.mark.parametrize(
        ("css", "named"),
        [
            ("fill: var(--brand)", "var(--brand)"),
            ("fill: oklch(60% 0.2 30)", "oklch(60% 0.2 30)"),
            ("fill: color-mix(in srgb, red, blue)", "color-mix(in srgb, red, blue)"),
            ("fill: rgb(255 0 0 / 50%)", "rgb(255 0 0 / 50%)"),
            ("fill: red; stroke-width: calc(2px * 3)", "calc(2px * 3)"),
            ("fill: red; clip-path: circle(5px)", "circle(5px)"),
            ("fill: red; transform: rotate(45deg)", "transform: rotate(45deg"),
            ("fill: red; background: white", "background:"),
            ("cx: 5px", "cx:"),
        ],
    )
    def test_css_that_is_not_drawn_is_refused(self, css: str, named: str) -> None:
        for body in (f'<rect style="{css}"/>', f"<style>rect {{ {css} }}</style>"):
            with pytest.raises(ImageError, match=re.escape(f"the SVG has CSS that is not drawn ({named}")):
                images.identify(drawing(body))

    @pytest.mark.parametrize(
        ("sheet", "named"),
        [
            ("@font-face { font-family: x; src: url(data:font/woff2,x) }", "@font-face"),
            ("@media screen { rect { fill: red } }", "@media"),
            ("@supports (fill: red) { rect { fill: red } }", "@supports"),
            (":root { fill: red }", ":root"),
            ("rect:not(.a) { fill: red }", "not(.a)"),
            ("/*" + "x" * 9000 + "*/ rect { fill: hwb(0 0% 0%) }", "hwb(0 0% 0%)"),
        ],
    )
    def test_style_sheets_with_what_is_not_drawn_are_refused(self, sheet: str, named: str) -> None:
        with pytest.raises(ImageError, match=re.escape(f"the SVG has CSS that is not drawn ({named})")):
            images.identify(drawing(f"<style>{sheet}</style>"))

    @pytest.mark.parametrize(
        "body",
        [
            "<style>@media (prefers-color-scheme: dark) { rect { fill: red } } rect:hover { fill: blue }</style>",
            "<style>@media(prefers-reduced-motion) { rect { fill: red } } /* var(--x) @font-face */</style>",
            '<rect style="fill: rgba(1, 2, 3, 0.5); transform-origin: 5px 50%; filter: blur(2px)"/>',
            '<rect style="enable-background: new; text-transform: none" fill="hsl(1, 50%, 50%)"/>',
            '<rect aria-label="see url(logo.png)" data-note="uses @import and var(--x)" id="@keyframes"/>',
            '<rect transform="rotate(45) translate(1, 2)"/><text>url(a.png) var(--x)</text>',
        ],
    )
    def test_css_that_is_known_and_plain_text_are_drawn(self, body: str) -> None:
        assert images.identify(drawing(body))

    @pytest.mark.parametrize(
        "data",
        [
            drawing("", head="<!--" + "a license " * 1000 + "-->"),
            drawing("", head="\ufeff<?xml version='1.0'?> <!-- made with <html> tool --><!-- > -->"),
            b'<s:svg xmlns:s="http://www.w3.org/2000/svg" width="120" height="80"><s:rect/></s:svg>',
        ],
    )
    def test_an_svg_is_recognized_by_its_first_element(self, tmp_path: Path, data: bytes) -> None:
        (tmp_path / "a").write_bytes(data)
        assert images.inspect(tmp_path / "a") == images.identify(data) == ("image/svg+xml", 120, 80)

    @pytest.mark.parametrize(
        ("size", "expected"),
        [
            ('width="210mm" height="297mm" viewBox="0 0 210 297"', (794, 1123)),
            ('width="30.4" height="20.6"', (30, 21)),
            ('viewBox="0 0 0.3 9.5"', (1, 10)),
            ('width="60" height="40"', (60, 40)),
        ],
    )
    def test_a_drawing_fills_whole_pixels(self, size: str, expected: tuple[int, int]) -> None:
        full = '<rect width="100%" height="100%"/>'
        head = '<?xml version="1.0"?><!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "svg11.dtd">'
        image = images.load_image(drawing(full, size, head=head))
        assert (image.size, image.mode) == (expected, "RGB")
        half = images.load_image(drawing('<rect width="50%" height="100%"/>', size))
        assert half.mode == "RGBA", "what is transparent stays so"

    def test_characters_that_no_font_has_are_an_error_of_the_machine(self) -> None:
        known, unknown = "Ag \u00e9\u200b\u0301", "\U000f1234"
        try:
            images.identify(drawing(f"<text>{known}</text><title>{unknown}</title>"))
        except MissingExtraError as error:
            pytest.skip(str(error))
        with pytest.raises(MissingExtraError, match=f"no font of this machine has {unknown}: install one") as caught:
            images.identify(drawing(f"<text>{known}<tspan>{unknown}</tspan></text>"))
        assert "\n" not in str(caught.value)

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
        layers = drawing(
            '<g opacity="0.5">' * 4 + '<rect width="7000" height="7000"/>' + "</g>" * 4, 'width="7000" height="7000"'
        )
        with pytest.raises(ImageError, match="the SVG cannot be drawn: it needs too much memory or time"):
            images.load_image(layers)

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

    def test_an_input_is_drawn_for_graders_and_models(self, runner: FileRunner) -> None:
        (runner.folder / "base.svg").write_bytes(LOGO)
        runner.case = {"id": "logo", "prompt": "x", "images": ["base.svg"]}
        runner.graders = [{"key": "file", "type": "properties"}]
        result = runner(raster(LOGO))
        assert result.exit_code == 0, result.output
        assert runner.record().scores["file.alpha"] is True

    def test_a_stranger_s_drawing_as_input_is_a_problem_of_the_suite(self, runner: FileRunner) -> None:
        (runner.folder / "base.svg").write_bytes(drawing('<image href="/etc/hostname"/>'))
        runner.case = {"id": "logo", "prompt": "x", "images": ["base.svg"]}
        result = runner(LOGO)
        assert result.exit_code == 2
        assert "base.svg: the SVG refers to something outside of it (/etc/hostname)" in result.output


def test_no_module_beside_a_suite_is_run(runner: FileRunner, monkeypatch: pytest.MonkeyPatch) -> None:
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
