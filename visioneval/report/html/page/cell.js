// One cell in full.

async function showCell() {
  const { index, state } = report;
  const view = document.getElementById("view-cell");
  const at = findCell(index, state.cell);
  if (at < 0) {
    view.replaceChildren(el("p", { class: "notice", role: "alert", text: "This run has no such cell." }));
    return;
  }
  report.lastCell = at;
  const words = state.filters.q ? await load("words") : undefined;
  report.shown = matching(index, state.filters, words);
  const detail = (await load(partOf(at)))[index.cells.place[at] % index.part];
  if (findCell(index, report.state.cell) !== at) return;
  const modes = modesOf(detail);
  report.stage = stageOf(modes, Math.max(0, modes.findIndex((mode) => mode.name === report.mode)));
  report.stage.node.addEventListener("click", (event) => {
    if (event.target.classList.contains("mode")) report.mode = event.target.textContent;
  });
  view.replaceChildren(cellHead(at, detail), el("div", { class: "cell-body" }, report.stage.node, el("div", { class: "findings" }, findings(detail))));
  scrollTo(0, 0);
  view.querySelector("h1").focus({ preventScroll: true });
  prefetch(at);
}

function cellHead(at, detail) {
  const { index, shown, state } = report;
  const { cells } = index;
  const place = shown.indexOf(at);
  const near = (step) => (place < 0 ? undefined : shown[place + step]);
  const link = (step, text, label) => el("a", near(step) === undefined ? { class: "step off", "aria-disabled": "true", text, "aria-label": label }
    : { class: "step", href: addressOfCell(index, near(step), state.filters), text, "aria-label": label });
  return el("div", { class: "cell-head" },
    el("a", { class: "back", href: addressOf("gallery", state.filters), text: "Gallery" }),
    badge(detail.record.verdict),
    el("h1", { tabindex: "-1", text: index.cases[cells.case[at]] }),
    el("span", { class: "model" }, soft(index.models[cells.model[at]])),
    cells.sample[at] || report.index.cells.sample.some(Boolean) ? el("span", { class: "note", text: `sample ${cells.sample[at]}` }) : null,
    el("span", { class: "steps" }, link(-1, "\u2190", "Previous cell"), el("span", { class: "note", text: place < 0 ? "" : `${(place + 1).toLocaleString("en")} of ${shown.length.toLocaleString("en")}` }), link(1, "\u2192", "Next cell")));
}

function step(by) {
  const { shown, index, state } = report;
  const place = shown.indexOf(findCell(index, state.cell));
  const next = place < 0 ? undefined : shown[place + by];
  if (next !== undefined) go(addressOfCell(index, next, state.filters));
}

function partOf(at) {
  return `details-${Math.floor(report.index.cells.place[at] / report.index.part)}`;
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
    el("section", {}, el("h2", { text: "Asked" }), factList(asked(detail), detail)),
    Object.keys(record.scores).length ? el("section", {}, el("h2", { text: "Scores" }), scoreTable(detail)) : null,
    record.graders.length ? el("section", {}, el("h2", { text: "What the graders saw" }), record.graders.map((grader) => graderSection(grader, detail))) : null,
    el("section", {}, el("h2", { text: "Drawn" }), factList(drawn(detail), detail)),
    el("section", {}, el("h2", { text: "Run this cell alone" }), commandBlock(detail.command)),
  ];
}

function verdictBlock(detail) {
  const { record } = detail;
  const items = [...byReason(record.failed_rules, detail.why)].map(([reason, rules]) => el("li", { class: "fail" }, rules.map((rule) => el("code", { text: rule })), reasonText(reason)));
  if (record.status === "refused") items.push(el("li", { class: record.verdict === "PASS" ? "" : "fail" }, el("strong", { text: "refused" }), reasonText(record.reasons.refused)));
  if (record.error) items.push(el("li", { class: "error" }, el("strong", { text: `${record.error.stage}, ${record.error.kind}` }), reasonText(record.error.message)));
  for (const rule of record.warned_rules) items.push(el("li", { class: "warn" }, el("span", { class: "note", text: "warning" }), el("code", { text: rule }), reasonText(detail.why[rule])));
  for (const key of detail.parted) items.push(el("li", { class: "parted" }, el("strong", { text: "Judge and rules disagree" }), reasonText(partedText(key, record))));
  if (!items.length) items.push(el("li", { class: "pass", text: "Every rule that applies holds." }));
  return el("section", { class: `verdict-block ${record.verdict.toLowerCase()}` }, el("ul", { class: "plain" }, items),
    record.failure_tags.length ? el("p", { class: "tags" }, record.failure_tags.map((tag) => el("span", { class: "tag", text: tag }))) : null);
}

