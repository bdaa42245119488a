"""Every model that the project names exists: none is unknown, and none has ended or will end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import openai.types.image_model
import openai.types.shared.chat_model
from genai_prices.data_snapshot import get_snapshot
from google.genai.interactions import Model as GoogleModel
from openai.types.image_model import ImageModel
from openai.types.shared.all_models import AllModels
from openai.types.video_model import VideoModel

from visioneval.providers.ended_models import ENDED, ended_model

ROOT = Path(__file__).parents[3]
SERVICES = {
    "OpenAI": ("openai", r"gpt-|chatgpt-|dall-e-|sora-|o\d(?=-)|computer-use-|codex-"),
    "Gemini API": ("google", r"gemini-|imagen-|veo-|nano-banana-"),
    "Anthropic": ("anthropic", r"claude-"),
}
"""By service: its name in genai-prices, and how the names of its models begin."""
FOLDERS = ("docs", "suites", "prompts", "examples", "tests", "visioneval")
TEXTS = {".md", ".yaml", ".yml", ".py", ".ipynb", ".json", ".jsonl", ".csv", ".txt", ".html", ".js", ".j2"}
TABLES = {
    "visioneval/providers/ended_models.py",
    "tests/project/docs/test_model_names.py",
    "tests/suite/test_ended_models.py",
}

NOT_IN_LISTS = {
    "veo-3.1-lite-generate-001": "https://cloud.google.com/gemini-enterprise-agent-platform/generative-ai/pricing#veo"
}
"""Models that the prices and the SDKs lack, with a page that has them."""
FAKES = {"gpt-9", "gpt-99", "gpt-image-9", "gpt-image-99", "gpt-image-15", "gemini-nope"}
"""Models that no provider has, where a test needs one."""
ABOUT_OLD_MODELS = {
    # forms of names
    "tests/cli/providers/test_rerouting.yaml": {
        *("gpt-4", "gpt-4-0613", "gpt-5", "gpt-5.4-mini-2026-03-05", "gemini-2.5-flash"),
    },
    "tests/fake_api/gemini_wire.py": {"gemini-2.5", "gemini-nano-banana"},
    "tests/fake_api/openai_checks.py": {"gpt-image-1", "dall-e-2", "dall-e-3", "gpt-5", "gpt-5.1"},
    "tests/fake_api/openai_images.py": {"gpt-image-2.5", "gpt-image-2.6", "gpt-image-1-mini", "gpt-image"},
    "tests/integration/litellm/test_judging.py": {"claude-3-haiku-20240307"},  # answers without a schema
    "tests/integration/litellm/test_litellm_itself.py": {"gpt-image-1", "gemini-3-pro-image-preview"},  # in its list
    "tests/providers/fake_api_itself/test_fake_api.py": {"gpt-image-1", "dall-e-3"},  # has fixed sizes
    "tests/providers/fake_api_itself/test_fake_api.yaml": {"gpt-image-1.5"},
    "tests/providers/fake_api_itself/test_fake_api_gemini.py": {
        "gemini-2.5-flash",
        "gemini-2.5-flash-image",
    },  # refuse more
    "tests/providers/test_gemini_judge.py": {"gemini-2.5-flash", "gemini-3"},  # does not sign its thoughts
    "tests/providers/test_openai_judge.py": {"gpt-4.1"},  # does not reason
    "tests/suite/bad/videos.txt": {"sora-2"},
    "tests/running/videos/test_video_generation.py": {"gemini-omni-1.1-flash"},  # has a public price
    "tests/running/videos/test_generated_videos.py": {"gemini-omni-1.1", "gemini-omni-1.1-flash"},  # 10 s at most
    "tests/providers/fake_api_itself/test_fake_api_judges.yaml": {
        "gpt-4.1",
        "gpt-5",
    },  # without reasoning; without temperature
    "visioneval/providers/gemini/__init__.py": {"gemini-omni", "gemini-omni-1.1", "gemini-omni-flash"},
}
"""By file: models that have ended or will end, and beginnings of names, which are what the file is about."""


_MODEL = re.compile(r"(?<![\w.-])(?:" + "|".join(f"({begin})" for _, begin in SERVICES.values()) + r")\w[\w.@-]*")


@cache
def _named() -> dict[str, frozenset[tuple[str, str]]]:
    """The services and models that each text of the project names, but the tables of models."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    files += [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in TEXTS]
    named = {}
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        if name not in TABLES and path.is_file():
            named[name] = frozenset(_names(path.read_text(encoding="utf-8", errors="replace")))
    return named


