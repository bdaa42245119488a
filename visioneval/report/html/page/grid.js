// The cells of the gallery: a grid of cases by model runs, or a list. Only visible rows and a small margin are in the document.

const MOST_HEIGHT = 16000000; // browsers do not lay out anything below about 17 million pixels
const LIST_HEIGHT = 92;
const MARGIN = 16; // with a box's own 8 pixels the page's margin
const THUMBS_A_FRAME = 4;
const ENDING = 24; // characters
const gallery = { built: false, list: false, rows: [], rowOf: [], columns: [], height: 0, width: 0, head: 0, rendered: new Map(), thumbs: new Map() };

/** Computes rows and columns: a grid row is a case, or one of its samples; a list row is a cell. */
function layOut() {
  const scroller = document.getElementById("scroller");
  const narrow = scroller.clientWidth < 640;
  gallery.list = narrow || report.state.filters.layout === "list";
  document.querySelector(".layouts").hidden = narrow;
  for (const button of document.querySelectorAll("[data-layout]")) button.setAttribute("aria-pressed", (button.dataset.layout === "list") === gallery.list);
  scroller.classList.toggle("list", gallery.list);
  const all = gallery.list ? listRows() : gridRows(scroller);
  gallery.rows = all.slice(0, Math.floor(MOST_HEIGHT / gallery.height));
  showRowLimit(all.length - gallery.rows.length);
  gallery.rowOf = new Int32Array(report.index.count).fill(-1);
  gallery.rows.forEach((members, row) => members.forEach((at) => { gallery.rowOf[at] = row; }));
  scroller.setAttribute("aria-rowcount", gallery.rows.length + (gallery.list ? 0 : 1));
  scroller.setAttribute("aria-colcount", gallery.list ? 1 : gallery.columns.length + 1);
  const canvas = document.getElementById("canvas");
  canvas.style.height = `${gallery.rows.length * gallery.height}px`;
  const width = gallery.columns.length * gallery.width + gallery.head;
  scroller.classList.toggle("wide", !gallery.list && width > scroller.clientWidth);
  canvas.style.width = gallery.list ? "" : `${width}px`;
  gallery.rendered.clear();
  gallery.thumbs.clear();
  canvas.replaceChildren();
  renderVisible();
}

function showRowLimit(rows) {
  const rest = document.getElementById("rest");
  rest.hidden = !rows;
  rest.textContent = rows ? `The first ${plural(gallery.rows.length, "row")} of ${(gallery.rows.length + rows).toLocaleString("en")}: use filters to see the others.` : "";
}

function listRows() {
  gallery.height = LIST_HEIGHT;
  gallery.columns = [];
  gallery.columnOf = new Int32Array(report.index.count);
  gallery.head = 0;
  document.getElementById("grid-head").replaceChildren();
  load("texts").then(() => {
    if (gallery.list) for (const { node } of gallery.rendered.values()) node.querySelector(".why").replaceChildren(...cutMiddle(whyOf(Number(node.dataset.at))));
  });
  return report.shown.map((at) => [at]);
}