/** Rules that fail for one reason stand together. */
function byReason(rules, why) {
  const found = new Map();
  for (const rule of rules) {
    const reason = why[rule] || "";
    const key = reason || `\n${rule}`;
    if (!found.has(key)) found.set(key, [reason, []]);
    found.get(key)[1].push(rule);
  }
  return found.values();
}

function reasonText(text) {
  return text ? el("span", { class: "reason", text }) : null;
}

function partedText(key, record) {
  const said = record.graders.find((grader) => grader.key === key)?.details.judge_verdict;
  return `${key}: the judge says ${told(said)}, the rules over its scores say ${said === "FAIL" ? "PASS" : "FAIL"}`;
}

function scoreTable({ record, broken }) {
  const rows = Object.entries(record.scores).map(([name, score]) => el("tr", { class: score === null ? "unmeasured" : broken.includes(name) ? "broken" : "" },
    el("th", { scope: "row", text: name }),
    el("td", { class: "number", text: told(score) }),
    el("td", { class: "drawn" }, scoreBar(name, score)),
    el("td", { class: "reason", text: record.reasons[name] || "" })));
  for (const grader of record.graders) {
    if (record.reasons[grader.key] && !(grader.key in record.scores)) {
      rows.push(el("tr", {}, el("th", { scope: "row", text: grader.key }), el("td"), el("td"), el("td", { class: "reason", text: record.reasons[grader.key] })));
    }
  }
  return el("div", { class: "scroll" }, el("table", { class: "scores" },
    el("thead", {}, el("tr", {}, ["metric", "score", "", "reason"].map((name, at) => el("th", { scope: "col", class: at === 1 ? "number" : "", text: name })))),
    el("tbody", {}, rows)));
}

/** Where a score lies on the range of its metric. */
function scoreBar(name, score) {
  const metric = report.index.metrics[name];
  const [low, high] = metric?.range || [];
  if (typeof score !== "number" || typeof low !== "number" || typeof high !== "number" || high <= low) return null;
  const share = Math.min(1, Math.max(0, (score - low) / (high - low)));
  return svg("svg", { class: "plot share", viewBox: "0 0 64 6", width: 64, height: 6, "aria-hidden": "true" },
    svg("rect", { class: "rest", width: 64, height: 6 }), svg("rect", { class: "bar", width: Math.max(1, share * 64), height: 6 }));
}

function asked(detail) {
  const { record } = detail;
  return { prompt: detail.prompt, criteria: detail.criteria, region: detail.region, expected: detail.expect,
    inputs: detail.inputs.map((input) => `${input.name} (${input.role})`), masks: detail.masks.map((mask) => `${mask.name} (${mask.role})`),
    reference: detail.reference?.name, tags: record.tags.join(", "), metadata: record.metadata, "rules that did not apply": record.skipped_rules };
}

function drawn(detail) {
  const { record } = detail;
  const size = record.width ? `${record.width} \u00d7 ${record.height}, ${record.mime}` : "no image";
  return { image: size, file: detail.output?.name, provider: record.provider, params: record.run_params,
    time: `${told(record.seconds)} s${record.cached ? ", from the cache" : ""}${record.attempts > 1 ? `, ${record.attempts} attempts` : ""}`,
    cost: record.cost_usd === null ? "unknown" : `${told(record.cost_usd)} USD`, usage: record.usage };
}

function factList(facts, detail) {
  return el("dl", { class: "details" }, Object.entries(facts).filter(([name, value]) => worth(name, value))
    .flatMap(([name, value]) => [el("dt", { text: name }), el("dd", {}, shownValue(value, detail))]));
}

function commandBlock(command) {
  const said = el("span", { class: "note", role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(command);
      said.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(block);
      said.textContent = "selected: copy it now";
    }
  };
  const block = el("pre", { class: "command", tabindex: "0", text: command });
  return el("div", {}, block, el("button", { type: "button", class: "quiet", text: "Copy", click: copy }), said);
}
