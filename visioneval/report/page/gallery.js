// The gallery: cases by model runs, or a list. Only the rows in sight are in the document.

const MOST_ROWS = 100000;
const LIST_HEIGHT = 92;
const gallery = { built: false, rows: [], columns: [], height: 0, width: 0, focus: -1, drawn: new Map() };

async function showGallery() {
  if (!gallery.built) buildGallery();
  syncFilters();
  await refilter();
  if (report.lastCell >= 0) {
    const at = report.lastCell;
    report.lastCell = -1;
    focusCell(at);
  }
}

function buildGallery() {
  const view = document.getElementById("view-gallery");
  const scroller = el("div", { class: "scroller", id: "scroller" },
    el("div", { class: "grid-head", id: "grid-head", role: "row", "aria-rowindex": 1 }),
    el("div", { class: "canvas", id: "canvas", role: "rowgroup" }));
  scroller.setAttribute("role", "grid");
  scroller.setAttribute("aria-label", "Cells");
  scroller.addEventListener("scroll", () => requestAnimationFrame(drawRows), { passive: true });
  scroller.addEventListener("keydown", moveFocus);
  view.replaceChildren(filterBar(), scroller, el("p", { class: "notice", id: "nothing", hidden: true }));
  addEventListener("resize", settled(() => report.state.view === "gallery" && layOut()));
  gallery.built = true;
}

function filterBar() {
  const { index } = report;
  return el("form", { class: "filters", role: "search", "aria-label": "Filter cells", submit: (event) => event.preventDefault() },
    el("input", { type: "search", name: "q", placeholder: "Words in prompt or reason", "aria-label": "Words in prompt or reason",
      autocomplete: "off", spellcheck: "false", input: settled(readFilters, 150) }),
    verdictButtons(),
    chooser("model", "Model run", index.models),
    chooser("tag", "Tag", index.tags),
    chooser("failure", "Failure tag", index.failureTags),
    chooser("rule", "Failed rule", index.rules),
    chooser("metric", "Metric", Object.keys(index.metrics)),
    el("span", { class: "range", id: "range", hidden: true },
      el("input", { type: "number", name: "min", step: "any", "aria-label": "Metric at least", placeholder: "min", input: settled(readFilters, 150) }),
      el("span", { text: "to" }),
      el("input", { type: "number", name: "max", step: "any", "aria-label": "Metric at most", placeholder: "max", input: settled(readFilters, 150) })),
    toggle("parted", "Judge and rules disagree", index.cells.parted.length),
    toggle("refused", "Refused", index.cells.refused.length),
    el("span", { class: "outcome" },
    el("button", { type: "button", class: "quiet", id: "clear", text: "Clear", click: clearFilters }),
    el("span", { class: "result", id: "result", role: "status", "aria-live": "polite" }),
    el("span", { class: "layouts", role: "group", "aria-label": "Layout" },
      ["grid", "list"].map((name) => el("button", { type: "button", class: "quiet", "data-layout": name, text: name === "grid" ? "Grid" : "List",
        click: () => setFilters({ ...report.state.filters, layout: name === "list" ? "list" : undefined }) })))));
}

function verdictButtons() {
  return el("span", { class: "verdicts", role: "group", "aria-label": "Verdict" },
    Object.entries(VERDICTS).map(([sign, verdict]) => {
      const number = [...report.index.cells.verdict].filter((one) => one === sign).length;
      return el("button", { type: "button", class: `verdict ${verdict.toLowerCase()}`, "data-verdict": verdict, "aria-pressed": "false",
        click: () => toggleVerdict(verdict) }, verdict, el("span", { class: "count", text: number.toLocaleString("en") }));
    }));
}

function chooser(name, label, choices) {
  if (choices.length < (name === "model" ? 2 : 1)) return null;
  return el("select", { name, "aria-label": label, change: readFilters },
    el("option", { value: "", text: `${label}: any` }), choices.map((choice) => el("option", { value: choice, text: choice })));
}