function gridRows(scroller) {
  const { index, shown } = report;
  const { cells } = index;
  const models = new Set(shown.map((at) => cells.model[at]));
  gallery.acrossSamples = models.size === 1;
  const rows = new Map();
  const filled = new Map(); // by case and model run: how many samples have a place, as those not shown leave no gap
  gallery.columnOf = new Int32Array(index.count);
  for (const at of shown) {
    const pile = cells.case[at] * 100003 + cells.model[at];
    const place = filled.get(pile) ?? 0;
    filled.set(pile, place + 1);
    const key = cells.case[at] * 1000001 + (gallery.acrossSamples ? 0 : place);
    if (!rows.has(key)) rows.set(key, []);
    rows.get(key).push(at);
    gallery.columnOf[at] = gallery.acrossSamples ? place : cells.model[at];
  }
  gallery.columns = [...new Set(shown.map((at) => gallery.columnOf[at]))].sort((a, b) => a - b);
  gallery.head = innerWidth < 900 ? 132 : 188;
  const room = (scroller.clientWidth - gallery.head - MARGIN) / gallery.columns.length;
  gallery.width = Math.floor(Math.min(236, Math.max(136, room)));
  gallery.height = Math.round((gallery.width - 16) * 0.8) + 46;
  const head = document.getElementById("grid-head");
  head.replaceChildren(
    withWidth(el("div", { class: "corner", role: "columnheader", "aria-colindex": 1, text: "case" }), gallery.head),
    ...gallery.columns.map((key, column) => {
      const name = gallery.acrossSamples && gallery.columns.length > 1 ? `${key + 1} of ${gallery.columns.length} samples` : index.models[gallery.acrossSamples ? [...models][0] : key];
      return withWidth(el("div", { class: "column", role: "columnheader", "aria-colindex": column + 2, title: name }, soft(name)), gallery.width);
    }));
  return [...rows.values()].map((members) => members.sort((a, b) => gallery.columnOf[a] - gallery.columnOf[b]));
}

function withWidth(node, width) {
  node.style.width = `${width}px`;
  return node;
}

/** The visible range of rows and columns with a margin; ends are exclusive. */
function visibleRange() {
  const scroller = document.getElementById("scroller");
  const { scrollTop, scrollLeft, clientHeight, clientWidth } = scroller;
  return {
    first: Math.max(0, Math.floor(scrollTop / gallery.height) - 2),
    last: Math.min(gallery.rows.length, Math.ceil((scrollTop + clientHeight) / gallery.height) + 2),
    left: gallery.list ? 0 : Math.max(0, Math.floor(scrollLeft / gallery.width) - 1),
    right: gallery.list ? 1 : Math.min(gallery.columns.length, Math.ceil((scrollLeft + clientWidth - gallery.head) / gallery.width) + 1),
  };
}

/** Adds visible rows to the document and removes others, except the one with the focus. */
function renderVisible() {
  const canvas = document.getElementById("canvas");
  const visible = visibleRange();
  for (const [number, row] of gallery.rendered) {
    if ((number < visible.first || number >= visible.last) && !row.node.contains(document.activeElement)) {
      row.node.remove();
      gallery.rendered.delete(number);
    }
  }
  let next = after(gallery.rendered, visible.last)?.node;
  for (let number = visible.last - 1; number >= visible.first; number -= 1) {
    if (!gallery.rendered.has(number)) {
      const row = gallery.list ? listRow(number) : gridRow(number);
      row.node.style.transform = `translateY(${number * gallery.height}px)`;
      row.node.style.height = `${gallery.height}px`;
      gallery.rendered.set(number, row);
      canvas.insertBefore(row.node, next || null);
    }
    next = gallery.rendered.get(number).node;
    if (!gallery.list) renderBoxes(gallery.rendered.get(number), visible);
  }
  if (!canvas.querySelector("a[tabindex='0']")) canvas.querySelector("a.cell")?.setAttribute("tabindex", "0");
}

function renderBoxes(row, { left, right }) {
  for (const [column, box] of row.boxes) {
    if ((column < left || column >= right) && !box.contains(document.activeElement)) {
      box.remove();
      row.boxes.delete(column);
    }
  }
  let next = after(row.boxes, right);
  for (let column = right - 1; column >= left; column -= 1) {
    if (!row.boxes.has(column)) {
      const at = row.members.get(gallery.columns[column]);
      const box = withWidth(el("div", { class: "box", role: "gridcell", "aria-colindex": column + 2, "aria-label": at === undefined ? "not shown" : null },
        at === undefined ? null : tile(at, !row.isSameSample)), gallery.width);
      box.style.left = `${gallery.head + column * gallery.width}px`;
      row.boxes.set(column, box);
      row.node.insertBefore(box, next || null);
    }
    next = row.boxes.get(column);
  }
}

