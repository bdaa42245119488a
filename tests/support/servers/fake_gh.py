"""A ``gh`` for tests: ``gh api`` and ``gh pr comment``, with the options that visioneval uses, for a server of a test.

It attaches files as ``gh`` 2.99 does: only with a token of a user, and an address in the text replaces the path of the file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen


def call(server: str, method: str, address: str, data: bytes | None = None) -> str:
    """What the server answers. An error ends the program as it ends ``gh``."""
    headers = {"Authorization": f"token {os.environ['GH_TOKEN']}", "Content-Type": "application/json"}
    try:
        with urlopen(Request(f"{server}/{address}", data, headers, method=method), timeout=10) as answer:
            return answer.read().decode()
    except HTTPError as error:
        raise SystemExit(f"gh: {json.load(error)['message']} (HTTP {error.code})") from None


def pages(server: str, address: str) -> None:
    """Prints all pages of a list, one after the other."""
    number = 1
    while (page := call(server, "GET", f"{address}?page={number}")) != "[]":
        print(page, end="")
        number += 1


def api(server: str, words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--method")
    parser.add_argument("--paginate", action="store_true")
    parser.add_argument("--field", action="append", default=[])
    parser.add_argument("--raw-field", action="append", default=[])
    options = parser.parse_args(words)
    fields = dict(field.split("=", 1) for field in options.raw_field)
    for name, value in (field.split("=", 1) for field in options.field):
        fields[name] = Path(value[1:]).read_text(encoding="utf-8") if value.startswith("@") else value
    if options.paginate:
        pages(server, options.address)
        return
    data = json.dumps(fields).encode() if fields else None
    print(call(server, options.method or ("POST" if fields else "GET"), options.address, data))


def pr_comment(server: str, words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("number")
    parser.add_argument("--repo", required=True)
    parser.add_argument("--body-file", required=True)
    parser.add_argument("--attach", action="append", default=[])
    options = parser.parse_args(words)
    body = Path(options.body_file).read_text(encoding="utf-8")
    if options.attach and not os.environ["GH_TOKEN"].startswith(("gho_", "ghp_", "github_pat_")):
        raise SystemExit("unsupported authentication type")
    for path in options.attach:
        answer = call(server, "POST", f"user-attachments/assets?name={Path(path).name}", Path(path).read_bytes())
        url = json.loads(answer)["url"]
        body = body.replace(f"]({path})", f"]({url})") if f"]({path})" in body else f"{body}\n\n![]({url})"
    comments = f"repos/{options.repo}/issues/{options.number}/comments"
    print(call(server, "POST", comments, json.dumps({"body": body}).encode()))


if __name__ == "__main__":
    _, of_test, *arguments = sys.argv
    if arguments[0] == "api":
        api(of_test, arguments[1:])
    else:
        assert arguments[:2] == ["pr", "comment"], arguments
        pr_comment(of_test, arguments[2:])