function toggle(name, label, number) {
  if (!number) return null;
  return el("label", { class: "toggle" }, el("input", { type: "checkbox", name, change: readFilters }), label, el("span", { class: "count", text: number }));
}

const form = () => document.querySelector(".filters");

function readFilters() {
  const filters = {};
  for (const field of form().elements) {
    if (!field.name) continue;
    const value = field.type === "checkbox" ? (field.checked ? "1" : "") : field.value.trim();
    if (value) filters[field.name] = value;
  }
  if (!filters.metric) delete filters.min, delete filters.max;
  const { verdict, layout } = report.state.filters;
  setFilters({ ...filters, verdict, layout });
}

function toggleVerdict(verdict) {
  const chosen = new Set((report.state.filters.verdict || "").split(",").filter(Boolean));
  chosen.has(verdict) ? chosen.delete(verdict) : chosen.add(verdict);
  setFilters({ ...report.state.filters, verdict: [...chosen].join(",") });
}

function clearFilters() {
  setFilters({ layout: report.state.filters.layout });
}

function setFilters(filters) {
  report.state.filters = filters;
  history.replaceState(null, "", addressOf("gallery", filters));
  syncFilters();
  return refilter();
}

/** Shows the state in the form, without disturbing what somebody is typing. */
function syncFilters() {
  const { filters } = report.state;
  for (const field of form().elements) {
    if (!field.name || field === document.activeElement) continue;
    if (field.type === "checkbox") field.checked = Boolean(filters[field.name]);
    else field.value = filters[field.name] || "";
  }
  const chosen = new Set((filters.verdict || "").split(","));
  for (const button of form().querySelectorAll("[data-verdict]")) button.setAttribute("aria-pressed", chosen.has(button.dataset.verdict));
  document.getElementById("range").hidden = !filters.metric;
}

async function refilter() {
  const { index, state } = report;
  const searched = Boolean(state.filters.q);
  const words = searched ? await load("words") : part("words");
  report.shown = matching(index, state.filters, searched ? words : undefined);
  const all = report.shown.length === index.count;
  const told = all ? plural(index.count, "cell") : `${report.shown.length.toLocaleString("en")} of ${plural(index.count, "cell")}`;
  document.getElementById("result").textContent = told;
  document.getElementById("clear").hidden = !Object.keys(state.filters).some((name) => name !== "layout" && state.filters[name]);
  const nothing = document.getElementById("nothing");
  nothing.hidden = report.shown.length > 0;
  nothing.textContent = index.count ? "No cell fits these filters." : "This run has no finished cell.";
  document.getElementById("scroller").hidden = !report.shown.length;
  layOut();
}

/** Rows and columns of what is shown: in the grid a row is a case and sample, in the list a cell. */
function layOut() {
  const scroller = document.getElementById("scroller");
  const narrow = scroller.clientWidth < 640;
  gallery.list = narrow || report.state.filters.layout === "list";
  document.querySelector(".layouts").hidden = narrow;
  for (const button of document.querySelectorAll("[data-layout]")) button.setAttribute("aria-pressed", (button.dataset.layout === "list") === gallery.list);
  scroller.classList.toggle("list", gallery.list);
  if (gallery.list) layOutList();
  else layOutGrid(scroller);
  scroller.setAttribute("aria-rowcount", gallery.rows.length + (gallery.list ? 0 : 1));
  scroller.setAttribute("aria-colcount", gallery.list ? 1 : gallery.columns.length + 1);
  const canvas = document.getElementById("canvas");
  canvas.style.height = `${gallery.rows.length * gallery.height}px`;
  canvas.style.minWidth = gallery.list ? "" : `${gallery.columns.length * gallery.width + headWidth()}px`;
  gallery.drawn.clear();
  canvas.replaceChildren();
  drawRows();
}

const headWidth = () => (innerWidth < 900 ? 132 : 188);

