# ruff: noqa: RUF001 - characters that are easily confused are the subject here
from __future__ import annotations

import subprocess
import sys
import unicodedata

import pytest

from visioneval.graders.text.alphabet import alphabet, cannot_read, fold_character, unreadable


@pytest.mark.parametrize(
    ("text", "unreadable_characters"),
    [
        ("20% OFF — “SALE” … don’t", []),
        ("Café à Orléans, łódź, Smørrebrød, știință", []),
        ("ﬁne ＳＡＬＥ m² £5 €9 ©", []),
        ("¿Qué? « Oui » 5°C 5℃ ①", []),
        ("„Ahoj“ ¡Hola!", ["„", "¡"]),
        ("ťava ďakujem ľud ĺ ű ģ Ąę", ["ť", "ď", "ľ", "ĺ", "ű", "ģ", "Ą"]),
        ("Œuvre Æ ‰ İ Þ ✓ ✓", ["Œ", "Æ", "‰", "İ", "Þ", "✓"]),
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
    from visioneval.graders.text.ocr import model_path

    session = onnxruntime.InferenceSession(str(model_path("Rec")), providers=["CPUExecutionProvider"])
    dictionary = set(session.get_modelmeta().custom_metadata_map["character"].splitlines())
    assert alphabet() == dictionary


def test_folding_into_the_alphabet_is_idempotent() -> None:
    for char in alphabet():
        folded = fold_character(char)
        assert unicodedata.normalize("NFC", folded) == folded
        assert "".join(map(fold_character, folded)) == folded


@pytest.mark.parametrize(
    ("text", "folded"),
    [("5℃", "5°C"), ("›", ">"), ("✔√", "✓✓"), ("ﬁ①", "fi1"), ("ş", "ș"), ("„", "„"), ("‚", ",")],
)
def test_characters_of_one_shape_are_one(text: str, folded: str) -> None:
    assert "".join(map(fold_character, text)) == folded


@pytest.mark.parametrize(
    ("characters", "message"),
    [
        (["ť"], "local OCR cannot read ť"),
        (list("абвгдежзий"), "local OCR cannot read а б в г д е ж з и й"),
        (list("абвгдежзийкл"), "local OCR cannot read а б в г д е ж з и й and 2 more"),
    ],
)
def test_a_message_names_ten_characters(characters: list[str], message: str) -> None:
    assert cannot_read(characters) == message


def test_importing_it_imports_nothing_heavy() -> None:
    code = (
        "import sys, visioneval.graders.text.alphabet\n"
        "print(*{'numpy', 'PIL', 'cv2', 'onnxruntime', 'rapidocr'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
