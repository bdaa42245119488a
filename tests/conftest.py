"""Fixtures for every test: a clean environment and home, and small suites and images."""

from __future__ import annotations

import compileall
import gc
import importlib
import inspect
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
import typer.testing
from accessibility import axe
from browser import browser, open_page
from concurrency import run_with_timeout
from fake_api import FakeAPI, LoggedRequest
from fake_api.fixtures import api, client, gemini, script
from hypothesis import HealthCheck, settings
from label_server import rate, serve
from PIL import Image
from recorded_readings import RECORDING, RECORDINGS, folder_of_readings, record, recorded_readings, reduced_readings
from session_measures import session_measures
from suite_runner import SuiteRunner
from suite_text import forget_modules, no_runs, suite_problems
from toys import Toy

from visioneval.running.calls import throttle
from visioneval.suite.load import LoadedSuite, load_suite

pytest.register_assert_rewrite("conformance")  # before the first test that imports it
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # tests import OCR's packages themselves
# else gcsfs looks up the kind of a bucket before each call, with credentials that tests do not have
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
__all__ = [
    "api",
    "axe",
    "browser",
    "client",
    "gemini",
    "open_page",
    "rate",
    "recorded_readings",
    "reduced_readings",
    "script",
    "serve",
    "session_measures",
]

