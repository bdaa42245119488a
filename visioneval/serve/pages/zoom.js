// Zoom and position, shared by all images of an item. x and y are the top left corner as fractions of the frame.

const view = { zoom: 1, x: 0, y: 0 };
const MOST_ZOOM = 24;
const panes = document.getElementById("panes");
const percent = document.getElementById("percent");

// Screen pixels per image pixel when the image fits the frame.
function fitScale() {
  const image = panes.querySelector("img");
  if (!image?.naturalWidth) return 1;
  return Math.min(image.clientWidth / image.naturalWidth, image.clientHeight / image.naturalHeight) * devicePixelRatio;
}

// The squares behind a transparent image end where the image ends, and stay as large when it is zoomed.
function fitSquares(image) {
  const { clientWidth, clientHeight, naturalWidth, naturalHeight } = image;
  if (!naturalWidth) return;
  const scale = Math.min(clientWidth / naturalWidth, clientHeight / naturalHeight);
  const [x, y] = [clientWidth - naturalWidth * scale, clientHeight - naturalHeight * scale];
  const top = getComputedStyle(image).objectPosition.endsWith(" 0%") ? 0 : y / 2;
  image.style.clipPath = `inset(${top}px ${x / 2}px ${y - top}px ${x / 2}px)`;
  image.style.backgroundSize = `${16 / view.zoom}px ${16 / view.zoom}px`;
}

export function setView(zoom = view.zoom, x = view.x, y = view.y) {
  view.zoom = Math.min(MOST_ZOOM, Math.max(1, zoom));
  view.x = Math.min(0, Math.max(1 - view.zoom, x));
  view.y = Math.min(0, Math.max(1 - view.zoom, y));
  const scale = fitScale() * view.zoom;
  for (const image of panes.querySelectorAll("img")) {
    image.style.transform = `translate(${view.x * 100}%, ${view.y * 100}%) scale(${view.zoom})`;
    image.classList.toggle("sharp", scale > 3);
    image.parentElement.classList.toggle("zoomed", view.zoom > 1);
    fitSquares(image);
  }
  percent.textContent = `${Math.round(scale * 100)} %`;
}

export function zoomBy(factor, at = { x: 0.5, y: 0.5 }) {
  const zoom = Math.min(MOST_ZOOM, Math.max(1, view.zoom * factor));
  const ratio = zoom / view.zoom;
  setView(zoom, at.x - (at.x - view.x) * ratio, at.y - (at.y - view.y) * ratio);
}

export function fitOrActual(at) {
  if (view.zoom > 1) return setView(1, 0, 0);
  const actual = 1 / fitScale();
  return zoomBy(actual > 1.1 ? actual : 2.5, at);
}

export function listenToFrame(frame) {
  const fingers = new Map();
  const inFrame = (event) => {
    const box = frame.getBoundingClientRect();
    return { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height };
  };
  const spread = () => {
    const [a, b] = [...fingers.values()];
    return Math.hypot(a.x - b.x, a.y - b.y);
  };
  let moved = false;
  frame.addEventListener("wheel", (event) => { event.preventDefault(); zoomBy(Math.exp(-event.deltaY * 0.002), inFrame(event)); }, { passive: false });
  frame.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, inFrame(event));
    moved = false;
    if (view.zoom > 1 || fingers.size > 1) frame.setPointerCapture(event.pointerId);
  });
  frame.addEventListener("pointermove", (event) => {
    const from = fingers.get(event.pointerId);
    if (!from) return;
    const to = inFrame(event);
    moved ||= Math.hypot(to.x - from.x, to.y - from.y) > 0.004;
    const before = fingers.size === 2 ? spread() : 0;
    fingers.set(event.pointerId, to);
    if (before > 0.02) zoomBy(spread() / before, to);
    else if (fingers.size === 1 && view.zoom > 1) setView(view.zoom, view.x + to.x - from.x, view.y + to.y - from.y);
  });
  for (const end of ["pointerup", "pointercancel"]) frame.addEventListener(end, (event) => fingers.delete(event.pointerId));
  frame.addEventListener("click", (event) => { if (!moved) fitOrActual(inFrame(event)); });
}
