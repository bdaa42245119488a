"""Images of cells: checked once when generated, and encoded once for all judges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from visioneval import GraderError, Output, TaskType
from visioneval.media.images import sha256
from visioneval.providers.base import Address, FilePart
from visioneval.running.calls.outputs import CheckedMedia, check_media
from visioneval.running.cells import services as image_cache
from visioneval.running.cells.services import CellImages, ImageCache

Save = Callable[..., Path]
GENERATION = TaskType.IMAGE_GENERATION


class TestCheckMedia:
    """A generated image is decoded before any judge sees it."""

    @pytest.mark.parametrize(
        ("name", "mime"), [("a.png", "image/png"), ("a.jpg", "image/jpeg"), ("a.webp", "image/webp")]
    )
    def test_a_valid_image_has_its_facts(self, save_image: Save, name: str, mime: str) -> None:
        data = save_image(name).read_bytes()
        image = check_media(data, GENERATION)
        assert (image.fault, image.data, image.decoded) == (None, data, True)
        assert (image.sha256, image.mime, image.width, image.height) == (sha256(data), mime, 64, 48)

    def test_an_address_is_not_downloaded(self) -> None:
        image = check_media(Address("gs://bucket/a.mp4", "video/mp4"), TaskType.VIDEO_GENERATION)
        assert (image.uri, image.mime, image.data, image.fault) == ("gs://bucket/a.mp4", "video/mp4", None, None)

    def test_the_cache_stores_what_is_known_without_bytes_and_paths(self, save_image: Save) -> None:
        image = check_media(save_image().read_bytes(), GENERATION)
        stored = image.cached_fields
        assert stored == {
            "sha256": image.sha256,
            "mime": "image/png",
            "width": 64,
            "height": 48,
            "uri": None,
            "fault": None,
            "fault_kind": "bad_image",
            "download": None,
            "decoded": True,
        }
        assert CheckedMedia.from_cache(stored).cached_fields == stored

    def test_a_cache_of_another_version_is_readable(self) -> None:
        """Keys that were stored once are ignored, and what was not stored yet has its default."""
        image = CheckedMedia.from_cache({"data": None, "kept": None, "sha256": "00", "mime": "image/png", "width": 64})
        assert image == CheckedMedia(sha256="00", mime="image/png", width=64)


class TestImageCache:
    """Input images and masks are read once."""

    def test_an_image_is_read_once(self, save_image: Save) -> None:
        cache, path = ImageCache(), save_image()
        part = cache.show(path)
        path.unlink()
        assert cache.show(path) is part
        assert part.mime == "image/png"

    def test_an_image_and_a_mask_are_different_parts(self, mask: Save) -> None:
        cache, path = ImageCache(), mask()
        assert cache.show(path).sha256 != cache.show(path, mask=True).sha256

    def test_a_format_that_judges_refuse_is_encoded_as_png(self, save_image: Save) -> None:
        assert ImageCache().show(save_image("a.bmp")).mime == "image/png"

    def test_an_image_that_cannot_be_read_is_not_cached(self, tmp_path: Path, save_image: Save) -> None:
        cache = ImageCache()
        with pytest.raises(GraderError, match=r"a\.png: "):
            cache.show(tmp_path / "a.png")
        assert cache.show(save_image("a.png")).data

    def test_the_least_recently_used_image_is_dropped(self, save_image: Save, monkeypatch: pytest.MonkeyPatch) -> None:
        paths = [save_image(f"{color}.png", color=color) for color in ("red", "blue", "green")]
        sizes = [path.stat().st_size for path in paths]
        monkeypatch.setattr(image_cache, "MAX_BYTES", sizes[0] + max(sizes[1:]))
        cache = ImageCache()
        red, blue = cache.show(paths[0]), cache.show(paths[1])
        assert cache.show(paths[0]) is red
        cache.show(paths[2])
        assert cache.show(paths[0]) is red
        assert cache.show(paths[1]) is not blue

    def test_an_image_larger_than_the_cache_is_cached_until_the_next(
        self, save_image: Save, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(image_cache, "MAX_BYTES", 1)
        cache, first, second = ImageCache(), save_image("a.png"), save_image("b.png", color="red")
        part = cache.show(first)
        assert cache.show(first) is part
        cache.show(second)
        assert cache.show(first) is not part


class TestCellImages:
    """The output of a cell is not read again; its input images are cached."""

    @staticmethod
    def output(path: Path, mime: str) -> Output:
        return Output(path, "0" * 64, mime, 64, 48)

    def test_the_output_is_a_file_with_its_known_digest(self, save_image: Save) -> None:
        path = save_image()
        part = CellImages(self.output(path, "image/png"), ImageCache()).show(path)
        assert isinstance(part, FilePart)
        assert (part.sha256, part.mime, part.data) == ("0" * 64, "image/png", path.read_bytes())

    def test_an_output_in_another_format_is_encoded(self, save_image: Save) -> None:
        path = save_image("a.bmp")
        part = CellImages(self.output(path, "image/bmp"), ImageCache()).show(path)
        assert (part.mime, isinstance(part, FilePart)) == ("image/png", False)

    def test_input_images_come_from_the_cache(self, save_image: Save) -> None:
        cache, path = ImageCache(), save_image("base.png")
        output = self.output(save_image("out.png"), "image/png")
        assert CellImages(output, cache).show(path) is CellImages(None, cache).show(path)
