"""Datasets and finished images in buckets and on the web, read through real clients from servers on this machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from buckets import fill_gcs, fill_s3, gcs_server, s3_server, web_server
from forward_proxy import forward_proxy
from record_factory import generated_png
from toys import Toy

from visioneval import UsageError
from visioneval.media import network
from visioneval.media.urls import client_message, fetch
from visioneval.suite.loading.tables import read_rows

pytestmark = pytest.mark.slow

REFUSED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


def lines(*rows: dict[str, Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture(scope="module")
def gcs() -> Iterator[str]:
    with gcs_server() as url:
        yield url


@pytest.fixture(autouse=True)
def clients(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Dummy credentials, and no cached client of another endpoint."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "nobody")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # else gcsfs looks for a metadata server for a minute
    _forget_clients()
    yield
    _forget_clients()


def _forget_clients() -> None:
    for scheme in ("s3", "gs", "https"):
        fsspec.get_filesystem_class(scheme).clear_instance_cache()


def run(toy: Toy, source: str, **changes: Any) -> Any:
    cases = [{"dataset": {"path": source, "fields": {"prompt": "prompt", "output": "image_uri", "model": "model"}}}]
    suite = {
        "name": "far",
        "cases": cases,
        "models": [{"provider": "files"}],
        "graders": [{"key": "file", "type": "properties"}],
        "verdict": ["file"],
    }
    path = toy.folder / "far.yaml"
    path.write_text(json.dumps({**suite, **changes}))
    return toy("run", path, "--trust-suite")


def test_a_dataset_and_its_images_in_an_s3_bucket(toy: Toy, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = lines(
        {"prompt": "a bun", "image_uri": "s3://eval/pics/bun.png", "model": "m"},
        {"prompt": "a loaf", "image_uri": "pics/loaf.png", "model": "m"},
        {"prompt": "a roll", "image_uri": "pics/gone.png", "model": "m"},
    )
    fill_s3(
        s3, "eval", {"d.jsonl": rows, "pics/bun.png": generated_png("white"), "pics/loaf.png": generated_png("red")}
    )
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
    result = run(toy, "s3://eval/d.jsonl")
    assert result.exit_code == 3, result.output
    actual = {record.prompt: record for record in toy.records.values()}
    assert (actual["a bun"].verdict, actual["a loaf"].verdict) == ("PASS", "PASS")
    assert (toy.latest / str(actual["a loaf"].artifact_path)).read_bytes() == generated_png("red")
    error = actual["a roll"].error
    assert error is not None
    assert error.message == "s3://eval/d.jsonl:3: s3://eval/pics/gone.png: there is no such file"


def test_a_dataset_and_its_images_in_a_google_bucket(toy: Toy, gcs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {"contents": [{"parts": [{"file_data": {"mime_type": "image/png", "file_uri": "gs://eval/bun.png"}}]}]}
    table = f'prompt\timage_uri\tmodel\na bun\t"{json.dumps(contents).replace(chr(34), chr(34) * 2)}"\tm\n'
    fill_gcs(gcs, "eval", {"d.tsv": table.encode(), "bun.png": generated_png("white")})
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs)
    result = run(toy, "gs://eval/d.tsv")
    assert result.exit_code == 0, result.output
    (record,) = toy.records.values()
    assert record.run_params == {"path": "gs://eval/bun.png", "mime": "image/png", "row": "gs://eval/d.tsv:2"}
    assert (toy.latest / str(record.artifact_path)).read_bytes() == generated_png("white")


def test_a_dataset_and_its_images_on_the_web(toy: Toy) -> None:
    rows = lines({"prompt": "a bun", "image_uri": "pics/bun.png", "model": "m"})
    with web_server({"sets/d.jsonl": rows, "sets/pics/bun.png": generated_png("white")}) as url:
        result = run(toy, f"{url}/sets/d.jsonl?v=1")
        assert result.exit_code == 0, result.output
        (record,) = toy.records.values()
        assert record.run_params["path"] == f"{url}/sets/pics/bun.png"


def test_two_datasets_with_one_model_run_each(toy: Toy, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("baseline", "candidate"):
        fill_s3(
            s3,
            name,
            {"rows.jsonl": lines({"prompt": "a bun", "image_uri": "bun.png"}), "bun.png": generated_png("white")},
        )
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
    fields = {"prompt": "prompt", "output": "image_uri"}
    result = run(
        toy,
        "",
        cases=[{"dataset": {"path": "s3://baseline/rows.jsonl", "fields": {"prompt": "prompt"}}}],
        models=[
            {"provider": "files", "label": name, "dataset": {"path": f"s3://{name}/rows.jsonl", "fields": fields}}
            for name in ("baseline", "candidate")
        ],
    )
    assert result.exit_code == 0, result.output
    assert [model["label"] for model in toy.summary["models"]] == ["baseline", "candidate"]
    assert toy.summary["counts"]["passed"] == 2


@pytest.mark.parametrize(
    ("name", "endpoint"), [("s3://shut/d.jsonl", "AWS_ENDPOINT_URL"), ("gs://shut/d.jsonl", "STORAGE_EMULATOR_HOST")]
)
def test_a_bucket_that_denies_access_is_reported_on_one_line(
    toy: Toy, monkeypatch: pytest.MonkeyPatch, name: str, endpoint: str
) -> None:
    with web_server({"": REFUSED}, status=403) as url:
        monkeypatch.setenv(endpoint, url)
        result = run(toy, name)
    assert result.exit_code == 2
    message = [line for line in result.output.splitlines() if line]
    assert len(message) == 1, result.output
    assert f"dataset: {name}: access denied" in message[0]


@pytest.mark.parametrize(
    ("name", "endpoint"), [("s3://slow/d.jsonl", "AWS_ENDPOINT_URL"), ("gs://slow/d.jsonl", "STORAGE_EMULATOR_HOST")]
)
def test_a_bucket_that_does_not_answer_is_reported_soon_and_on_one_line(
    toy: Toy, monkeypatch: pytest.MonkeyPatch, name: str, endpoint: str
) -> None:
    monkeypatch.setattr(network, "ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(endpoint, f"http://127.0.0.1:{silent.getsockname()[1]}")
        result = run(toy, name)
    assert result.exit_code == 2
    message = [line for line in result.output.splitlines() if line]
    assert len(message) == 1, result.output
    assert f"dataset: {name}: no answer in 0.5 seconds" in message[0]


def test_gcsfs_prints_no_traceback(tmp_path: Path) -> None:
    code = "from visioneval.media.network import bucket_files; bucket_files('gs'); import gcsfs.core;"
    code += "gcsfs.core.logger.exception('out of retries')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "STORAGE_EMULATOR_HOST": "http://127.0.0.1:1",
        },
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_denied_access_to_an_image_is_the_error_of_its_row(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    (toy.folder / "d.csv").write_text("prompt,image_uri,model\na bun,s3://shut/bun.png,m\n")
    with web_server({"": REFUSED}, status=403) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        result = run(toy, "d.csv")
    assert result.exit_code == 3
    error = toy.record.error
    assert error is not None
    assert error.message.startswith("d.csv:2: s3://shut/bun.png: access denied")


def test_forbidden_and_missing_pages_are_reported() -> None:
    with (
        web_server({"": b"no"}, status=403) as url,
        pytest.raises(UsageError, match=r"access denied: 403, message='Forbidden'"),
    ):
        fetch(f"{url}/a.jsonl", 1000)
    with web_server({}) as url, pytest.raises(UsageError, match="there is no such file"):
        fetch(f"{url}/a.jsonl", 1000)
    with pytest.raises(UsageError, match=r"it cannot be read: .*onnect"):
        fetch(f"{url}/a.jsonl", 1000)


def test_oversized_files_are_not_read_completely(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_s3(s3, "large", {"a.bin": b"x" * 5000})
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
    assert len(fetch("s3://large/a.bin", 5000)) == 5000
    with web_server({"a.bin": b"x" * 5000}) as url:
        assert len(fetch(f"{url}/a.bin", 5000)) == 5000
        for name in (f"{url}/a.bin", "s3://large/a.bin"):
            with pytest.raises(UsageError, match="over the limit of 4,999 bytes"):
                fetch(name, 4999)


def test_a_dataset_of_another_kind_is_not_fetched() -> None:
    with pytest.raises(UsageError, match="a dataset's name must end in"):
        read_rows("s3://nowhere/x.xlsx", "s3://nowhere/x.xlsx")


@pytest.mark.parametrize(("scheme", "library", "extra"), [("s3", "s3fs", "s3"), ("gs", "gcsfs", "gcs")])
def test_a_missing_extra_names_the_install_command(tmp_path: Path, scheme: str, library: str, extra: str) -> None:
    (tmp_path / "s.yaml").write_text(
        f"name: x\ncases: [{{dataset: {{path: '{scheme}://b/d.csv', fields: {{prompt: p}}}}}}]\n"
        "models: [{provider: mock}]\ngraders: [{key: i, type: properties}]\nverdict: [i]\n"
    )
    code = f"import sys; sys.modules[{library!r}] = None; from visioneval.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "validate", "s.yaml", "--trust-suite"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 2
    message = (
        f"{scheme}://b/d.csv: {scheme}:// needs an extra: run pip install -e '.[{extra}]' in a checkout of visioneval"
    )
    assert done.stderr.strip().endswith(message), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_bucket_is_read_through_a_proxy(
    scheme: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = request.getfixturevalue({"s3": "s3", "gs": "gcs"}[scheme])
    fill = {"s3": fill_s3, "gs": fill_gcs}[scheme]
    fill(server, f"behind-{scheme}", {"a.bin": b"content"})
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    (tmp_path / "netrc").write_text("default login ann password of-the-netrc\n")
    with forward_proxy(tmp_path, {"127.0.0.1": server}, login="ann:pa55word") as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert fetch(f"{scheme}://behind-{scheme}/a.bin", 100) == b"content"
        # a thread that an earlier test left may look for Google's credentials of a machine
        assert proxy.hosts - {"169.254.169.254"} == {"127.0.0.1"}
        monkeypatch.setenv("HTTP_PROXY", proxy.url.replace("pa55word", "wr0ng"))
        _forget_clients()
        with pytest.raises(UsageError) as raised:
            fetch(f"{scheme}://behind-{scheme}/a.bin", 100)
    assert "407" in str(raised.value)
    assert "wr0ng" not in str(raised.value)


def test_an_error_of_a_client_hides_the_password_of_a_proxy() -> None:
    error = OSError("407, message='Proxy Authentication Required', url='http://ann:pa55word@proxy.example:3128'")
    assert client_message(error) == "407, message='Proxy Authentication Required', url='http://***@proxy.example:3128'"
    assert client_message(OSError("http://store.example:80/x?y=a@b")) == "http://store.example:80/x"
    for whole in ("https://store.example/a@b.png", "http://store.example:80/x", "mail ann@store.example"):
        assert client_message(OSError(whole)) == whole
