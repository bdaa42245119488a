// Filters of cells. The state is the part of the URL after "#", so that a view can be shared.

const FILTERS = ["q", "verdict", "tag", "failure", "model", "rule", "metric", "min", "max", "refused", "disagreement", "sort", "columns", "layout"];

/** Parses the URL into a view, its filters and the cell. */
function parseState(hash) {
  const [view, query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  const parameters = new URLSearchParams(query);
  const state = { view: ["gallery", "cell"].includes(view) ? view : "overview", filters: {} };
  for (const name of FILTERS) if (parameters.get(name)) state.filters[name] = parameters.get(name);
  state.cell = { case: parameters.get("case"), at: parameters.get("at"), sample: Number(parameters.get("sample") || 0) };
  const [zoom, x, y] = (parameters.get("zoom") || "").split(",").map(Number);
  state.look = { mode: parameters.get("show") ?? undefined, divide: parameters.get("divide") ?? undefined,
    position: [zoom, x, y].every(Number.isFinite) ? { zoom, x, y } : undefined };
  return state;
}

/** The parameters of an address for a display mode, a zoomed part and the divider of the slider. */
function parametersOfLook({ mode, position, divide }) {
  return { ...(mode && { show: mode }), ...(position?.zoom > 1 && { zoom: [position.zoom, position.x, position.y].join(",") }), ...(divide !== undefined && { divide }) };
}

/** The URL of a view with filters; ``more`` names a cell. */
function addressOf(view, filters, more = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(more)) query.set(name, value);
  for (const name of FILTERS) if (filters[name]) query.set(name, filters[name]);
  const text = query.toString();
  return text ? `#${view}?${text}` : `#${view}`;
}

function addressOfCell(index, at, filters) {
  const { cells, cases, models } = index;
  return addressOf("cell", filters, { case: cases[cells.case[at]], at: models[cells.model[at]], sample: cells.sample[at] });
}

/** The index of a cell, or -1. */
function findCell(index, cell) {
  const inCase = index.cases.indexOf(cell.case);
  const ofModel = index.models.indexOf(cell.at);
  const { cells } = index;
  for (let at = 0; at < index.count; at += 1) {
    if (cells.case[at] === inCase && cells.model[at] === ofModel && cells.sample[at] === cell.sample) return at;
  }
  return -1;
}

/** The indexes of all cells that match the filters. ``texts`` is needed only for a text search. */
function matching(index, filters, texts) {
  const tests = testsOf(index, filters, texts);
  const matches = [];
  for (let at = 0; at < index.count; at += 1) if (tests.every((test) => test(at))) matches.push(at);
  return matches;
}

function testsOf(index, filters, texts) {
  const { cells } = index;
  const tests = [];
  if (filters.verdict) {
    const accepted = new Set(filters.verdict.split(",").map((verdict) => verdict[0]));
    tests.push((at) => accepted.has(cells.verdict[at]));
  }
  for (const [name, column, names] of [["tag", cells.tags, index.tags], ["failure", cells.failureTags, index.failureTags],
    ["rule", cells.rules, index.rules]]) {
    if (!filters[name]) continue;
    const accepted = names.indexOf(filters[name]);
    tests.push((at) => column[at].includes(accepted));
  }
  if (filters.model) {
    const accepted = index.models.indexOf(filters.model);
    tests.push((at) => cells.model[at] === accepted);
  }
  for (const name of ["refused", "disagreement"]) {
    if (!filters[name]) continue;
    const accepted = new Set(cells[name]);
    tests.push((at) => accepted.has(at));
  }
  if (filters.metric) tests.push(metricTest(index, filters));
  if (filters.q) tests.push(wordTest(index, filters.q, texts));
  return tests;
}

/** Matches cells whose metric is in the range; without a range, cells to which the metric applies. Yes is 1, no is 0.
 * `style: flat` are the cells whose metric `style` is the word `flat`. */
function metricTest(index, { metric, min, max }) {
  const column = index.cells.scores[metric];
  const words = column ? undefined : Object.keys(index.metrics).find((name) => metric.startsWith(`${name}: `));
  if (words !== undefined) return (at) => `${words}: ${index.cells.scores[words][at]}` === metric;
  if (!column) return () => false;
  const low = min === undefined || min === "" ? null : Number(min);
  const high = max === undefined || max === "" ? null : Number(max);
  return (at) => {
    const score = column[at];
    if (score === "") return false;
    if (low === null && high === null) return true;
    return score !== null && (low === null || Number(score) >= low) && (high === null || Number(score) <= high);
  };
}

/** Matches cells whose id, model run, prompt, rules or reasons contain every word. */
function wordTest(index, query, texts) {
  const accepted = query.toLowerCase().split(/\s+/).filter(Boolean);
  const { cells, cases, models, rules } = index;
  const prompts = texts ? texts.prompts.map((text) => text.toLowerCase()) : null;
  return (at) => {
    let text = `${cases[cells.case[at]]} ${models[cells.model[at]]} `;
    text += cells.rules[at].map((rule) => rules[rule]).join(" ");
    text = text.toLowerCase();
    if (texts) text += ` ${prompts[texts.prompt[at]]} ${texts.why[at].toLowerCase()}`;
    return accepted.every((word) => text.includes(word));
  };
}
