"""QR codes and EAN-13 as images, without a library for codes: OpenCV encodes the first, a table the second."""

from __future__ import annotations

import cv2
import numpy as np

_LEFT = ("0001101", "0011001", "0010011", "0111101", "0100011", "0110001", "0101111", "0111011", "0110111", "0001011")
_PARITY = ("LLLLLL", "LLGLGG", "LLGGLG", "LLGGGL", "LGLLGG", "LGGLLG", "LGGGLL", "LGLGLG", "LGLGGL", "LGGLGL")
QUIET = 4
"""Modules of free space around a code."""


def qr(text: str, module: int = 6) -> np.ndarray:
    """A QR code, black on white, RGB, with its quiet zone."""
    encoded = cv2.QRCodeEncoder_create().encode(text)
    inked = np.flatnonzero((encoded < 128).any(axis=0))
    code = encoded[inked[0] : inked[-1] + 1, inked[0] : inked[-1] + 1]
    return _scaled(np.pad(code, QUIET, constant_values=255), module, module)


def with_check_digit(digits: str) -> str:
    """Twelve digits and the check digit of EAN-13."""
    total = sum(int(digit) * (3 if place % 2 else 1) for place, digit in enumerate(digits))
    return digits + str(-total % 10)


def ean13(digits: str, module: int = 3, height: int = 90) -> np.ndarray:
    """The bars of thirteen digits, without the digits below; a UPC-A is one whose first digit is 0."""
    right = [code.translate(str.maketrans("01", "10")) for code in _LEFT]
    halves = [
        _LEFT[int(d)] if p == "L" else right[int(d)][::-1]
        for d, p in zip(digits[1:7], _PARITY[int(digits[0])], strict=True)
    ]
    bits = "101" + "".join(halves) + "01010" + "".join(right[int(d)] for d in digits[7:]) + "101"
    row = np.array([[0 if bit == "1" else 255 for bit in bits]], np.uint8)
    framed = np.pad(row, ((0, 0), (9, 9)), constant_values=255)
    bars = np.repeat(np.repeat(framed, module, axis=1), height, axis=0)
    return np.dstack([np.pad(bars, ((8, 8), (0, 0)), constant_values=255)] * 3)


def _scaled(code: np.ndarray, across: int, down: int) -> np.ndarray:
    return np.dstack([np.repeat(np.repeat(code, across, axis=1), down, axis=0)] * 3)


def on_page(code: np.ndarray, page: np.ndarray, left: int, top: int) -> np.ndarray:
    """A copy of the page with the code on it."""
    result = page.copy()
    result[top : top + code.shape[0], left : left + code.shape[1]] = code
    return result
