"""The label server as a process: access, replies and accepted requests."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from label_server import SECRET_A, Server, ServerProcess, lines, secrets_in, write_run
from PIL import Image, PngImagePlugin
from toys import Toy

pytestmark = pytest.mark.slow

Serve = Callable[..., Server]
GOOD: dict[str, Any] = {"usable": True, "clarity": 4}


def posted(server: Server, **changes: Any) -> dict[str, Any]:
    item = server.next_item("ann")["item"]["id"]
    return {"rater": "ann", "item": item, "seconds": 1.5, "answers": GOOD, **changes}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all rejected requests: at the end nothing was written."""
    run = write_run(tmp_path_factory.mktemp("closed"), [{"id": "one"}, {"id": "two"}])
    server = ServerProcess(run)
    before = sorted(run.parent.rglob("*"))
    yield server
    assert server.next_item("ann")["done"] == 0
    assert sorted(run.parent.rglob("*")) == before
    server.kill()


@pytest.fixture
def server(tmp_path: Path, serve: Serve) -> Server:
    return serve(write_run(tmp_path, [{"id": "one"}, {"id": "two"}]))


def test_prints_its_url_and_serves_the_page(closed: Server) -> None:
    assert closed.url == f"http://127.0.0.1:{closed.port}/{closed.token}/"
    assert len(closed.token) >= 32
    status, headers, body = closed.ask("/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b'<script type="module" src="label.js"></script>' in body
    assert closed.ask("/label.css")[1]["content-type"].startswith("text/css")
    scripts = ["label.js"]
    for name in scripts:  # each with the modules that it imports
        _, headers, script = closed.ask(f"/{name}")
        assert headers["content-type"].startswith("text/javascript"), name
        scripts += sorted(set(re.findall(r'from "\./([a-z]+\.js)"', script.decode())) - set(scripts))
    assert len(scripts) == 9


def test_listens_on_loopback_only(closed: Server) -> None:
    listening = [line.split()[1:4:2] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ours = [address for address, state in listening if state == "0A" and int(address.split(":")[1], 16) == closed.port]
    assert ours == [f"0100007F:{closed.port:04X}"]


@pytest.mark.parametrize("path", ["/", "/label.css", "/api/item?rater=ann", "/api/none", "/none", "/api/image/0"])
def test_every_response_has_security_headers(closed: Server, path: str) -> None:
    _, headers, _ = closed.ask(path)
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


@pytest.mark.parametrize("path", ["/", "/label.js", "/api/item?rater=ann", "/api/start", "/api/image/0", "/api/none"])
@pytest.mark.parametrize("token", [None, "wrong", "%00", "%C3%A9"])
def test_a_wrong_token_gets_nothing(closed: Server, path: str, token: str | None) -> None:
    status, _, body = closed.ask(path, token=token)
    assert status == 403
    assert b"wrong token: open the URL that the command printed" in body


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", ""])
def test_rejects_other_hosts(closed: Server, host: str) -> None:
    for path in ("/", "/label.js", "/api/item?rater=ann"):
        assert closed.ask(path, host=host.format(port=closed.port))[0] == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1"])
def test_rejects_other_origins(closed: Server, origin: str) -> None:
    status, headers, _ = closed.ask("/api/answer", posted(closed), origin=origin.format(port=closed.port))
    assert status == 403
    assert "access-control-allow-origin" not in headers
    assert closed.ask("/api/item?rater=ann", sec_fetch_site="cross-site")[0] == 403


def test_accepts_its_own_origin(server: Server) -> None:
    custom = f"http://127.0.0.1:{server.port}"
    assert server.ask("/api/answer", posted(server), origin=custom, sec_fetch_site="same-origin")[0] == 200
    assert server.ask("/api/item?rater=ann", host=f"localhost:{server.port}")[0] == 200


@pytest.mark.parametrize(
    "kind", ["multipart/form-data; boundary=x", "text/plain", "application/x-www-form-urlencoded", ""]
)
def test_rejects_bodies_that_are_not_json(closed: Server, kind: str) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="f"; filename="a.png"\r\n\r\nx\r\n--x--\r\n'
    assert closed.ask("/api/answer", body, content_type=kind)[0] == 415
    assert closed.ask("/api/image/0", body, content_type="application/json")[0] == 405
    assert closed.ask("/upload", body, content_type="application/json")[0] == 404
    assert closed.ask("/api/answer", body, method="PUT")[0] == 405


@pytest.mark.parametrize("chunked", [False, True])
def test_a_large_body_is_refused(closed: Server, chunked: bool) -> None:
    body = json.dumps(posted(closed, answers={"note": "x" * 70_000})).encode()
    if not chunked:
        assert closed.ask("/api/answer", body)[0] == 413
        return
    with socket.create_connection(("127.0.0.1", closed.port), timeout=30) as line:
        head = f"POST /{closed.token}/api/answer HTTP/1.1\r\nHost: 127.0.0.1:{closed.port}\r\n"
        line.sendall(f"{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        line.sendall(f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n")
        assert line.recv(4096).startswith(b"HTTP/1.1 413 ")
    assert closed.next_item("ann")["done"] == 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"rater": ""}, "rater: "),
        ({"rater": "a\nb"}, "rater: "),
        ({"rater": "x" * 81}, "rater: "),
        ({"seconds": -1}, "seconds: "),
        ({"seconds": 1e9}, "seconds: "),
        ({"seconds": None}, "seconds: "),
        ({"answers": []}, "answers: "),
        ({"answers": {"usable": 1, "clarity": 4}}, "usable: 1 is not yes or no"),
        ({"path": "/etc/passwd"}, "path: "),
    ],
)
def test_invalid_requests_get_a_one_line_error(closed: Server, changes: dict[str, Any], why: str) -> None:
    status, _, body = closed.ask("/api/answer", posted(closed, **changes))
    expected = json.loads(body)["error"]
    assert (status, expected.startswith(why), "\n" in expected) == (400, True, False)
    assert closed.next_item("ann")["done"] == 0


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"rater": "\xff"}', b"[" * 30_000])
def test_rejects_json_that_is_not_an_object(closed: Server, body: bytes) -> None:
    assert closed.ask("/api/undo", body)[0] == 400


