// Creates elements from plain text: text from a model or a suite is never parsed as markup.

const visioneval = {};

const SVG = "http://www.w3.org/2000/svg";
const IMAGE_SOURCE = /^(data:image\/(webp|png);base64,|data:video\/(mp4|webm|quicktime);base64,|(\.\.\/|\.\/)*[^/:?#\\][^:?#\\]*$)/;

/** An element with attributes (a function is a listener, "class" and "text" are short) and children. */
function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An element of an inline image. */
function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else if (name === "text") node.textContent = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** An image, or a box with the reason why it is missing. Sources are only files of the report and data URLs. */
function imageElement(image, alt, attributes = {}) {
  if (!image) return missing("no image was generated");
  if (!image.src) return missing(image.why || "this image cannot be shown", image.name);
  if (!IMAGE_SOURCE.test(image.src)) return missing("not an image of this report", image.name);
  if (image.kind === "video") return el("video", { src: image.src, controls: true, preload: "metadata", "aria-label": alt });
  const element = el("img", { alt, decoding: "async", ...attributes, src: image.src });
  element.addEventListener("error", () => element.replaceWith(missing("the file is missing", image.name)));
  return element;
}

function missing(why, name = "") {
  return el("div", { class: "missing", role: "img", "aria-label": `no image: ${why}` },
    el("strong", { text: "No image" }), el("span", { text: why }), name && !why.includes(name) ? el("code", { text: name }) : null);
}

const VERDICTS = { P: "PASS", F: "FAIL", E: "ERROR", N: "NONE" };

function badge(verdict) {
  return el("span", { class: `badge ${verdict.toLowerCase()}`, text: verdict });
}

/** A failure tag: what a grader noticed. A cell that passed may have some. */
function tagMark(tag) {
  return el("span", { class: "tag", title: "failure tag", text: tag });
}

/** Formats a score or another plain value. */
function formatValue(value) {
  if (value === null || value === undefined) return "not measured";
  if (value === true) return "yes";
  if (value === false) return "no";
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
  return String(value);
}

/** A score with the end of its scale: ``2.67 of 5``. */
function onScale(text, metric, score) {
  const highest = metric?.type === "number" && typeof score === "number" ? metric.range?.[1] : null;
  return highest > 1 ? `${text} of ${formatValue(highest)}` : text;
}

/** Text with line break opportunities after the separators in labels. */
function soft(text) {
  const pieces = text.split(/(?<=[,_/])/);
  return pieces.flatMap((piece, at) => (at ? [el("wbr"), piece] : [piece]));
}

/** Puts areas that scroll sideways into the tab order, and takes the others out of it. */
function watchScrolling(root) {
  for (const box of root.querySelectorAll(".scroll")) scrolling.observe(box);
}

const scrolling = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});

const plural = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

/** Delays a callback until no call has come for ``wait`` milliseconds. */
function debounced(callback, wait = 120) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => callback(...args), wait);
  };
}
