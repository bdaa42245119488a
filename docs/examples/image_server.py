"""A model of the diffusers library behind OpenAI's Images API: ``python image_server.py MODEL [PORT]``.

Needs ``pip install diffusers transformers accelerate torch pillow``. With ``stand-in`` as MODEL it only needs Pillow:
it paints gradients, to try a suite without a model. One image is generated at a time; edits are taken as JSON.
"""

from __future__ import annotations

import base64
import io
import json
import random
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from PIL import Image, ImageOps

Paint = Callable[..., Image.Image]
_ONE_AT_A_TIME = threading.Lock()
_OWN = ("model", "prompt", "n", "size", "seed", "image", "images", "mask", "response_format")


def diffusers_model(model: str) -> Paint:
    """Loads a pipeline. What a request has beyond the API's own parameters goes to it."""
    import torch
    from diffusers import DiffusionPipeline

    device = "cuda" if torch.cuda.is_available() else "cpu"
    pipe = DiffusionPipeline.from_pretrained(model, torch_dtype=torch.bfloat16).to(device)

    def paint(*, seed: int, **inputs: Any) -> Image.Image:
        return pipe(generator=torch.Generator(device).manual_seed(seed), **inputs).images[0]

    return paint


def stand_in(*, prompt: str, seed: int, width: int = 256, height: int = 256, **_: Any) -> Image.Image:
    """A gradient to a color that depends on prompt and seed."""
    red, green, blue = random.Random(f"{prompt}{seed}").randbytes(3)  # noqa: S311
    return ImageOps.colorize(Image.linear_gradient("L").resize((width, height)), "black", (red, green, blue))


def answer(paint: Paint, body: dict[str, Any]) -> dict[str, Any]:
    """Generates or edits, and answers as the API does."""
    inputs = {name: value for name, value in body.items() if name not in _OWN}
    if "x" in body.get("size", ""):
        inputs["width"], inputs["height"] = map(int, body["size"].split("x"))
    if given := body.get("images") or [image for image in [body.get("image")] if image]:
        images = [decoded(image).convert("RGB") for image in given]
        inputs["image"] = images if len(images) > 1 else images[0]
    if "mask" in body:  # transparent where the image may change; a pipeline takes white for that
        inputs["mask_image"] = decoded(body["mask"]).convert("RGBA").getchannel("A").point(lambda alpha: 255 - alpha)
    seed = body.get("seed", random.randrange(2**31))  # noqa: S311
    with _ONE_AT_A_TIME:
        outputs = [paint(prompt=body["prompt"], seed=seed + at, **inputs) for at in range(body.get("n", 1))]
    return {"data": [{"b64_json": encoded(image)} for image in outputs]}


def decoded(image: dict[str, str]) -> Image.Image:
    """An image of the request, which is a data URL."""
    return Image.open(io.BytesIO(base64.b64decode(image["url"].partition(",")[2])))


def encoded(image: Image.Image) -> str:
    """An image as PNG in Base64."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def main() -> None:
    model, port = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8123
    paint = stand_in if model == "stand-in" else diffusers_model(model)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            try:
                status, data = 200, answer(paint, json.loads(body))
            except Exception as error:  # the client gets the reason, and the server continues
                status = 400 if isinstance(error, (KeyError, ValueError)) else 500
                data = {"error": {"message": f"{type(error).__name__}: {error}"}}
            reply = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        print(f"{model} at http://127.0.0.1:{server.server_port}/v1", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
