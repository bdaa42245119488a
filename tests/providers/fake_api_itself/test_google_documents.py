"""Every body that the server of any test accepts is valid against Google's own documents (see ``FakeAPI.check_requests``)."""

from __future__ import annotations

from typing import Any

import pytest
from fake_api import FakeAPI, Script
from fake_api.server import LoggedRequest
from google_documents import has_vertex_document, invalid_bodies

MODEL = "gemini-nano-banana-2.1"
DEVELOPER = f"/v1beta/models/{MODEL}:generateContent"
VERTEX = f"/v1beta1/projects/p/locations/global/publishers/google/models/{MODEL}:generateContent"
BATCH = f"/v1beta/models/{MODEL}:batchGenerateContent"
JOBS = "/v1beta1/projects/p/locations/global/batchPredictionJobs"
CONTENTS = [{"role": "user", "parts": [{"text": "a tree"}, {"inlineData": {"mimeType": "image/png", "data": "iVBO"}}]}]
IMAGE = {"contents": CONTENTS, "generationConfig": {"responseModalities": ["IMAGE"]}}
JOB = {"displayName": "job", "model": f"publishers/google/models/{MODEL}"}
INPUT = {"instancesFormat": "jsonl", "gcsSource": {"uris": ["gs://b/in.jsonl"]}}
OUTPUT = {"predictionsFormat": "jsonl", "gcsDestination": {"outputUriPrefix": "gs://b/out"}}
INTERACTIONS = "/v1beta/interactions"
FILM = {
    "model": "gemini-omni-1.2-flash",
    "input": [{"type": "image", "data": "iVBO", "mime_type": "image/png"}, {"type": "text", "text": "a tree"}],
    "response_format": {"type": "video", "duration": "4s"},
    "generation_config": {"seed": 1, "video_config": {"task": "image_to_video"}},
}
VEO = "/v1beta1/projects/p/locations/l/publishers/google/models/veo:predictLongRunning"
needs_document = pytest.mark.skipif(not has_vertex_document(), reason="needs google-api-python-client")


def problems(path: str, body: Any) -> list[str]:
    request = LoggedRequest("POST", path, {}, "", body=body, status=200)
    return list(invalid_bodies([request]))


def with_config(**config: Any) -> dict[str, Any]:
    return {"contents": CONTENTS, "generationConfig": config}


def batch_of(*bodies: Any) -> dict[str, Any]:
    requests = [{"request": body, "metadata": {"key": str(number)}} for number, body in enumerate(bodies)]
    return {"batch": {"displayName": "job", "inputConfig": {"requests": {"requests": requests}}}}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (DEVELOPER, IMAGE),
        (DEVELOPER, with_config(response_mime_type="application/json", responseJsonSchema={"type": "object"})),
        (BATCH, batch_of(IMAGE, {"contents": CONTENTS})),
        (BATCH, {"batch": {"displayName": "job", "inputConfig": {"fileName": "files/1"}}}),
        pytest.param(
            VERTEX, with_config(imageConfig={"imageOutputOptions": {"mimeType": "image/jpeg"}}), marks=needs_document
        ),
        pytest.param(JOBS, {**JOB, "inputConfig": INPUT, "outputConfig": OUTPUT}, marks=needs_document),
        (INTERACTIONS, FILM),
        pytest.param(VEO, {"instances": [{"prompt": "a"}], "parameters": {"seed": 1}}, marks=needs_document),
        ("/v1/elsewhere", {"texts": 1}),
    ],
)
def test_a_valid_body_has_no_problem(path: str, body: Any) -> None:
    assert problems(path, body) == []


@pytest.mark.parametrize(
    ("path", "body", "at"),
    [
        (DEVELOPER, {"contents": [{"parts": [{"texts": "a tree"}]}]}, "$.parts.0.texts: Extra inputs"),
        (DEVELOPER, with_config(imageConfig={"ratio": "1:1"}), "$.imageConfig.ratio: Extra inputs"),
        (DEVELOPER, with_config(audioTimestamp=True), "$: audio_timestamp parameter is only supported in"),
        (
            DEVELOPER,
            with_config(seed=1, systemInstruction="brief"),
            "$.generationConfig.systemInstruction: the official client",
        ),
        (DEVELOPER, {}, "$: contents are required"),
        (BATCH, batch_of(IMAGE, with_config(imageConfig=1)), "$.batch.1.imageConfig: Input should be a valid"),
        (INTERACTIONS, {**FILM, "colour": 1}, "$.colour: is unknown"),
        (
            INTERACTIONS,
            {**FILM, "response_format": {"type": "video", "ratio": ""}},
            "$.response_format.ratio: is unknown",
        ),
        (INTERACTIONS, {**FILM, "generation_config": {"seed": "x"}}, "$.generation_config.seed: Input should be"),
        (INTERACTIONS, {**FILM, "input": [{"type": "photo", "data": ""}]}, "$.input: is of an unknown kind"),
        pytest.param(VEO, {"instance": [{"prompt": "a"}]}, "$: Additional properties", marks=needs_document),
        (BATCH, {"batch": {"displayName": "job"}}, "$.batch.inputConfig: has neither requests nor a file"),
        pytest.param(
            VERTEX, {"contents": [{"parts": [{"texts": ""}]}]}, "$.contents[0].parts[0]: ", marks=needs_document
        ),
        pytest.param(
            VERTEX, with_config(imageConfig={"ratio": ""}), "$.generationConfig.imageConfig: ", marks=needs_document
        ),
        pytest.param(
            VERTEX, with_config(responseModalities=["SMELL"]), "$.generationConfig.response", marks=needs_document
        ),
        pytest.param(
            VERTEX, with_config(seed="1"), "$.generationConfig.seed: '1' is not of type", marks=needs_document
        ),
        pytest.param(VERTEX, {"labels": {}}, "$: 'contents' is a required property", marks=needs_document),
        pytest.param(JOBS, {**JOB, "inputConfig": INPUT}, "$: 'outputConfig' is a required", marks=needs_document),
    ],
)
def test_an_invalid_body_is_noticed(path: str, body: Any, at: str) -> None:
    problem, *_ = problems(path, body)
    assert problem.startswith(f"{path}: {at}")


def test_the_server_reports_what_it_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """At its end, and only where the test has not failed already."""
    monkeypatch.setattr(FakeAPI, "check_requests", staticmethod(lambda _: ["a problem"]))
    with pytest.raises(AssertionError, match="a problem"), FakeAPI(Script()):
        pass
    with pytest.raises(KeyError, match="first"), FakeAPI(Script()):
        raise KeyError("first")
