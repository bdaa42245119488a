// Zoom and position of the images of a stage, the same part of each: x and y are the top left corner as shares of an image.

const MOST_ZOOM = 24;

/** Zooms the images in ``frame``. ``changed`` is called after each change, ``eager`` lets the wheel zoom without focus. */
function createZoom(frame, { eager, changed, zoom = 1, x = 0, y = 0 }) {
  const view = { zoom: 1, x: 0, y: 0 };
  const percent = el("span", { class: "percent", role: "status" });
  const middle = { x: 0.5, y: 0.5 };
  const button = (label, text, click) => el("button", { type: "button", class: "quiet", "aria-label": label, text, click });
  const bar = el("div", { class: "zooms", role: "group", "aria-label": "Zoom" }, button("Zoom out", "\u2212", () => by(1 / 1.5)), percent,
    button("Zoom in", "+", () => by(1.5)), el("button", { type: "button", class: "quiet", text: "Fit", click: () => set(1, 0, 0) }));

  /** Screen pixels per image pixel while the image fits. */
  function fitScale() {
    const image = frame.querySelector("img");
    return image?.naturalWidth ? (image.clientWidth / image.naturalWidth) * devicePixelRatio : 1;
  }

  function set(zoomed, left, top) {
    view.zoom = Math.min(MOST_ZOOM, Math.max(1, zoomed));
    view.x = Math.min(0, Math.max(1 - view.zoom, left));
    view.y = Math.min(0, Math.max(1 - view.zoom, top));
    show();
    changed?.();
  }

  function show() {
    const scale = fitScale() * view.zoom;
    for (const pane of frame.querySelectorAll(".pane")) {
      const content = pane.firstElementChild;
      content.style.transformOrigin = "0 0";
      content.style.transform = view.zoom === 1 ? "" : `translate(${view.x * 100}%, ${view.y * 100}%) scale(${view.zoom})`;
      pane.classList.toggle("sharp", scale > 3);
    }
    frame.classList.toggle("zoomed", view.zoom > 1);
    bar.hidden = !frame.querySelector(".pane img");
    percent.textContent = `${Math.round(scale * 100)} %`;
  }

  function by(factor, at = middle) {
    const ratio = Math.min(MOST_ZOOM, Math.max(1, view.zoom * factor)) / view.zoom;
    set(view.zoom * ratio, at.x - (at.x - view.x) * ratio, at.y - (at.y - view.y) * ratio);
  }

  /** Fits the image, or shows its pixels one to one; small images are enlarged. */
  function toggle(at) {
    if (view.zoom > 1) return set(1, 0, 0);
    const actual = 1 / fitScale();
    by(actual > 1.1 ? actual : 2.5, at);
  }

  function key(name, isFrame) {
    const pan = isFrame && view.zoom > 1 ? { ArrowLeft: [0.2, 0], ArrowRight: [-0.2, 0], ArrowUp: [0, 0.2], ArrowDown: [0, -0.2] }[name] : undefined;
    const act = pan ? () => set(view.zoom, view.x + pan[0], view.y + pan[1])
      : { "+": () => by(1.5), "=": () => by(1.5), "-": () => by(1 / 1.5), 0: () => set(1, 0, 0), z: () => toggle() }[name];
    act?.();
    return Boolean(act);
  }

  /** A position in the pane under the pointer, as shares of what fits into it. */
  function inPane(event) {
    const pane = event.target.closest(".pane");
    const content = pane?.firstElementChild;
    if (!content) return null;
    const box = content.getBoundingClientRect(); // as it is zoomed
    const [width, height] = [box.width / view.zoom, box.height / view.zoom];
    return { x: (event.clientX - box.left) / width + view.x, y: (event.clientY - box.top) / height + view.y };
  }

  const pointers = new Map();
  frame.addEventListener("wheel", (event) => {
    const at = inPane(event);
    if (!at || !(eager || event.ctrlKey || frame.contains(document.activeElement))) return;
    event.preventDefault();
    by(Math.exp(-event.deltaY * 0.002), at);
  }, { passive: false });
  frame.addEventListener("dblclick", (event) => event.target.closest(".divide") ? by(view.zoom > 1 ? 1 / view.zoom : 2.5, inPane(event)) : inPane(event) && toggle(inPane(event)));
  frame.addEventListener("pointerdown", (event) => {
    const at = event.target.closest(".divide") ? null : inPane(event);
    if (at) pointers.set(event.pointerId, at);
  });
  frame.addEventListener("pointermove", (event) => {
    const from = pointers.get(event.pointerId);
    const pane = frame.querySelector(".pane");
    if (!from || !pane) return;
    if (view.zoom > 1 || pointers.size > 1) frame.setPointerCapture(event.pointerId); // not before: it would hide a double click
    const box = pane.firstElementChild.getBoundingClientRect();
    const to = { x: from.x + (event.movementX * view.zoom) / box.width, y: from.y + (event.movementY * view.zoom) / box.height };
    const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    pointers.set(event.pointerId, to);
    if (other) {
      const before = Math.hypot(from.x - other.x, from.y - other.y);
      if (before > 0.02) by(Math.hypot(to.x - other.x, to.y - other.y) / before, other);
    } else if (view.zoom > 1) set(view.zoom, view.x + to.x - from.x, view.y + to.y - from.y);
  });
  for (const end of ["pointerup", "pointercancel"]) frame.addEventListener(end, (event) => pointers.delete(event.pointerId));
  frame.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !key(event.key, event.target === frame)) return;
    event.preventDefault();
    event.stopPropagation();
  });
  frame.addEventListener("load", show, true); // the scale is known when an image is loaded
  if (zoom > 1) Object.assign(view, { zoom: Math.min(MOST_ZOOM, zoom), x, y });
  return { bar, view, show, key, toggle };
}
