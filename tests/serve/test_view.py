"""The viewer's server: its start, who gets in, what it shows, and that it writes nothing but labels."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from record_factory import generated_png
from typer.testing import CliRunner
from view_server import ViewServer, view_server
from viewed_runs import append_cell, begun_run, viewed_run

from visioneval.cli import app

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("view") / "runs"
    viewed_run(root, "run-01")
    viewed_run(root, "run-02", passes=False)
    viewed_run(root, "run-03", experiment=HOSTILE, note=HOSTILE)
    viewed_run(root, "run-04")
    (root / "broken").mkdir()
    (root / "broken" / "run.json").write_text("{")
    return root


@pytest.fixture(scope="module")
def server(runs: Path) -> Iterator[ViewServer]:
    """One server for all tests that write nothing: at the end the runs are as before."""
    before = {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}
    with view_server(runs, runs.parent / "rendered") as started:
        yield started
    assert {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("path", ["/", "/wrong/", "/wrong/run/run-01/", "/favicon.ico", "/{token}", "//{token}/"])
def test_nothing_is_shown_without_the_token(server: ViewServer, path: str) -> None:
    status, _, text = server.ask(path.format(token=server.token), with_token=False)
    assert (status, "wrong token" in text) == (403, True)


def test_other_hosts_origins_and_sites_are_refused(server: ViewServer) -> None:
    assert server.ask("", host="evil.example")[0] == 421
    assert server.ask("", origin="http://evil.example")[0] == 403
    assert server.ask("run/run-01/", sec_fetch_site="cross-site")[0] == 403
    assert server.ask("", sec_fetch_site="cross-site")[0] == 200  # a link in a web terminal opens the index
    assert server.ask("", sec_fetch_site="same-origin", origin=server.origin)[0] == 200
    assert server.ask("changes", {})[0] == 405


def test_the_index_lists_all_runs(server: ViewServer) -> None:
    status, headers, page = server.ask("")
    assert status == 200
    assert "5 runs" in page
    assert "All gates passed" in page
    assert "1 of 3 gates failed" in page
    assert "Pass rate over 3 runs, oldest first: 100 %, 0 %, 100 %" in page
    assert "Cells tagged blurred" in page
    assert page.count("Pass rate over") == 1, "one run of another experiment has no line"
    assert [f'<th scope="col">{name}</th>' in page for name in ("suite", "experiment")] == [True, True]
    assert "100 % [34.2, 100]" in page
    assert "broken/run.json: not a run: damaged or truncated" in page
    assert page.index('value="run-02"') < page.index('value="run-01"')
    assert "<script>document" not in page
    assert "&lt;script&gt;document" in page
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert len(headers.get_all("content-security-policy")) == 1
    assert headers["referrer-policy"] == "no-referrer"


def test_a_report_and_its_files_are_served(server: ViewServer) -> None:
    path, page = server.report("run-02")
    assert "1 of 3 gates failed" in page
    assert 'href="../../../"' in page
    assert "connect-src" in page
    for name in ("report.js", "report.css", "data/index.js", "data/details-0.js"):
        assert server.ask(path + name)[0] == 200, name
    details = server.ask(f"{path}data/details-0.js")[2]
    output = re.findall(r'"\.\./(output/[^"]+)"', details)[0]
    thumb = re.findall(r'"\.\./(thumb/[^"]+)"', server.ask(f"{path}data/index.js")[2])[0]
    assert server.ask(f"run/run-02/{output}")[1]["content-type"] == "image/png"
    assert server.ask(f"run/run-02/{thumb}")[1]["content-type"] == "image/webp"
    assert server.report("run-02")[0] == path  # rendered once
    assert server.ask("live.js")[1]["content-type"].startswith("text/javascript")
    assert server.ask("run/run-02/0000/")[0] == 307  # a version that is gone leads to the current one


@pytest.mark.parametrize(
    "path",
    [
        "run/run-01/output/run.json",
        "run/run-01/output/artifacts/../run.json",
        "run/run-01/output/..%2frun-02%2frun.json",
        "run/run-01/thumb/..%2f..%2frun.json",
        "run/run-01/output/%00",
        "run/run-01/abc/..%2f..%2f..%2frun.json",
        "run/..%2f..%2fetc/state",
        "run/%2e%2e/",
        "run/%2e/state",
        "run//",
        "nothing",
    ],
)
def test_paths_do_not_leave_the_images_of_a_run(server: ViewServer, path: str) -> None:
    status, _, text = server.ask(path)
    assert status in (307, 404)
    assert "schema_version" not in text


def test_two_runs_are_compared_the_later_with_the_earlier(server: ViewServer) -> None:
    for names in ("run=run-02&run=run-01", "run=run-01&run=run-02"):
        status, headers, page = server.ask(f"compare?{names}")
        assert status == 200
        assert "<title>run-01 &rarr; run-02</title>" in page
    assert "'sha256-" in headers["content-security-policy"]
    assert "script-src 'self'" not in headers["content-security-policy"]


@pytest.mark.parametrize(
    "query", ["", "?run=run-01", "?run=run-01&run=run-01", "?run=run-01&run=run-02&run=run-03", "?run=run-01&run=nope"]
)
def test_a_comparison_of_other_than_two_runs_is_one_clear_page(server: ViewServer, query: str) -> None:
    status, headers, page = server.ask(f"compare{query}")
    assert status == 404
    assert headers["content-type"].startswith("text/html")
    assert "tick two runs" in page or "no such run" in page
    assert 'href="./view.css"' in page


def test_agreement_is_a_page_with_the_way_back(server: ViewServer) -> None:
    status, headers, page = server.ask("agreement/run-01/")
    assert status == 200
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "script-src 'none'" in headers["content-security-policy"]
    assert "these runs have no labels yet" in page
    assert 'href="../../run/run-01/"' in page


def test_an_unreadable_run_has_a_page_with_the_reason(server: ViewServer) -> None:
    status, headers, page = server.ask("run/broken/")
    assert status == 404
    assert "script-src 'none'" in headers["content-security-policy"]
    assert "This page cannot be shown" in page
    assert "not JSON" in page


def test_labels_are_given_in_the_same_server(tmp_path: Path) -> None:
    viewed_run(tmp_path / "runs", "run-01")
    with view_server(tmp_path / "runs", tmp_path / "rendered") as server:
        base = "label/run-01/"
        assert 'src="label.js"' in server.ask(base)[2]
        assert server.ask(f"{base}label.js")[0] == 200
        item = json.loads(server.ask(f"{base}api/item?rater=ann")[2])["item"]
        answers = {"usable": True, "as_asked": True}
        answer = {"rater": "ann", "item": item["id"], "seconds": 1.0, "answers": answers}
        status, _, text = server.ask(f"{base}api/answer", answer)
        assert status == 200, text
        assert server.ask(f"{base}api/answer", answer, origin="http://evil.example")[0] == 403
        assert "ann" in server.ask("agreement/run-01/")[2]
        assert server.ask("label/nope/")[0] == 404
    assert (tmp_path / "runs" / "run-01" / "labels.jsonl").read_text().count("\n") == 3


def test_a_run_that_goes_on_is_followed(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    writer = begun_run(root, "run-01")
    with view_server(root, tmp_path / "rendered") as server:
        assert "1 running" in server.ask("")[2]
        path, page = server.report("run-01")
        assert "Still running" in page
        assert "Running: 1 of 2 cells so far" in page
        assert 'class="state passed"' not in page
        assert "passed so far" in page
        state = json.loads(server.ask("run/run-01/state")[2])
        assert (state["state"], state["cells"], state["planned"]) == ("running", 1, 2)
        assert state["version"] in path
        changes = server.ask("changes")[2]
        append_cell(writer, "two")
        assert json.loads(server.ask("run/run-01/state")[2])["version"] not in path
        assert server.ask("changes")[2] != changes
        assert "1 running" in server.ask("")[2]
        writer.close()
        assert "1 running" not in server.ask("")[2]
        page = server.report("run-01")[1]
        assert "The run was killed after 2 of 2 cells" in page
        assert 'class="headline pass"' not in page


def test_a_run_deleted_while_it_is_viewed_is_one_clear_page(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    viewed_run(root, "run-01")
    viewed_run(root, "run-02")
    with view_server(root, tmp_path / "rendered") as server:
        path, _ = server.report("run-01")
        shutil.rmtree(root / "run-01")
        for address in ("run/run-01/", path, "agreement/run-01/", "label/run-01/", "compare?run=run-01&run=run-02"):
            status, _, page = server.ask(address)
            assert status == 404, address
            assert "there is no such run: it was deleted or moved" in page
            assert "This run is gone" in page
        status, _, text = server.ask("run/run-01/state", accept="application/json")
        assert (status, "deleted" in json.loads(text)["error"]) == (404, True)
        assert "1 run<" in server.ask("")[2]
        assert server.report("run-02")[1]


def test_links_to_files_outside_the_run_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    folder = viewed_run(root, "run-01")
    (tmp_path / "secret.png").write_bytes(generated_png("red"))
    output = next(folder.rglob("*.png"))
    output.unlink()
    output.symlink_to(tmp_path / "secret.png")
    with view_server(root, tmp_path / "rendered") as server:
        relative = output.relative_to(folder).as_posix()
        assert server.ask(f"run/run-01/output/{relative}")[0] == 404
        assert server.ask(f"run/run-01/thumb/{relative}")[0] == 404
        path, _ = server.report("run-01")
        assert "it is outside the run" in server.ask(f"{path}data/details-0.js")[2]


def test_the_extra_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = CliRunner().invoke(app, ["view", "--runs", str(tmp_path)])
    problem = "the viewer needs starlette and uvicorn: run pip install -e '.[label]'"
    assert (result.exit_code, result.stderr.startswith(problem)) == (2, True)
