// Elements made of plain text: nothing that a model or a suite wrote is ever parsed as markup.

const visioneval = {};

const SVG = "http://www.w3.org/2000/svg";
const PICTURE_SOURCE = /^(data:image\/(webp|png);base64,|(\.\.\/|\.\/)*[^/:?#\\][^:?#\\]*$)/;

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

/** An image, or a box that says why there is none. Only a file of the report, or data, is ever a source. */
function pictureOf(shown, alt, attributes = {}) {
  if (!shown) return missing("nothing was drawn");
  if (!shown.src) return missing(shown.why || "it cannot be shown", shown.name);
  if (!PICTURE_SOURCE.test(shown.src)) return missing("not an image of this report", shown.name);
  if (shown.kind === "video") return el("video", { src: shown.src, controls: true, preload: "metadata", "aria-label": alt });
  const image = el("img", { alt, decoding: "async", ...attributes, src: shown.src });
  image.addEventListener("error", () => image.replaceWith(missing("the file is not there any more", shown.name)));
  return image;
}

function missing(why, name = "") {
  return el("div", { class: "missing", role: "img", "aria-label": `no image: ${why}` },
    el("strong", { text: "No image" }), el("span", { text: why }), name && !why.includes(name) ? el("code", { text: name }) : null);
}

const VERDICTS = { P: "PASS", F: "FAIL", E: "ERROR" };

function badge(verdict) {
  return el("span", { class: `badge ${verdict.toLowerCase()}`, text: verdict });
}

/** A score or another plain value in words. */
function told(value) {
  if (value === null || value === undefined) return "not measured";
  if (value === true) return "yes";
  if (value === false) return "no";
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
  return String(value);
}

/** Text that may be broken after the signs that part the words of labels. */
function soft(text) {
  const words = text.split(/(?<=[,_/])/);
  return words.flatMap((word, at) => (at ? [el("wbr"), word] : [word]));
}

const plural = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;

/** Calls back once things have been quiet for a moment. */
function settled(callback, wait = 120) {
  let timer = 0;
  return (...words) => {
    clearTimeout(timer);
    timer = setTimeout(() => callback(...words), wait);
  };
}