function layOutList() {
  gallery.rows = report.shown.slice(0, MOST_ROWS).map((at) => [at]);
  gallery.height = LIST_HEIGHT;
  document.getElementById("grid-head").replaceChildren();
  load("words").then(() => {
    if (gallery.list) for (const row of gallery.drawn.values()) row.querySelector(".why").textContent = whyOf(Number(row.dataset.at));
  });
}

function layOutGrid(scroller) {
  const { index, shown } = report;
  const { cells } = index;
  const rows = new Map();
  const columns = new Set();
  for (const at of shown) {
    const key = cells.case[at] * 1000001 + cells.sample[at];
    if (!rows.has(key)) rows.set(key, []);
    rows.get(key).push(at);
    columns.add(cells.model[at]);
  }
  gallery.columns = [...columns].sort((a, b) => a - b);
  gallery.rows = [...rows.values()].slice(0, MOST_ROWS);
  const room = (scroller.clientWidth - headWidth() - 2) / gallery.columns.length;
  gallery.width = Math.floor(Math.min(236, Math.max(136, room)));
  gallery.height = Math.round((gallery.width - 16) * 0.8) + 46;
  const head = document.getElementById("grid-head");
  head.replaceChildren(
    headed(el("div", { class: "corner", role: "columnheader", text: "case" }), headWidth()),
    ...gallery.columns.map((model) => headed(el("div", { class: "column", role: "columnheader", title: index.models[model] }, soft(index.models[model])), gallery.width)));
}

function headed(node, width) {
  node.style.width = `${width}px`;
  return node;
}

/** Puts the rows in sight, and a few around them, into the document; takes the others out. */
function drawRows() {
  const scroller = document.getElementById("scroller");
  const canvas = document.getElementById("canvas");
  const first = Math.max(0, Math.floor(scroller.scrollTop / gallery.height) - 3);
  const last = Math.min(gallery.rows.length, Math.ceil((scroller.scrollTop + scroller.clientHeight) / gallery.height) + 3);
  for (const [number, row] of gallery.drawn) {
    if ((number < first || number >= last) && !row.contains(document.activeElement)) {
      row.remove();
      gallery.drawn.delete(number);
    }
  }
  const fresh = document.createDocumentFragment();
  for (let number = first; number < last; number += 1) {
    if (gallery.drawn.has(number)) continue;
    const row = gallery.list ? listRow(number) : gridRow(number);
    row.style.transform = `translateY(${number * gallery.height}px)`;
    row.style.height = `${gallery.height}px`;
    gallery.drawn.set(number, row);
    fresh.append(row);
  }
  canvas.append(fresh);
  if (!canvas.querySelector("a[tabindex='0']")) canvas.querySelector("a.cell")?.setAttribute("tabindex", "0");
}

function gridRow(number) {
  const { cells, cases } = report.index;
  const members = gallery.rows[number];
  const id = cases[cells.case[members[0]]];
  const sample = cells.sample[members[0]];
  const sampled = sample > 0 || gallery.rows[number + 1]?.some((at) => cells.case[at] === cells.case[members[0]]);
  const head = headed(el("div", { class: "row-head", role: "rowheader" }, el("strong", { title: id }, soft(id)),
    sampled ? el("span", { class: "note", text: `sample ${sample}` }) : null), headWidth());
  const byModel = new Map(members.map((at) => [cells.model[at], at]));
  const boxes = gallery.columns.map((model) => headed(el("div", { class: "box", role: "gridcell" },
    byModel.has(model) ? tile(byModel.get(model)) : el("span", { class: "none", "aria-label": "not shown", text: "" })), gallery.width));
  return el("div", { class: "row", role: "row", "aria-rowindex": number + 2 }, head, boxes);
}

function tile(at) {
  return el("a", { class: "cell tile", "data-at": at, tabindex: "-1", href: addressOfCell(report.index, at, report.state.filters), "aria-label": nameOf(at) },
    el("span", { class: "thumb" }, thumbOf(at)),
    el("span", { class: "caption" }, badge(VERDICTS[report.index.cells.verdict[at]]), el("span", { class: "short", text: shortOf(at) })));
}