/** The first rendered item at or after a position: screen readers use the order in the document. */
function after(rendered, position) {
  const following = [...rendered.keys()].filter((key) => key >= position);
  return following.length ? rendered.get(Math.min(...following)) : undefined;
}

function gridRow(number) {
  const { cells, cases } = report.index;
  const members = gallery.rows[number];
  const id = cases[cells.case[members[0]]];
  const sample = cells.sample[members[0]];
  const isSameSample = members.every((at) => cells.sample[at] === sample);
  const sampled = isSameSample && (sample > 0 || gallery.rows[number + 1]?.some((at) => cells.case[at] === cells.case[members[0]]));
  const head = withWidth(el("div", { class: "row-head", role: "rowheader", "aria-colindex": 1 }, el("strong", { title: id },
    el("a", { tabindex: "-1", href: addressOfCell(report.index, members[0], report.state.filters) }, soft(id))),
    sampled ? el("span", { class: "note", text: `sample ${sample}` }) : null), gallery.head);
  const node = el("div", { class: "row", role: "row", "aria-rowindex": number + 2 }, head);
  return { node, boxes: new Map(), members: new Map(members.map((at) => [gallery.columnOf[at], at])), isSameSample };
}

function tile(at, withSample) {
  return el("a", { class: "cell tile", "data-at": at, tabindex: "-1", href: addressOfCell(report.index, at, report.state.filters), "aria-label": nameOf(at) },
    el("span", { class: "thumb" }, thumbOf(at)), " ",
    el("span", { class: "caption" }, badge(VERDICTS[report.index.cells.verdict[at]]), " ",
      withSample ? el("span", { class: "note", "aria-hidden": "true", text: `#${report.index.cells.sample[at]}` }) : null, marksOf(at)));
}

function listRow(number) {
  const [at] = gallery.rows[number];
  const { cells, cases, models } = report.index;
  const link = el("a", { class: "cell line", "data-at": at, tabindex: "-1", href: addressOfCell(report.index, at, report.state.filters) },
    el("span", { class: "thumb" }, thumbOf(at)),
    el("span", { class: "words" },
      el("span", { class: "first" }, badge(VERDICTS[cells.verdict[at]]), el("strong", { text: cases[cells.case[at]] }),
        cells.sample[at] ? el("span", { class: "note", text: `sample ${cells.sample[at]}` }) : null),
      el("span", { class: "model", text: models[cells.model[at]] }),
      el("span", { class: "marks" }, marksOf(at)),
      el("span", { class: "why" }, cutMiddle(whyOf(at)))),
    measuresOf(at));
  const box = el("div", { class: "box", role: "gridcell", "aria-colindex": 1 }, link);
  return { node: el("div", { class: "row", role: "row", "aria-rowindex": number + 1, "data-at": at }, box) };
}

const whyOf = (at) => part("texts")?.why[at].split("\n", 1)[0] || "";
const failuresOf = (at) => report.index.cells.failures[at].map((failure) => report.index.failures[failure]).join(", ");
const tagsOf = (at) => report.index.cells.failureTags[at].map((tag) => report.index.failureTags[tag]);

/** What failed, with scores and limits, and what a grader tagged, which need not fail: two things, two looks. */
function marksOf(at) {
  const failures = failuresOf(at);
  return [failures && el("code", { class: "failed-rules", title: failures, text: failures }), " ", ...tagsOf(at).map(tagMark)].filter(Boolean);
}

/** A text that is cut in its middle where it does not fit: its end, the conclusion of a reason, is shown. */
function cutMiddle(text) {
  const at = text.length > ENDING ? Math.max(text.lastIndexOf(" ", text.length - ENDING), text.length - 2 * ENDING) : 0;
  return at <= 0 ? [el("span", { text })] : [el("span", { text: text.slice(0, at) }), el("span", { class: "ending", text: text.slice(at) })];
}

