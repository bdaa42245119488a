// The view of one cell.

async function showCell() {
  const { index, state } = report;
  const view = document.getElementById("view-cell");
  const at = findCell(index, state.cell);
  if (at < 0) {
    view.replaceChildren(el("p", { class: "notice", role: "alert", text: "This run does not contain this cell." }));
    return;
  }
  report.lastCell = at;
  const texts = state.filters.q ? await load("texts") : undefined;
  report.shown = ordered(index, matching(index, state.filters, texts), state.filters.sort);
  const detail = (await load(partOf(at)))[at % index.part];
  if (findCell(index, report.state.cell) !== at) return;
  const { look } = report.state;
  report.stage = createStage(modesOf(detail), { look: { ...look, mode: look.mode ?? report.mode }, eager: true, changed: rememberLook });
  view.replaceChildren(cellHead(at, detail), el("div", { class: "cell-body" }, report.stage.node, el("div", { class: "findings" }, findings(detail))));
  watchScrolling(view);
  scrollTo(0, 0);
  view.querySelector("h1").focus({ preventScroll: true });
  prefetch(at);
}

/** Keeps what is looked at, and how, in the address; the next cell begins with the display mode that was chosen. */
function rememberLook({ mode, position, divide }) {
  report.mode = mode ?? report.mode;
  const round = (number) => Number(number.toFixed(4));
  const { zoom, x, y } = position;
  report.state.look = { mode, position: { zoom: round(zoom), x: round(x), y: round(y) }, divide };
  replaceLook();
}

const replaceLook = debounced(() => {
  const { view, cell, look, filters } = report.state;
  if (view === "cell") history.replaceState(null, "", addressOf("cell", filters, { ...cell, ...parametersOfLook(look) }));
});

function cellHead(at, detail) {
  const { index, shown, state } = report;
  const { cells } = index;
  const position = shown.indexOf(at);
  const neighbor = (step) => (position < 0 ? undefined : shown[position + step]);
  const link = (step, text, label) => el("a", neighbor(step) === undefined ? { class: "step off", "aria-disabled": "true", text, "aria-label": label }
    : { class: "step", href: addressOfCell(index, neighbor(step), state.filters), text, "aria-label": label });
  return el("div", { class: "cell-head" },
    el("a", { class: "back", href: addressOf("gallery", state.filters), text: "Gallery" }),
    badge(detail.record.verdict),
    el("h1", { tabindex: "-1", text: index.cases[cells.case[at]] }),
    el("span", { class: "model" }, soft(index.models[cells.model[at]])),
    cells.sample[at] || report.index.cells.sample.some(Boolean) ? el("span", { class: "note", text: `sample ${cells.sample[at]}` }) : null,
    el("span", { class: "steps" }, link(-1, "\u2190", "Previous cell"), el("span", { class: "note", text: position < 0 ? "" : `${(position + 1).toLocaleString("en")} of ${shown.length.toLocaleString("en")}` }), link(1, "\u2192", "Next cell")));
}

function step(by) {
  const { shown, index, state } = report;
  const position = shown.indexOf(findCell(index, state.cell));
  const next = position < 0 ? undefined : shown[position + by];
  if (next !== undefined) go(addressOfCell(index, next, state.filters));
}

function partOf(at) {
  return `details-${Math.floor(at / report.index.part)}`;
}

function prefetch(at) {
  const { index, shown } = report;
  const next = shown[shown.indexOf(at) + 1];
  if (next !== undefined) load(partOf(next)).catch(() => {});
}

function findings(detail) {
  const { record } = detail;
  return [
    verdictBlock(detail),
    el("section", {}, el("h2", { text: "Request" }), factList(requestFacts(detail), detail)),
    Object.keys(record.scores).length ? el("section", {}, el("h2", { text: "Scores" }), scoreTable(detail)) : null,
    record.graders.length ? el("section", {}, el("h2", { text: "Grader details" }), record.graders.map((grader) => graderSection(grader, detail))) : null,
    el("section", {}, el("h2", { text: "Output" }), factList(outputFacts(detail), detail)),
    el("section", {}, el("h2", { text: "Command to rerun this cell" }), commandBlock(detail.command),
      detail.commandNote ? el("p", { class: "note", text: detail.commandNote }) : null),
  ];
}

function verdictBlock(detail) {
  const { record } = detail;
  const items = [...groupByReason(detail.failed)].map(([reason, rules]) => el("li", { class: "fail" }, rules.map((rule) => el("code", { text: rule })), reasonText(reason)));
  if (record.status === "refused") items.push(el("li", { class: record.verdict === "PASS" ? "" : "fail" }, el("strong", { text: "refused" }), reasonText(record.reasons.refused)));
  if (record.error) items.push(el("li", { class: "error" }, el("strong", { text: `${record.error.stage}, ${record.error.kind}` }), reasonText(record.error.message)));
  for (const [rule, reason] of detail.warned) items.push(el("li", { class: "warn" }, el("span", { class: "note", text: "warning" }), el("code", { text: rule }), reasonText(reason)));
  for (const key of detail.disagreement) items.push(el("li", { class: "disagreement" }, el("strong", { text: "Judge and rules disagree" }), reasonText(disagreementText(key, record))));
  if (!items.length) items.push(el("li", { class: "pass", text: "All applicable rules passed." }));
  return el("section", { class: `verdict-block ${record.verdict.toLowerCase()}` }, el("ul", { class: "plain" }, items),
    record.failure_tags.length ? el("p", { class: "tags" }, el("span", { class: "note", text: plural(record.failure_tags.length, "failure tag") }), record.failure_tags.map(tagMark)) : null);
}

