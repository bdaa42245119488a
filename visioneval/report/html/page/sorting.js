// The order of the cells in the gallery, and the metrics that its list shows.

const VERDICT_ORDER = "FENP";
const METRIC_SORT = "metric:";

/** The cells in the chosen order: by case, by verdict, or by a metric, the worst first; else in the order of the suite. */
function ordered(index, shown, sort) {
  const { cells, cases } = index;
  if (sort === "case") return [...shown].sort((a, b) => cases[cells.case[a]].localeCompare(cases[cells.case[b]], "en", { numeric: true }) || a - b);
  if (sort === "verdict") return [...shown].sort((a, b) => VERDICT_ORDER.indexOf(cells.verdict[a]) - VERDICT_ORDER.indexOf(cells.verdict[b]) || a - b);
  if (sort === "gaps") return [...shown].sort((a, b) => (cells.gaps[b] ?? 0) - (cells.gaps[a] ?? 0) || a - b);
  const name = sort?.startsWith(METRIC_SORT) ? sort.slice(METRIC_SORT.length) : "";
  const column = cells.scores[name];
  if (!column) return shown;
  const sign = index.metrics[name].better === "lower" ? -1 : 1;
  const { choices } = index.metrics[name]; // of a metric that is one word of a list
  const number = (score) => (choices ? choices.indexOf(score) : sign * Number(score));
  const rank = (at) => (column[at] === "" || column[at] === null ? Infinity : number(column[at])); // unmeasured ones last
  return [...shown].sort((a, b) => (rank(a) === rank(b) ? a - b : rank(a) - rank(b)));
}

function sortChooser() {
  const metrics = Object.keys(report.index.metrics);
  const option = (value, text) => el("option", { value, text });
  return el("select", { name: "sort", "aria-label": "Sort", title: "Verdict: FAIL first. A metric: the worst first, or the lowest if the metric has no better direction.", change: readFilters }, option("", "Sort: suite"), option("case", "Sort: case"), option("verdict", "Sort: verdict"),
    report.index.cells.gaps.length ? option("gaps", "Sort: most gaps") : null,
    metrics.map((name) => option(METRIC_SORT + name, `Sort: ${name}`)));
}

const shownColumns = () => (report.state.filters.columns || "").split(",").filter((name) => name in report.index.metrics);

/** Check boxes for the metrics that each line of the list shows. */
function columnChooser() {
  const metrics = Object.keys(report.index.metrics);
  if (!metrics.length) return null;
  const choose = () => setFilters({ ...report.state.filters, columns: [...node.querySelectorAll("input:checked")].map((box) => box.value).join(","), layout: "list" });
  const node = el("details", { class: "columns" }, el("summary", { class: "quiet", text: "Columns" }),
    el("div", { class: "menu" }, metrics.map((name) => el("label", { class: "toggle" }, el("input", { type: "checkbox", value: name, change: choose }), name))));
  return node;
}

function syncColumns() {
  const names = new Set(shownColumns());
  for (const box of document.querySelectorAll(".columns input")) box.checked = names.has(box.value);
}

/** The chosen metrics of a cell, at the end of its line. */
function measuresOf(at) {
  const names = shownColumns();
  return names.length ? el("span", { class: "measures" }, names.map((name) => {
    const score = report.index.cells.scores[name][at];
    return el("span", {}, el("span", { class: "note", text: name }), " ", el("b", { text: score === "" ? "\u2013" : onScale(formatValue(score), report.index.metrics[name], score) }));
  })) : null;
}
