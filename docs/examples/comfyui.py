"""Generates one image with a ComfyUI server: ``provider: command, argv: [python3, comfyui.py, WORKFLOW, URL]``.

WORKFLOW is a workflow that was exported in the API format. Nodes are filled in by their titles: the text of ``prompt``,
the seed of ``sampler``, and the images of ``image 1``, ``image 2`` ... and ``mask`` (load image nodes). ``params`` of
the suite sets inputs of nodes: ``{"sampler.steps": 30}``. Uses the standard library alone.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from pathlib import Path
from typing import Any

POLL_S = 0.5


def main() -> None:
    request = json.load(sys.stdin)
    workflow_file, server = sys.argv[1], sys.argv[2].rstrip("/")
    workflow = json.loads(Path(workflow_file).read_text(encoding="utf-8"))
    set_input(workflow, "prompt", "text", request["prompt"])
    seed = int(request["params"].pop("seed", 0)) + request["sample_index"]
    set_input(workflow, "sampler", "seed", seed)
    request["params"].pop("model", None)  # only a label: the workflow names its model
    for name, value in request["params"].items():
        title, _, key = name.rpartition(".")
        set_input(workflow, title, key, value)
    for number, image in enumerate(request["images"], start=1):
        set_input(workflow, f"image {number}", "image", upload(server, image["path"]))
    if mask := request["masks"].get("editable"):
        set_input(workflow, "mask", "image", upload(server, mask))
    prompt_id = call(server, "/prompt", {"prompt": workflow, "client_id": uuid.uuid4().hex})["prompt_id"]
    Path(request["output"]).write_bytes(first_image(server, prompt_id))


def set_input(workflow: dict[str, Any], title: str, key: str, value: Any) -> None:
    """Sets an input of the node with a title. Ends the program if there is none."""
    titles = {node.get("_meta", {}).get("title"): node for node in workflow.values()}
    if title not in titles:
        sys.exit(f"the workflow has no node with the title {title!r}")
    titles[title]["inputs"][key] = value


def first_image(server: str, prompt_id: str) -> bytes:
    """Waits for the workflow, and reads the first image that it saved."""
    while True:
        entry = call(server, f"/history/{prompt_id}").get(prompt_id)
        if entry and entry["status"]["status_str"] == "error":
            reasons = (
                data.get("exception_message", "")
                for kind, data in entry["status"]["messages"]
                if kind == "execution_error"
            )
            sys.exit(f"the workflow failed: {' '.join(reasons).strip()}")
        if entry and entry["status"]["completed"]:
            break
        time.sleep(POLL_S)
    images = [
        image for node in entry["outputs"].values() for image in node.get("images", ()) if image["type"] == "output"
    ]
    if not images:
        sys.exit("the workflow saved no image")
    return fetched(urllib.request.Request(f"{server}/view?{urllib.parse.urlencode(images[0])}"))


def upload(server: str, path: str) -> str:
    """Uploads a file; returns its name on the server."""
    boundary, name = uuid.uuid4().hex, f"{uuid.uuid4().hex}{Path(path).suffix}"
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="image"; filename="{name}"\r\n\r\n'
    body = head.encode() + Path(path).read_bytes() + f"\r\n--{boundary}--\r\n".encode()
    headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
    return str(json.loads(fetched(urllib.request.Request(f"{server}/upload/image", body, headers)))["name"])


def call(server: str, path: str, body: Any = None) -> Any:
    """The JSON answer of the server."""
    data = None if body is None else json.dumps(body).encode()
    return json.loads(fetched(urllib.request.Request(server + path, data, {"content-type": "application/json"})))


def fetched(request: urllib.request.Request) -> bytes:
    """The body of an answer. Ends the program with the server's words if it refuses."""
    try:
        with urllib.request.urlopen(request) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        sys.exit(f"ComfyUI answers {error.code}: {error.read()[:500].decode('utf-8', 'replace')}")
    except urllib.error.URLError as error:
        sys.exit(f"ComfyUI cannot be reached: {error.reason}")


if __name__ == "__main__":
    main()