/** The name of a tile, with all that it shows: case and model run are in the heads of its row and column. */
function nameOf(at) {
  const { cells, cases, models } = report.index;
  const sample = cells.sample[at] ? `, sample ${cells.sample[at]}` : "";
  const tags = tagsOf(at);
  const marks = [failuresOf(at), ...tags].filter(Boolean).join(", ") + (tags.length ? ` (${plural(tags.length, "failure tag")})` : "");
  return `${cases[cells.case[at]]}, ${models[cells.model[at]]}${sample}: ${hasThumb(at) ? "" : "no image "}${VERDICTS[cells.verdict[at]]}${marks ? ` ${marks}` : ""}`;
}

const hasThumb = (at) => IMAGE_SOURCE.test(report.index.cells.thumb[at] || "");

/** The thumbnail of a cell. It is loaded later, so that fast scrolling does not wait for skipped images. */
function thumbOf(at) {
  if (!hasThumb(at)) return el("span", { class: "none", text: "no image" });
  const image = el("img", { alt: "", decoding: "async" });
  image.addEventListener("error", () => image.replaceWith(el("span", { class: "none", text: "no image" })));
  if (!gallery.thumbs.size) requestAnimationFrame(loadThumbs);
  gallery.thumbs.set(image, report.index.cells.thumb[at]);
  return image;
}

/** Loads a few thumbnails per frame, top first, and drops those that are no longer visible. */
function loadThumbs() {
  let left = THUMBS_A_FRAME;
  for (const [image, source] of [...gallery.thumbs].reverse()) {
    if (image.isConnected && left <= 0) break;
    gallery.thumbs.delete(image);
    if (!image.isConnected) continue;
    image.src = source;
    left -= 1;
  }
  if (gallery.thumbs.size) requestAnimationFrame(loadThumbs);
}

/** Handles arrow keys in the grid; scrolls the focused cell into view. */
function moveFocus(event) {
  const from = event.target.closest("a.cell");
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], PageDown: [4, 0], PageUp: [-4, 0],
    Home: [-Infinity, 0], End: [Infinity, 0] }[event.key];
  if (!from || !steps) return;
  event.preventDefault();
  const at = Number(from.dataset.at);
  const row = gallery.rowOf[at];
  const [down, right] = steps;
  const target = gallery.rows[Math.min(gallery.rows.length - 1, Math.max(0, row + down))];
  if (down) return focusCell(nearest(target, gallery.columnOf[at]));
  const members = gallery.rows[row];
  focusCell(members[Math.min(members.length - 1, Math.max(0, members.indexOf(at) + right))]);
}

function nearest(members, column) {
  const away = (at) => Math.abs(gallery.columnOf[at] - column);
  return members.reduce((best, at) => (away(at) < away(best) ? at : best));
}

function focusCell(at) {
  const row = gallery.rowOf[at];
  if (row === undefined || row < 0) return;
  const scroller = document.getElementById("scroller");
  const { clientHeight, clientWidth } = scroller;
  const head = document.getElementById("grid-head").offsetHeight;
  scroller.scrollTop = scrolledTo(scroller.scrollTop, row * gallery.height, gallery.height, clientHeight - head);
  if (!gallery.list) {
    const column = gallery.columns.indexOf(gallery.columnOf[at]);
    scroller.scrollLeft = scrolledTo(scroller.scrollLeft, column * gallery.width, gallery.width, clientWidth - gallery.head);
  }
  renderVisible();
  const link = document.querySelector(`#canvas a[data-at="${at}"]`);
  for (const other of document.querySelectorAll("#canvas a[tabindex='0']")) other.tabIndex = -1;
  link.tabIndex = 0;
  link.focus({ preventScroll: true });
}

/** The scroll position that makes a range visible with the least movement. */
function scrolledTo(current, start, length, visible) {
  if (start < current) return start;
  return Math.max(current, start + length - visible);
}
