// Which cells are shown. The state is the part of the address after "#", so that a view can be sent to somebody.

const FILTERS = ["q", "verdict", "tag", "failure", "model", "rule", "metric", "min", "max", "refused", "parted", "layout"];

/** The address as a view, its filters, and for a cell which one. */
function parseState(hash) {
  const [view, query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  const given = new URLSearchParams(query);
  const state = { view: ["gallery", "cell"].includes(view) ? view : "overview", filters: {} };
  for (const name of FILTERS) if (given.get(name)) state.filters[name] = given.get(name);
  state.cell = { case: given.get("case"), at: given.get("at"), sample: Number(given.get("sample") || 0) };
  return state;
}

/** The address of a view with filters; ``more`` names a cell. */
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

/** The place of a cell, or -1. */
function findCell(index, wanted) {
  const inCase = index.cases.indexOf(wanted.case);
  const ofModel = index.models.indexOf(wanted.at);
  const { cells } = index;
  for (let at = 0; at < index.count; at += 1) {
    if (cells.case[at] === inCase && cells.model[at] === ofModel && cells.sample[at] === wanted.sample) return at;
  }
  return -1;
}

/** The places of all cells that the filters let through. ``words`` is needed only where words are searched. */
function matching(index, filters, words) {
  const tests = testsOf(index, filters, words);
  const found = [];
  for (let at = 0; at < index.count; at += 1) if (tests.every((test) => test(at))) found.push(at);
  return found;
}

function testsOf(index, filters, words) {
  const { cells } = index;
  const tests = [];
  if (filters.verdict) {
    const wanted = new Set(filters.verdict.split(",").map((verdict) => verdict[0]));
    tests.push((at) => wanted.has(cells.verdict[at]));
  }
  for (const [name, column, texts] of [["tag", cells.tags, index.tags], ["failure", cells.failureTags, index.failureTags],
    ["rule", cells.rules, index.rules]]) {
    if (!filters[name]) continue;
    const wanted = texts.indexOf(filters[name]);
    tests.push((at) => column[at].includes(wanted));
  }
  if (filters.model) {
    const wanted = index.models.indexOf(filters.model);
    tests.push((at) => cells.model[at] === wanted);
  }
  for (const name of ["refused", "parted"]) {
    if (!filters[name]) continue;
    const wanted = new Set(cells[name]);
    tests.push((at) => wanted.has(at));
  }
  if (filters.metric) tests.push(metricTest(index, filters));
  if (filters.q) tests.push(wordTest(index, filters.q, words));
  return tests;
}

/** Cells whose metric lies in the range; with no range, cells to which the metric applies. Yes is 1, no is 0. */
function metricTest(index, { metric, min, max }) {
  const column = index.cells.scores[metric];
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

/** Cells in whose id, model run, prompt, rules or reasons every word occurs. */
function wordTest(index, query, words) {
  const wanted = query.toLowerCase().split(/\s+/).filter(Boolean);
  const { cells, cases, models, rules } = index;
  const prompts = words ? words.prompts.map((text) => text.toLowerCase()) : null;
  return (at) => {
    let text = `${cases[cells.case[at]]} ${models[cells.model[at]]} `;
    text += cells.rules[at].map((rule) => rules[rule]).join(" ");
    text = text.toLowerCase();
    if (words) text += ` ${prompts[words.prompt[at]]} ${words.why[at].toLowerCase()}`;
    return wanted.every((word) => text.includes(word));
  };
}