function listRow(number) {
  const [at] = gallery.rows[number];
  const { cells, cases, models } = report.index;
  const link = el("a", { class: "cell line", "data-at": at, tabindex: "-1", href: addressOfCell(report.index, at, report.state.filters), "aria-label": nameOf(at) },
    el("span", { class: "thumb" }, thumbOf(at)),
    el("span", { class: "words" },
      el("span", { class: "first" }, badge(VERDICTS[cells.verdict[at]]), el("strong", { text: cases[cells.case[at]] }),
        cells.sample[at] ? el("span", { class: "note", text: `sample ${cells.sample[at]}` }) : null),
      el("span", { class: "model", text: models[cells.model[at]] }),
      el("span", { class: "short", text: shortOf(at) }),
      el("span", { class: "why", text: whyOf(at) })));
  return el("div", { class: "row", role: "row", "aria-rowindex": number + 1, "data-at": at }, el("div", { class: "box", role: "gridcell" }, link));
}

const whyOf = (at) => part("words")?.why[at] || "";

function shortOf(at) {
  const { cells, rules, failureTags } = report.index;
  const said = [...cells.rules[at].map((rule) => rules[rule]), ...cells.failureTags[at].map((tag) => failureTags[tag])];
  return said.join(", ");
}

function nameOf(at) {
  const { cells, cases, models } = report.index;
  const sample = cells.sample[at] ? `, sample ${cells.sample[at]}` : "";
  const short = shortOf(at);
  return `${cases[cells.case[at]]}, ${models[cells.model[at]]}${sample}: ${VERDICTS[cells.verdict[at]]}${short ? `, ${short}` : ""}`;
}

function thumbOf(at) {
  const source = report.index.cells.thumb[at];
  if (!source) return el("span", { class: "none", text: "no picture" });
  const image = el("img", { alt: "", decoding: "async", src: PICTURE_SOURCE.test(source) ? source : "" });
  image.addEventListener("error", () => image.replaceWith(el("span", { class: "none", text: "no picture" })));
  return image;
}

/** Arrow keys over the grid; the focused cell is brought into sight first. */
function moveFocus(event) {
  const from = event.target.closest("a.cell");
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], PageDown: [4, 0], PageUp: [-4, 0],
    Home: [-Infinity, 0], End: [Infinity, 0] }[event.key];
  if (!from || !steps) return;
  event.preventDefault();
  const at = Number(from.dataset.at);
  const row = gallery.rows.findIndex((members) => members.includes(at));
  const [down, right] = steps;
  const target = gallery.rows[Math.min(gallery.rows.length - 1, Math.max(0, row + down))];
  if (down) return focusCell(nearest(target, report.index.cells.model[at]));
  const members = gallery.rows[row];
  focusCell(members[Math.min(members.length - 1, Math.max(0, members.indexOf(at) + right))]);
}

function nearest(members, model) {
  const { cells } = report.index;
  return members.reduce((best, at) => (Math.abs(cells.model[at] - model) < Math.abs(cells.model[best] - model) ? at : best));
}

function focusCell(at) {
  const row = gallery.rows.findIndex((members) => members.includes(at));
  if (row < 0) return;
  const scroller = document.getElementById("scroller");
  const head = document.getElementById("grid-head").offsetHeight;
  const top = row * gallery.height;
  if (top < scroller.scrollTop) scroller.scrollTop = top;
  if (top + gallery.height + head > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = top + gallery.height + head - scroller.clientHeight;
  drawRows();
  const link = document.querySelector(`#canvas a[data-at="${at}"]`);
  for (const other of document.querySelectorAll("#canvas a[tabindex='0']")) other.tabIndex = -1;
  link.tabIndex = 0;
  link.focus({ preventScroll: !gallery.columns.length });
}

function openSearch() {
  if (report.state.view !== "gallery") go(addressOf("gallery", report.state.filters));
  setTimeout(() => form()?.elements.q.focus(), 50);
}