def _names(text: str) -> Iterator[tuple[str, str]]:
    """The service and the name of each model of a text; not ``veo-...`` or ``gpt-*``, which are families."""
    text = text.lower().replace("\\.", ".")  # as patterns write it
    for match in _MODEL.finditer(text):
        if not match[0].endswith("...") and text[match.end() : match.end() + 1] != "*":
            yield list(SERVICES)[int(match.lastindex or 1) - 1], match[0].rstrip(".-@")


@cache
def _sdk_models() -> frozenset[str]:
    return frozenset(_literals(ImageModel) | _literals(VideoModel) | _literals(AllModels) | _literals(GoogleModel))


def _literals(kind: Any) -> set[str]:
    return {kind} if isinstance(kind, str) else {name for part in get_args(kind) for name in _literals(part)}


@cache
def _problem(service: str, name: str) -> str | None:
    """Why the project should not name a model."""
    if name in FAKES or name in NOT_IN_LISTS:
        return None
    services = ("Gemini API", "Vertex AI") if service == "Gemini API" else (service,)
    if ended := next((model for one in services if (model := ended_model(one, name))), None):
        return ended.warning(name)
    try:
        _, priced = get_snapshot().find_provider_model(name, None, SERVICES[service][0], None)
    except LookupError:
        return None if name in _sdk_models() else f"{name!r} is in no list of {service}'s models"
    return (
        f"{name!r} is deprecated in genai-prices: add it to visioneval/providers/ended_models.py"
        if priced.deprecated
        else None
    )


def _problems(path: str, named: Iterable[tuple[str, str]]) -> list[str]:
    allowed = ABOUT_OLD_MODELS.get(path, set())
    return sorted(problem for service, name in named if name not in allowed and (problem := _problem(service, name)))


def test_every_named_model_exists_and_stays() -> None:
    bad = {path: problems for path, named in _named().items() if (problems := _problems(path, named))}
    assert bad == {}


def test_each_exception_is_needed() -> None:
    named = {(path, name) for path, models in _named().items() for _, name in models}
    assert {(path, name) for path, names in ABOUT_OLD_MODELS.items() for name in names} - named == set()
    assert (FAKES | NOT_IN_LISTS.keys()) - {name for _, name in named} == set()


def test_a_name_that_is_unknown_or_ends_is_seen_in_every_form() -> None:
    bad = {
        "model: gemini-3.1-flash-image": "was shut down on 2026-10-29",
        "openai/gpt-image-1.5,quality=low": "shut down on 2026-12-01",
        '"models/gemini-2.5-flash"': "shut down on 2026-12-01",
        "gemini:gemini-2.5-flash-image": "shut down on 2027-03-15",
        "`dall-e-3`.": "was shut down on 2026-05-12",
        "a judge gpt-5.1-2025-11-13": "shut down on 2027-04-01",
        "publishers/google/models/veo-3.0-generate-001": "was shut down on 2026-06-30",
        "gpt-image-2.4": "is in no list of OpenAI's models",
        "claude-opus-9": "is in no list of Anthropic's models",
        "GPT-5-mini": "shut down on 2026-12-11",
        "ask sora-3": "is in no list of OpenAI's models",
        "imagen-5": "is in no list of Gemini API's models",
    }
    assert [text for text, problem in bad.items() if problem not in " ".join(_problems("x.md", _names(text)))] == []
    good = (
        "gpt-image-2.5-flare,quality=low",
        "veo-...",
        "gemini-omni-...",
        "gpt-image-2.5-*",
        "naveo-1",
        "gpt-5.4-2026-03-05",
    )
    assert [text for text in good if _problems("x.md", _names(text))] == []


def test_the_table_has_what_the_sdk_marks() -> None:
    """OpenAI's SDK states the models that end in the comments of its types."""
    sources = (openai.types.image_model, openai.types.shared.chat_model)
    comments = [Path(str(module.__file__)).read_text().partition("Deprecated values:")[2] for module in sources]
    marked = {name for comment in comments for name in re.findall(r'"([\w.-]+)"', comment)}
    assert len(marked) > 50
    assert {name for name in marked if ended_model("OpenAI", name) is None} == set()


def test_a_successor_exists_and_stays() -> None:
    of_vertex = {"Vertex AI": "Gemini API"}
    named = {
        (of_vertex.get(model.service, model.service), model.successor) for model in ENDED.values() if model.successor
    }
    assert _problems("", named) == []


def test_each_row_has_a_source_and_one_date() -> None:
    assert [model.name for model in ENDED.values() if not model.source.startswith("https://")] == []
    dated = [model for model in ENDED.values() if model.day is not None]
    assert len(dated) > 90
