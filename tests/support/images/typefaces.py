"""Typefaces for drawn copy: pinned packages of open fonts, installed once into ``build/fonts``, and Pillow's own.

They are a dependency of the calibration of copy only, and in no environment of the project.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from PIL import ImageFont

FOLDER = Path(__file__).parents[3] / "build" / "fonts"
OWN = "aileron"
"""Pillow's default typeface, which needs no file."""
_PINS = {
    "abril-fatface": "1.1",
    "barlow-condensed": "1.408",
    "bebas-neue": "2.0",
    "caveat": "2.0",
    "dancing-script": "2.1",
    "eb-garamond": "1.3",
    "great-vibes": "1.103",
    "inter": "4.1.post1",
    "jetbrains-mono": "2.211",
    "lobster": "2.100",
    "lora": "3.8",
    "nunito": "3.602",
    "oswald": "4.103",
    "pacifico": "3.1",
    "permanent-marker": "1.1",
    "playfair-display": "1.203",
    "poppins": "4.4",
    "press-start-2p": "3.0",
    "righteous": "1.0",
    "roboto-slab": "2.2",
    "space-mono": "1.3",
    "zilla-slab": "1.2",
}
FACES = {
    "abril": ("abril_fatface", "AbrilFatface-Regular"),
    "barlow": ("barlow_condensed", "BarlowCondensed-Medium"),
    "bebas": ("bebas_neue", "BebasNeue-Regular"),
    "caveat": ("caveat", "Caveat[wght]"),
    "dancing": ("dancing_script", "DancingScript[wght]"),
    "garamond": ("eb_garamond", "EBGaramond[wght]"),
    "garamond italic": ("eb_garamond", "EBGaramond-Italic[wght]"),
    "great vibes": ("great_vibes", "GreatVibes-Regular"),
    "inter": ("inter", "Inter[opsz,wght]"),
    "jetbrains": ("jetbrains_mono", "JetBrainsMono[wght]"),
    "lobster": ("lobster", "Lobster-Regular"),
    "lora": ("lora", "Lora[wght]"),
    "nunito": ("nunito", "Nunito[wght]"),
    "oswald": ("oswald", "Oswald[wght]"),
    "pacifico": ("pacifico", "Pacifico-Regular"),
    "marker": ("permanent_marker", "PermanentMarker-Regular"),
    "playfair": ("playfair_display", "PlayfairDisplay[wght]"),
    "poppins": ("poppins", "Poppins-Regular"),
    "poppins bold": ("poppins", "Poppins-Bold"),
    "pixel": ("press_start_2p", "PressStart2P-Regular"),
    "righteous": ("righteous", "Righteous-Regular"),
    "roboto slab": ("roboto_slab", "RobotoSlab[wght]"),
    "space mono": ("space_mono", "SpaceMono-Regular"),
    "zilla": ("zilla_slab", "ZillaSlab-Regular"),
}
ONE_CASE = frozenset({"bebas", "marker"})
"""Typefaces whose small letters look like capitals."""


@cache
def _install() -> None:
    """Installs the pinned packages, unless they are there. Raises ``CalledProcessError`` if ``pip`` cannot."""
    packages = [f"fontpkg-{name}=={version}" for name, version in _PINS.items()]
    stamp = FOLDER / "pins.txt"
    if stamp.is_file() and stamp.read_text() == "\n".join(packages):
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(FOLDER)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, *packages], check=True)
    stamp.write_text("\n".join(packages))


@cache
def typeface(name: str, size: int) -> ImageFont.FreeTypeFont:
    """A typeface in a size in pixels, of regular weight. The first one installs all."""
    if name == OWN:
        own = ImageFont.load_default(size)
        assert isinstance(own, ImageFont.FreeTypeFont)
        return own
    _install()
    package, file = FACES[name]
    path = FOLDER / f"fontpkg_{package}" / "files" / f"{file}.ttf"
    font = ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)
    if file.endswith("wght]"):
        names = [item.decode() if isinstance(item, bytes) else item for item in font.get_variation_names()]
        font.set_variation_by_name("Regular" if "Regular" in names else "Italic")
    return font
