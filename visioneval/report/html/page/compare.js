// The pairs of a comparison: both images side by side, filtered by change of verdict and by text.

const STEP = 60;
const pairs = { data: JSON.parse(document.getElementById("data").textContent), chosen: new Set(), tag: "", query: "", shown: STEP, list: null };

function begin() {
  const section = document.getElementById("pairs");
  pairs.list = el("div", { class: "pairs-list" });
  section.append(pairBar(), pairs.list);
  for (const node of document.querySelectorAll("[data-pair]")) showOutputs(node, pairs.data.list[node.dataset.pair]);
  document.getElementById("cases").append(...casesSection(pairs.data));
  watchScrolling(document);
  readAddress();
  addEventListener("hashchange", () => { readAddress(); section.scrollIntoView(); section.focus({ preventScroll: true }); });
  if (location.hash.startsWith("#pairs")) section.scrollIntoView();
}

/** Both outputs of a pair, above its reasons. */
function showOutputs(node, pair) {
  if (pair) node.replaceChildren(beside(outputsOf(pair)));
}

function outputsOf(pair) {
  return pair.images.map((at, side) => [`${"AB"[side]}: ${pair.verdicts[side]}`, typeof at === "number" ? { src: pairs.data.images[at] } : { why: at }]);
}

function pairBar() {
  const { changes, list, total } = pairs.data;
  const tags = [...new Set(list.flatMap((pair) => pair.tags))].sort();
  const buttons = Object.entries(changes).map(([change, { title, number }]) => el("button", { type: "button", class: `change ${change}`, "data-change": change, "aria-pressed": "false",
    click: () => toggleChange(change) }, title, el("span", { class: "count", text: number.toLocaleString("en") })));
  return el("form", { class: "filters", role: "search", "aria-label": "Filter pairs", submit: (event) => event.preventDefault() },
    el("input", { type: "search", name: "q", placeholder: "Search", "aria-label": "Search prompts, rules and reasons", autocomplete: "off",
      input: debounced((event) => { pairs.query = event.target.value.trim(); filterPairs(true); }, 150) }),
    el("span", { class: "changes", role: "group", "aria-label": "Change" }, buttons),
    tags.length ? el("select", { name: "tag", "aria-label": "Tag", change: (event) => { pairs.tag = event.target.value; filterPairs(true); } },
      el("option", { value: "", text: "all tags" }), tags.map((tag) => el("option", { value: tag, text: tag }))) : null,
    el("span", { class: "outcome" }, el("span", { class: "result", id: "result", role: "status", "aria-live": "polite" })),
    list.length < total ? el("p", { class: "note", text: `The first ${list.length.toLocaleString("en")} of ${plural(total, "pair")} are included.` }) : null);
}

function readAddress() {
  const parameters = new URLSearchParams(location.hash.split(/\?(.*)/s)[1] || "");
  const changes = (parameters.get("change") ?? pairs.data.first).split(",").filter((change) => change in pairs.data.changes);
  pairs.chosen = new Set(changes);
  pairs.query = parameters.get("q") || "";
  pairs.tag = parameters.get("tag") || "";
  const select = document.querySelector(".filters [name=tag]");
  if (select) select.value = pairs.tag;
  document.querySelector(".filters [name=q]").value = pairs.query;
  filterPairs(false);
}

function toggleChange(change) {
  pairs.chosen.has(change) ? pairs.chosen.delete(change) : pairs.chosen.add(change);
  filterPairs(true);
}

function filterPairs(remember) {
  if (remember) {
    const state = new URLSearchParams();
    state.set("change", [...pairs.chosen].join(","));
    if (pairs.tag) state.set("tag", pairs.tag);
    if (pairs.query) state.set("q", pairs.query);
    history.replaceState(null, "", `#pairs?${state}`);
  }
  for (const button of document.querySelectorAll("[data-change]")) button.setAttribute("aria-pressed", pairs.chosen.has(button.dataset.change));
  pairs.shown = STEP;
  renderPairs();
}

function renderPairs() {
  const { list } = pairs.data;
  const terms = pairs.query.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = list.filter((pair) => (!pairs.chosen.size || pairs.chosen.has(pair.change)) && (!pairs.tag || pair.tags.includes(pairs.tag))
    && terms.every((word) => textOfPair(pair).includes(word)));
  document.getElementById("result").textContent = matches.length === list.length ? plural(list.length, "pair") : `${matches.length.toLocaleString("en")} of ${plural(list.length, "pair")}`;
  pairs.list.replaceChildren(...matches.slice(0, pairs.shown).map(pairCard));
  if (matches.length > pairs.shown) {
    pairs.list.append(el("button", { type: "button", class: "quiet more", text: `Show ${Math.min(STEP, matches.length - pairs.shown)} more`,
      click: () => { pairs.shown += STEP; renderPairs(); } }));
  }
  if (!matches.length) pairs.list.append(el("p", { class: "notice", text: "No pairs match these filters." }));
}

function textOfPair(pair) {
  pair.text ??= [pair.case, ...pair.labels, pair.prompt, ...pair.sent, ...pair.notes, ...pair.lines, ...pair.reasons].join(" ").toLowerCase();
  return pair.text;
}

function pairCard(pair) {
  const outputs = outputsOf(pair);
  const [[, a], [, b]] = outputs;
  const modes = [{ name: "Side by side", render: () => beside(outputs) }];
  if (a.src && b.src && a.src !== b.src) modes.push({ name: "Slider", render: () => slider(a, b, "A", "B") });
  const change = pairs.data.changes[pair.change].title;
  return el("article", { class: `pair ${pair.change}`, "aria-label": `${pair.case}: ${change}` },
    el("header", {}, el("span", { class: `change-name ${pair.change}`, text: change }), el("h3", { text: pair.case }),
      el("span", { class: "model" }, soft(pair.labels[0] === pair.labels[1] ? pair.labels[1] : `${pair.labels[0]} \u2192 ${pair.labels[1]}`)),
      pair.sample === null ? null : el("span", { class: "note", text: `sample ${pair.sample}` }),
      pair.notes.map((note) => el("span", { class: "tag", text: note }))),
    createStage(modes).node,
    el("div", { class: "words" },
      pair.lines.length ? el("ul", { class: "plain" }, pair.lines.map((line) => el("li", { text: line }))) : null,
      scoresOfPair(pair.scores),
      el("details", {}, el("summary", { text: "Prompt" }), el("p", { class: "reason", text: pair.prompt || "not recorded" }),
        pair.sent.map((text, at) => (text ? el("p", { class: "reason", text: `Sent in ${"AB"[at]}: ${text}` }) : null)))));
}

function scoresOfPair(scores) {
  const changed = scores.filter(([, scoreA, scoreB]) => scoreA !== scoreB);
  return changed.length === 0 ? null : el("table", { class: "seen" }, el("thead", {}, el("tr", {}, ["metric", "A", "B"].map((name, at) => el("th", { scope: "col", class: at ? "number" : "", text: name })))),
    el("tbody", {}, changed.map(([name, scoreA, scoreB]) => el("tr", {}, el("th", { scope: "row", text: name }), el("td", { class: "number", text: formatValue(scoreA) }), el("td", { class: "number", text: formatValue(scoreB) })))));
}

begin();
