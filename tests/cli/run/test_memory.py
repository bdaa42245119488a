"""Tests that free memory returns to the system."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
from visioneval.running.memory import release_memory
def resident():
    return next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmRSS'))
large, small = [], []
for at in range(400):
    large.append(b'x' * 100_000)
    small.append([at] * 60)
full = resident()
del large
assert release_memory()
print(full - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc" or not Path("/proc/self/status").exists(), reason="not glibc")
def test_large_blocks_are_released_despite_small_live_objects() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30_000, "kB of the 40,000 that were let go"