def test_an_item_of_another_session_is_refused(closed: Server) -> None:
    status, _, body = closed.ask("/api/answer", posted(closed, item="f" * 24))
    assert (status, json.loads(body)["error"]) == (409, "this page belongs to another session: reload it")


def test_disconnecting_browser_saves_nothing(serve: Serve, tmp_path: Path) -> None:
    server = serve(write_run(tmp_path, [{"id": "one"}, {"id": "two"}]), kind=ServerProcess)
    assert isinstance(server, ServerProcess)
    body = json.dumps(posted(server)).encode()
    head = f"POST /{server.token}/api/answer HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as line:
        line.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        line.sendall(body[: len(body) // 2])
    with socket.create_connection(("127.0.0.1", server.port)) as line:
        line.sendall(f"GET /{server.token}/api/item?rater=ann HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n".encode())
    assert server.next_item("ann")["done"] == 0
    assert not (tmp_path / "r" / "labels.jsonl").exists()
    assert server.ask("/api/answer", body)[0] == 200
    server.program.send_signal(signal.SIGINT)
    text, _ = server.program.communicate(timeout=60)
    assert "Traceback" not in text
    assert "stopped; the answers are in" in text
    assert server.program.returncode == 0


def test_an_answer_is_on_disk_before_the_reply(server: Server, tmp_path: Path) -> None:
    for done in (1, 2):
        assert json.loads(server.ask("/api/answer", posted(server))[2])["done"] == done
        assert len({line["test_id"] for line in lines(tmp_path / "r" / "labels.jsonl")}) == done


def test_reports_an_unwritable_folder(server: Server, tmp_path: Path) -> None:
    body = posted(server)
    (tmp_path / "r" / "labels.jsonl").mkdir()
    status, _, expected = server.ask("/api/answer", body)
    assert (status, json.loads(expected)["error"]) == (
        507,
        "the answer could not be saved: the disk is full or not writable",
    )
    (tmp_path / "r" / "labels.jsonl").rmdir()
    assert server.next_item("ann")["done"] == 0
    assert server.ask("/api/answer", body)[0] == 200


def test_images_are_reencoded_under_opaque_ids(tmp_path: Path, serve: Serve) -> None:
    run = write_run(tmp_path)
    stored = next(run.rglob("*.png"))
    metadata = PngImagePlugin.PngInfo()
    metadata.add_text("Software", SECRET_A)
    Image.open(stored).save(stored, pnginfo=metadata)
    assert SECRET_A.encode() in stored.read_bytes()
    server = serve(run)
    (shown,) = server.next_item("ann")["item"]["stages"][0]["images"]
    status, headers, body = server.ask(f"/api/image/{shown['id']}")
    assert (status, headers["content-type"]) == (200, "image/png")
    assert Image.open(BytesIO(body)).tobytes() == Image.open(stored).convert("RGB").tobytes()
    assert SECRET_A.encode() not in body
    assert not secrets_in(repr(headers))
    stored.write_bytes(b"no image any more")
    assert server.ask(f"/api/image/{shown['id']}")[0] == 410
    for other in ("0", "..%2f..%2frun.json", "../../run.json", "artifacts/one", "%00"):
        assert server.ask(f"/api/image/{other}")[0] == 404


def test_port_in_use_is_a_one_line_error(toy: Toy, closed: Server) -> None:
    result = toy("label", closed.arguments[0], "--no-open", "--port", str(closed.port))
    assert result.exit_code == 2
    assert result.stderr == f"127.0.0.1:{closed.port}: the port is in use: use another --port\n"


def test_two_servers_without_a_port(serve: Serve, tmp_path: Path) -> None:
    run = write_run(tmp_path)
    first, second = serve(run), serve(run)
    assert first.port != second.port
    assert first.output.endswith("stopped; nothing was answered\n")
    assert first.token != second.token


def test_a_rater_has_a_name_of_one_line(toy: Toy) -> None:
    write_run(toy.folder / "runs")
    result = toy("label", "latest", "--no-open", "--port", "0", "--rater", "a\nb")
    expected = "a rater's name must be one line of 1 to 80 characters"
    assert (result.exit_code, expected in result.stderr) == (2, True)


@pytest.mark.parametrize("arguments", [["label", "--help"], ["label", "page", "--help"]])
def test_help_fits_80_columns_and_names_the_page(toy: Toy, arguments: list[str]) -> None:
    text = toy(*arguments, COLUMNS="80").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "label page" in " ".join(text.split())


def test_reports_a_run_without_images(toy: Toy) -> None:
    run = write_run(toy.folder / "runs", change=lambda at: {"artifact_path": None})
    result = toy("label", "latest", "--no-open", "--port", "0")
    assert (result.exit_code, result.stderr) == (2, f"{run.relative_to(toy.folder)}: no images to label\n")


def test_without_the_extra_names_the_package_to_install(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(toy.folder / "runs")
    monkeypatch.setitem(sys.modules, "starlette", None)
    result = toy("label", "latest", "--no-open")
    assert (result.exit_code, result.stderr) == (
        2, "the label page needs starlette and uvicorn: run pip install -e '.[label]' in a checkout of visioneval\n"
    )  # fmt: skip
