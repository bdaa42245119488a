// Details of a grader: known fields have a dedicated renderer, others are rendered by shape.

const HIDDEN = new Set(["readings", "difference_map", "over_time", "prompt_sha256"]);
const FORMS = { lines: readLines, crops: cropsOf, replies: repliesOf, questions: questionsOf };

function graderSection(grader, detail) {
  const notes = [grader.type, grader.cached ? "from the cache" : `${formatValue(grader.seconds)} s`,
    grader.cost_usd === null ? null : `${formatValue(grader.cost_usd)} USD`, grader.fingerprint.judge_model].filter(Boolean);
  const rows = detailRows(grader.details, detail);
  return el("section", { class: "grader", "aria-label": `Grader ${grader.key}` },
    el("h3", {}, grader.key, el("span", { class: "note", text: notes.join(" \u00b7 ") })),
    grader.error ? el("p", { class: "grader-error", text: grader.error }) : null,
    rows.length ? el("dl", { class: "details" }, rows) : null,
    grader.judges.length ? panelOf(grader.judges, detail) : null);
}

function detailRows(details, detail) {
  return Object.entries(details).filter(([name, value]) => isShown(name, value))
    .flatMap(([name, value]) => [el("dt", { text: spaced(name) }), el("dd", { class: isTable(value) ? "wide" : "" }, renderField(name, value, detail))]);
}

/** The answers of a panel: a table with a row for each judge, and the details of each below. */
function panelOf(judges, detail) {
  const answers = judges.map((answer) => ({ judge: answer.judge, model: answer.model, ...answer.scores,
    tags: answer.failure_tags.join(", "), reason: Object.values(answer.reasons).join("; "), error: answer.error, USD: answer.cost_usd }));
  return el("div", { class: "panel" }, tableOf(answers, detail), judges.map((answer) => {
    const rows = detailRows(answer.details, detail);
    return rows.length ? el("details", {}, el("summary", { text: `Details of ${answer.judge}` }), el("dl", { class: "details" }, rows)) : null;
  }));
}

const isTable = (value) => Array.isArray(value) && value.some((item) => item !== null && typeof item === "object" && !Array.isArray(item));

const TITLES = { folded: "compared as", reply_shape: "form of the judge's reply", registration: "alignment with the input", box: "place" };
const spaced = (name) => TITLES[name] ?? name.replaceAll("_", " ");

function isShown(name, value) {
  if (name === "box") return isBox(value);
  if (HIDDEN.has(name) || value === null || value === undefined || value === "") return false;
  if (Array.isArray(value)) return value.length > 0;
  return typeof value !== "object" || Object.values(value).some((inner) => isShown("", inner));
}

function renderField(name, value, detail) {
  const renderer = FORMS[name];
  if (renderer && Array.isArray(value) && value.every((item) => item !== null && typeof item === (renderer === repliesOf ? "string" : "object"))) return renderer(value, detail);
  return renderValue(value, detail);
}

function renderValue(value, detail) {
  if (typeof value === "string" && detail.files[value]) return el("figure", { class: "crop" }, imageElement(detail.files[value], value, { loading: "lazy" }));
  if (typeof value === "string") return COLOR.test(value) ? colorOf(value) : textOf(value);
  if (value === null || typeof value !== "object") return el("span", { class: "value", text: value === null ? "\u2013" : formatValue(value) });
  if (!Array.isArray(value)) return pairsOf(value, detail);
  if (value.every((item) => item !== null && typeof item === "object" && !Array.isArray(item))) return tableOf(value, detail);
  if (value.every((item) => typeof item === "string")) return el("ul", { class: "plain" }, value.map((item) => el("li", {}, renderValue(item, detail))));
  return el("span", { class: "value", text: value.map((item) => (typeof item === "object" ? JSON.stringify(item) : formatValue(item))).join(", ") });
}

const COLOR = /^#[0-9A-F]{6}$/;

/** A color with a square that shows it. */
function colorOf(color) {
  const square = el("i", { class: "swatch", "aria-hidden": "true" });
  square.style.background = color;
  return el("span", { class: "value" }, square, color);
}

/** Long texts are collapsed. */
function textOf(text) {
  if (text.length <= 600) return el("span", { class: "text", text });
  return el("details", { class: "long" }, el("summary", {}, el("span", { class: "text", text: `${text.slice(0, 240)} \u2026` })), el("pre", { text }));
}