ROOT = Path(__file__).parent.parent
settings.register_profile(
    "repeatable", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None
)
settings.register_profile(
    "random", deadline=None, suppress_health_check=list(HealthCheck), max_examples=1000, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
_LEAKS = re.compile(
    r".*(_API_KEY|_TOKEN|_SECRET)|(GOOGLE|OPENAI|GEMINI|ANTHROPIC|AZURE|AWS|VISIONEVAL|XDG|HF)_.*"
    r"|NO_COLOR|FORCE_COLOR|CLICOLOR.*|COLUMNS|LINES|GITHUB_ACTIONS|GITHUB_ACTION_PATH|CI"
)


def _invalid_bodies(requests: Sequence[LoggedRequest]) -> Iterable[str]:
    """Loads the official documents at the first use in each worker."""
    from official_documents import invalid_bodies

    return invalid_bodies(requests)


FakeAPI.check_requests = staticmethod(_invalid_bodies)

SUITE = """\
name: demo
cases:
  - {id: one, prompt: a tree}
models:
  - {provider: mock}
graders:
  - {key: image, type: properties}
verdict: [not image.blank]
"""


# Typer builds all commands for each call of its test runner, which takes longer than most of them.
typer.main.get_command = typer.testing._get_command = cache(typer.main.get_command)


# Python's default of 700 new objects searches the million that tests and libraries are again and again.
gc.set_threshold(50_000)

# Each worker imports all tests, and to rewrite their assertions takes longer than the rest of their import.
sys.dont_write_bytecode = False


MEMORY = Path("/dev/shm")
NEEDED_BYTES = 2 << 30
"""What the files of all workers take at most, with room to spare; Docker's default of 64 MB is too little."""


def _has_room(folder: Path) -> bool:
    """Whether the tests' files fit in a folder, and programs in it may be executed."""
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return False
    system = os.statvfs(folder)
    return system.f_bavail * system.f_frsize > NEEDED_BYTES and not system.f_flag & os.ST_NOEXEC


def pytest_configure(config: pytest.Config) -> None:
    """Compiles the package once, as hundreds of child processes would each compile it again, and has the tests' folders
    in memory, as tens of thousands of small files keep a disk busy for half of the time.
    """
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(ROOT / "visioneval", quiet=2)
        if _has_room(MEMORY):
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Each worker first imports a part of the tests, so that it finds the rest of them compiled by the others."""
    config = session.config
    if not hasattr(config, "workerinput") or config.args != config.getini("testpaths"):
        return
    first = int(config.workerinput["workerid"].removeprefix("gw"))
    paths = [path for path in (ROOT / "tests").rglob("test_*.py") if not {"soak", "integration"} & {*path.parts}]
    for path in sorted(paths)[first :: config.workerinput["workercount"]]:
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))  # as pytest does
        with suppress(Exception):  # collection reports it
            importlib.import_module(path.stem)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with the tests that ``make quick`` skips, so that no worker idles at the end.

    ``make readings`` runs only the tests that take recorded readings.
    """
    if RECORDING:
        items[:] = [item for item in items if "recorded_readings" in getattr(item, "fixturenames", ())]
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Spares what is imported by now, a million objects, every later search for garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is a coroutine function in an event loop of its own, with a timeout."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    run_with_timeout(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Records all readings of the session by OCR, in addition to the recorded ones if only some tests run, or says how many
    cost time because they are not recorded, before the folder of the session is deleted.
    """
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):
        return
    folder = folder_of_readings(session.config._tmp_path_factory.getbasetemp())
    if RECORDING:
        config = session.config
        is_narrowed = config.option.keyword or config.option.markexpr
        anew = config.args == config.getini("testpaths") and not is_narrowed
        reporter.write_line(f"\n{record(folder, anew=anew)} readings are in {RECORDINGS.relative_to(ROOT)}")
    elif new := len(list(folder.iterdir())):
        reporter.write_line(f"\n{new} images were read by OCR's models, as they are not recorded: make readings")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collects soak tests and those of heavy clients only when they are named, as by ``make soak``."""
    name = next((name for name in ("soak", "integration") if collection_path == ROOT / "tests" / name), None)
    return True if name is not None and not any(name in argument for argument in config.args) else None


_COUNTER = itertools.count()


@pytest.fixture(scope="session")
def _home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def hermetic(monkeypatch: pytest.MonkeyPatch, _home: Path) -> None:
    """Hides the user's keys, settings and home and other tests' cached answers, and shortens waits for retries."""
    for name in [name for name in os.environ if _LEAKS.fullmatch(name)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(_home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(_home / f"cache{next(_COUNTER)}"))  # only created if it is used
    monkeypatch.setattr(throttle, "BACKOFF_S", 0.01)
    # A module that a test writes twice within a second must not be taken from its compiled file.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")


@pytest.fixture(autouse=True)
def custom_modules() -> Iterator[None]:
    """Forgets the modules beside a test's suites."""
    with forget_modules():
        yield


@pytest.fixture
def shared_data() -> Path:
    """The folder of real images and answers beside the checkout; the test is skipped where it is absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("../shared/data is not here")
    return folder


@pytest.fixture
def save_image(tmp_path: Path) -> Callable[..., Path]:
    """``save_image(name="a.png", size=(64, 48), color="white", mode="RGB", **save)`` writes an image in tmp_path."""

    def make(
        name: str = "a.png", size: tuple[int, int] = (64, 48), color: Any = "white", mode: str = "RGB", **save: Any
    ) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, size, color).save(path, **save)
        return path

    return make


@pytest.fixture
def mask(tmp_path: Path) -> Callable[..., Path]:
    """``mask(name="mask.png", size=(64, 48), box=(16, 12, 48, 36))`` writes a mask whose box is inside (alpha 0)."""

    def make(
        name: str = "mask.png", size: tuple[int, int] = (64, 48), box: tuple[int, int, int, int] = (16, 12, 48, 36)
    ) -> Path:
        image = Image.new("RGBA", size, (0, 0, 0, 255))
        image.paste((0, 0, 0, 0), box)
        image.save(tmp_path / name)
        return tmp_path / name

    return make


@pytest.fixture
def write_suite(tmp_path: Path) -> Callable[..., Path]:
    """``write_suite(text=SUITE, name="suite.yaml")`` writes a suite in tmp_path; bytes are written verbatim."""

    def write(text: str | bytes = SUITE, name: str = "suite.yaml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture
def load(write_suite: Callable[..., Path]) -> Callable[..., LoadedSuite]:
    """``load(text=SUITE, **options)`` writes a suite and loads it, with no other run to refer to."""

    def loaded(text: str | bytes = SUITE, **options: Any) -> LoadedSuite:
        return load_suite(write_suite(text), **{"run_labels": no_runs, **options})

    return loaded


@pytest.fixture
def local_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: FakeAPI) -> FakeAPI:
    """The local server, trusted, with its key in ``LOCAL_KEY``; the working directory is that of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("LOCAL_KEY", api.key)
    return api


@pytest.fixture
def runner(tmp_path: Path, local_api: FakeAPI) -> SuiteRunner:
    """Suites on the local server; the working directory is theirs."""
    return SuiteRunner(tmp_path, local_api)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """Suites whose provider and grader follow the metadata of a case; the working directory is their folder."""
    monkeypatch.chdir(tmp_path)
    return Toy(tmp_path)


@pytest.fixture
def problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """``problems(text, files={name: text or bytes}, **options)``: the error lines of a suite in an otherwise empty
    folder.

    The suite is ``suite.yaml`` in the working directory, so a line begins with ``suite.yaml:LINE:COLUMN: ``. Classes
    that a trusted suite names exist.
    """

    def load_problems(text: str | bytes, files: Mapping[str, str | bytes] | None = None, **options: Any) -> list[str]:
        monkeypatch.chdir(tmp_path)
        return suite_problems(text, files, **options)

    return load_problems
