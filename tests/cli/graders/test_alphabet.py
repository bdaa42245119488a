# ruff: noqa: RUF001 - characters that are easily confused are the subject here
from __future__ import annotations

import subprocess
import sys
import unicodedata

import pytest

from visioneval.graders.text.alphabet import alphabet, fold_character, unreadable


@pytest.mark.parametrize(
    ("text", "unreadable_characters"),
    [
        ("20% OFF — “SALE” … don’t", []),
        ("Café à Orléans, Łódź, Smørrebrød", []),
        ("ﬁne ＳＡＬＥ m² ½ ™", []),
        ("雪だるま 営業中 カフェ", []),
        ("ΩΔ", []),
        ("a\u00a0b\u200bc\ufeff", []),
        ("cafe\u0301", []),
        ("Привет, мир", ["П", "р", "и", "в", "е", "т", "м"]),
        ("한국 SALE", ["한", "국"]),
        ("שלום", ["ש", "ל", "ו", "ם"]),
        ("", []),
    ],
)
def test_unreadable_lists_characters_that_ocr_cannot_read(text: str, unreadable_characters: list[str]) -> None:
    assert unreadable(text) == unreadable_characters


def test_the_alphabet_is_the_model_s_dictionary() -> None:
    pytest.importorskip("rapidocr")
    onnxruntime = pytest.importorskip("onnxruntime")
    from visioneval.graders.text.reading.ocr import model_path

    session = onnxruntime.InferenceSession(str(model_path("Rec")), providers=["CPUExecutionProvider"])
    dictionary = set(session.get_modelmeta().custom_metadata_map["character"].splitlines())
    assert alphabet() <= dictionary
    assert all(ord(char) > 0x1FFFF for char in dictionary - alphabet())


def test_folding_into_the_alphabet_is_idempotent() -> None:
    for char in alphabet():
        folded = fold_character(char)
        assert unicodedata.normalize("NFC", folded) == folded
        assert "".join(map(fold_character, folded)) == folded


def test_importing_it_imports_nothing_heavy() -> None:
    code = (
        "import sys, visioneval.graders.text.alphabet\n"
        "print(*{'numpy', 'PIL', 'cv2', 'onnxruntime', 'rapidocr'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
