// The gallery and its filters.

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
  scroller.addEventListener("scroll", () => requestAnimationFrame(renderVisible), { passive: true });
  scroller.addEventListener("keydown", moveFocus);
  view.replaceChildren(el("h1", { class: "visually-hidden", text: "Gallery" }), filterBar(), el("p", { class: "rest", id: "rest", role: "status", hidden: true }), scroller, el("p", { class: "notice", id: "nothing", hidden: true }));
  addEventListener("resize", debounced(() => report.state.view === "gallery" && layOut()));
  gallery.built = true;
}

function filterBar() {
  const { index } = report;
  return el("form", { class: "filters", role: "search", "aria-label": "Filter cells", submit: (event) => event.preventDefault() },
    el("input", { type: "search", name: "q", placeholder: "Search", "aria-label": "Search prompts and reasons",
      autocomplete: "off", spellcheck: "false", input: debounced(readFilters, 150) }),
    verdictButtons(),
    chooser("model", "Model run", index.models),
    chooser("tag", "Tag", index.tags),
    chooser("failure", "Failure tag", index.failureTags),
    chooser("rule", "Failed rule", index.rules),
    chooser("metric", "Metric", Object.entries(index.metrics).flatMap(([name, { choices }]) => [name, ...(choices || []).map((word) => `${name}: ${word}`)])),
    el("span", { class: "range", id: "range", hidden: true },
      el("input", { type: "number", name: "min", step: "any", "aria-label": "Metric at least", placeholder: "min", input: debounced(readFilters, 150) }),
      el("span", { text: "to" }),
      el("input", { type: "number", name: "max", step: "any", "aria-label": "Metric at most", placeholder: "max", input: debounced(readFilters, 150) })),
    toggle("disagreement", "Judge and rules disagree", index.cells.disagreement.length),
    toggle("refused", "Refused", index.cells.refused.length),
    sortChooser(),
    columnChooser(),
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
      const number = [...report.index.cells.verdict].filter((letter) => letter === sign).length;
      if (sign === "N" && !number) return null;
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
  const { verdict, layout, columns } = report.state.filters;
  setFilters({ ...filters, verdict, layout, columns });
}

function toggleVerdict(verdict) {
  const chosen = new Set((report.state.filters.verdict || "").split(",").filter(Boolean));
  chosen.has(verdict) ? chosen.delete(verdict) : chosen.add(verdict);
  setFilters({ ...report.state.filters, verdict: [...chosen].join(",") });
}

function clearFilters() {
  const { layout, columns } = report.state.filters;
  setFilters({ layout, columns });
}

function setFilters(filters) {
  report.state.filters = filters;
  history.replaceState(null, "", addressOf("gallery", filters));
  syncFilters();
  return refilter();
}

/** Updates the form from the state, except the field that has the focus. */
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
  syncColumns();
}

async function refilter() {
  const { index, state } = report;
  const searched = Boolean(state.filters.q);
  const texts = searched ? await load("texts") : part("texts");
  report.shown = ordered(index, matching(index, state.filters, searched ? texts : undefined), state.filters.sort);
  const all = report.shown.length === index.count;
  const summary = all ? plural(index.count, "cell") : `${report.shown.length.toLocaleString("en")} of ${plural(index.count, "cell")}`;
  document.getElementById("result").textContent = summary;
  document.getElementById("clear").hidden = !Object.keys(state.filters).some((name) => name !== "layout" && name !== "columns" && state.filters[name]);
  const nothing = document.getElementById("nothing");
  nothing.hidden = report.shown.length > 0;
  nothing.textContent = index.count ? "No cells match these filters." : "This run has no finished cells.";
  document.getElementById("scroller").hidden = !report.shown.length;
  layOut();
}

function openSearch() {
  if (report.state.view !== "gallery") go(addressOf("gallery", report.state.filters));
  setTimeout(() => form()?.elements.q.focus(), 50);
}