/** Groups failed rules by reason. */
function groupByReason(rules) {
  const groups = new Map();
  for (const [rule, reason] of rules) {
    const key = reason || `\n${rule}`;
    if (!groups.has(key)) groups.set(key, [reason, []]);
    groups.get(key)[1].push(rule);
  }
  return groups.values();
}

function reasonText(text) {
  return text ? el("span", { class: "reason", text }) : null;
}

function disagreementText(key, record) {
  const judgeVerdict = record.graders.find((grader) => grader.key === key)?.details.judge_verdict;
  return `${key}: the judge verdict is ${formatValue(judgeVerdict)}, the rules give ${judgeVerdict === "FAIL" ? "PASS" : "FAIL"}`;
}

function scoreTable({ record, broken, exact }) {
  const rows = Object.entries(record.scores).map(([name, score]) => el("tr", { class: score === null ? "unmeasured" : broken.includes(name) ? "broken" : "" },
    el("th", { scope: "row", text: name }),
    el("td", { class: "number", text: onScale(exact[name] ?? formatValue(score), report.index.metrics[name], score) }),
    el("td", { class: "plot-cell" }, scoreBar(name, score)),
    el("td", { class: "reason", text: record.reasons[name] || "" })));
  for (const grader of record.graders) {
    if (record.reasons[grader.key] && !(grader.key in record.scores)) {
      rows.push(el("tr", {}, el("th", { scope: "row", text: grader.key }), el("td"), el("td"), el("td", { class: "reason", text: record.reasons[grader.key] })));
    }
  }
  return el("div", { class: "scroll" }, el("table", { class: "scores" },
    el("thead", {}, el("tr", {}, ["metric", "score", el("span", { class: "visually-hidden", text: "share of the range" }), "reason"].map((name, at) => el("th", { scope: "col", class: at === 1 ? "number" : "" }, name)))),
    el("tbody", {}, rows)));
}

/** The position of a score in the range of its metric: gray where a longer bar is no better. */
function scoreBar(name, score) {
  const metric = report.index.metrics[name];
  const [low, high] = metric?.range || [];
  if (typeof score !== "number" || typeof low !== "number" || typeof high !== "number" || high <= low) return null;
  const share = Math.min(1, Math.max(0, (score - low) / (high - low)));
  return svg("svg", { class: "plot share", viewBox: "0 0 64 6", width: 64, height: 6, "aria-hidden": "true" },
    svg("rect", { class: "rest", width: 64, height: 6 }), svg("rect", { class: metric.better === "higher" ? "bar" : "bar neutral", width: Math.max(1, share * 64), height: 6 }));
}

function requestFacts(detail) {
  const { record } = detail;
  return { prompt: detail.prompt, "sent prompt": record.sent_prompt, "graded prompt": record.graded_prompt, criteria: detail.criteria, region: detail.region, expected: detail.expect,
    inputs: detail.inputs.map((input) => `${input.name} (${input.role})`), masks: detail.masks.map((mask) => `${mask.name} (${mask.role})`),
    reference: detail.reference?.name, tags: record.tags.join(", "), metadata: record.metadata, "skipped rules": record.skipped_rules };
}

function outputFacts(detail) {
  const { record } = detail;
  const size = record.width ? `${record.width} \u00d7 ${record.height}, ${record.mime}` : "no image";
  return { image: size, file: detail.output?.name, provider: record.provider, params: record.run_params,
    time: `${formatValue(record.seconds)} s${record.cached ? ", from the cache" : ""}${record.attempts > 1 ? `, ${record.attempts} attempts` : ""}`,
    cost: record.cost_usd === null ? (detail.free ? "0 USD" : "unknown") : `${formatValue(record.cost_usd)} USD`, usage: record.usage };
}

function factList(facts, detail) {
  return el("dl", { class: "details" }, Object.entries(facts).filter(([name, value]) => isShown(name, value))
    .flatMap(([name, value]) => [el("dt", { text: name }), el("dd", {}, renderValue(value, detail))]));
}

function commandBlock(command) {
  const status = el("span", { class: "note", role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(command);
      status.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(block);
      status.textContent = "selected: press Ctrl+C";
    }
  };
  const block = el("pre", { class: "command", tabindex: "0", text: command });
  return el("div", {}, block, el("button", { type: "button", class: "quiet", text: "Copy", click: copy }), status);
}