function pairsOf(value, detail) {
  const entries = Object.entries(value).filter(([name, inner]) => isShown(name, inner));
  if (entries.every(([, inner]) => inner === null || typeof inner !== "object") && entries.every(([, inner]) => String(inner).length < 40)) {
    return el("span", { class: "inline" }, entries.map(([name, inner]) => el("span", {}, el("i", { text: spaced(name) }), renderValue(inner, detail))));
  }
  return el("dl", { class: "pairs" }, entries
    .flatMap(([name, inner]) => [el("dt", { text: spaced(name) }), el("dd", {}, renderField(name, inner, detail))]));
}

/** A table of similar rows, such as questions with expected and given answers: places first, without empty columns. */
function tableOf(rows, detail) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row).filter((name) => isShown(name, row[name]))))]
    .sort((a, b) => (b === "box") - (a === "box"));
  return el("div", { class: "scroll" }, el("table", { class: "seen" },
    el("thead", {}, el("tr", {}, names.map((name) => el("th", { scope: "col", text: spaced(name) })))),
    el("tbody", {}, rows.map((row) => el("tr", { class: isWrong(row) ? "wrong" : "" },
      names.map((name) => el("td", {}, !isShown(name, row[name]) ? "" : name === "box" ? placeOf(row.box, detail) : renderValue(row[name], detail))))))));
}

/** Questions about an image: expected answer, given answer and score; other fields in small text below. */
function questionsOf(rows, detail) {
  if (!rows.every((row) => typeof row.question === "string")) return tableOf(rows, detail);
  const main = new Set(["question", "expected", "answer", "choice", "score", "right", "correct"]);
  return el("div", { class: "scroll" }, el("table", { class: "seen questions" },
    el("thead", {}, el("tr", {}, ["question", "expected", "given", "score"].map((name) => el("th", { scope: "col", text: name })))),
    el("tbody", {}, rows.map((row) => el("tr", { class: row.unanswered ? "unanswered" : isWrong(row) ? "wrong" : "" },
      el("td", {}, el("span", { class: "text", text: row.question }), el("span", { class: "note below" },
        Object.entries(row).filter(([name, value]) => !main.has(name) && isShown(name, value) && value !== row.answer)
          .map(([name, value]) => el("span", {}, el("i", { text: spaced(name) }), [value].flat().map(formatValue).join(", "))))),
      el("td", { text: wordsOf(row.expected, row) }),
      el("td", { text: row.choice ?? (row.answer === null || row.answer === undefined ? "no answer" : wordsOf(row.answer, row)) }),
      el("td", { class: "number", text: row.score === null || row.score === undefined ? "\u2013" : formatValue(row.score) }))))));
}

/** An answer in words: a letter stands for one of the choices. */
function wordsOf(answer, { choices }) {
  if (!Array.isArray(choices) || typeof answer !== "string" || choices.includes(answer) || !/^[a-z]$/i.test(answer)) return formatValue(answer);
  return formatValue(choices[answer.toLowerCase().charCodeAt(0) - 97] ?? answer);
}

/** Whether a row is a claim that the image does not satisfy. */
function isWrong(row) {
  for (const name of ["right", "correct", "satisfied", "met", "holds"]) if (row[name] === false) return true;
  return row.score === 0 || row.score === false || ("requirement" in row && row.answer === false);
}

/** Lines of text with their confidence. */
function readLines(lines) {
  return el("table", { class: "seen lines" }, el("tbody", {}, lines.map((line) => el("tr", { class: line.counted === false ? "weak" : "" },
    el("td", { class: "text", text: formatValue(line.text) }),
    el("td", { class: "number" }, typeof line.confidence === "number"
      ? el("meter", { min: 0, max: 1, value: line.confidence, "aria-label": "confidence" }) : null),
    el("td", { class: "number", text: typeof line.confidence === "number" ? line.confidence.toFixed(2) : "" }),
    el("td", { class: "note", text: line.counted === false ? "confidence too low, not counted" : "" })))));
}

function cropsOf(crops, detail) {
  return el("div", { class: "crops" }, crops.map((crop) => el("figure", { class: "crop" },
    imageElement(detail.files[crop.path], `crop of ${formatValue(crop.image)}`, { loading: "lazy" }),
    el("figcaption", { text: `${formatValue(crop.image)}  ${(crop.rectangle || []).join(", ")}` }))));
}

function repliesOf(replies) {
  return replies.map((reply) => el("details", { class: "long" }, el("summary", { text: plural(reply.length, "character") }), el("pre", { text: reply })));
}
