// What a grader saw and said: known kinds with a form of their own, everything else by its shape.

const HIDDEN = new Set(["box", "readings", "difference_map", "prompt_sha256"]);
const FORMS = { lines: readLines, crops: cropsOf, replies: repliesOf, questions: questionsOf };

function graderSection(grader, detail) {
  const notes = [grader.type, grader.cached ? "from the cache" : `${told(grader.seconds)} s`,
    grader.cost_usd === null ? null : `${told(grader.cost_usd)} USD`, grader.fingerprint.judge_model].filter(Boolean);
  const rows = Object.entries(grader.details).filter(([name, value]) => worth(name, value))
    .flatMap(([name, value]) => [el("dt", { text: spaced(name) }), el("dd", { class: isTable(value) ? "wide" : "" }, shownAs(name, value, detail))]);
  return el("section", { class: "grader", "aria-label": `Grader ${grader.key}` },
    el("h3", {}, grader.key, el("span", { class: "note", text: notes.join(" \u00b7 ") })),
    grader.error ? el("p", { class: "told-error", text: grader.error }) : null,
    rows.length ? el("dl", { class: "details" }, rows) : null);
}

const isTable = (value) => Array.isArray(value) && value.some((one) => one !== null && typeof one === "object" && !Array.isArray(one));

const spaced = (name) => name.replaceAll("_", " ");

function worth(name, value) {
  if (HIDDEN.has(name) || value === null || value === undefined || value === "") return false;
  if (Array.isArray(value)) return value.length > 0;
  return typeof value !== "object" || Object.values(value).some((inner) => worth("", inner));
}

function shownAs(name, value, detail) {
  const form = FORMS[name];
  if (form && Array.isArray(value) && value.every((one) => one !== null && typeof one === (form === repliesOf ? "string" : "object"))) return form(value, detail);
  return shownValue(value, detail);
}

function shownValue(value, detail) {
  if (typeof value === "string" && detail.files[value]) return el("figure", { class: "crop" }, pictureOf(detail.files[value], value, { loading: "lazy" }));
  if (typeof value === "string") return textOf(value);
  if (value === null || typeof value !== "object") return el("span", { class: "value", text: value === null ? "\u2013" : told(value) });
  if (!Array.isArray(value)) return pairsOf(value, detail);
  if (value.every((one) => one !== null && typeof one === "object" && !Array.isArray(one))) return tableOf(value, detail);
  if (value.every((one) => typeof one === "string")) return el("ul", { class: "plain" }, value.map((one) => el("li", {}, shownValue(one, detail))));
  return el("span", { class: "value", text: value.map((one) => (typeof one === "object" ? JSON.stringify(one) : told(one))).join(", ") });
}

/** Long texts are folded. */
function textOf(text) {
  if (text.length <= 600) return el("span", { class: "text", text });
  return el("details", { class: "long" }, el("summary", {}, el("span", { class: "text", text: `${text.slice(0, 240)} \u2026` })), el("pre", { text }));
}

function pairsOf(value, detail) {
  const given = Object.entries(value).filter(([name, inner]) => worth(name, inner));
  if (given.every(([, inner]) => inner === null || typeof inner !== "object") && given.every(([, inner]) => String(inner).length < 40)) {
    return el("span", { class: "inline" }, given.map(([name, inner]) => el("span", {}, el("i", { text: spaced(name) }), shownValue(inner, detail))));
  }
  return el("dl", { class: "pairs" }, given
    .flatMap(([name, inner]) => [el("dt", { text: spaced(name) }), el("dd", {}, shownValue(inner, detail))]));
}

/** Rows of one shape, such as questions with their expected and given answers. Empty columns are left out. */
function tableOf(rows, detail) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row).filter((name) => worth(name, row[name]))))];
  return el("div", { class: "scroll" }, el("table", { class: "seen" },
    el("thead", {}, el("tr", {}, names.map((name) => el("th", { scope: "col", text: spaced(name) })))),
    el("tbody", {}, rows.map((row) => el("tr", { class: isWrong(row) ? "wrong" : "" },
      names.map((name) => el("td", {}, worth(name, row[name]) ? shownValue(row[name], detail) : "")))))));
}

/** Questions about an image: what was expected, what was given, what it scored; the rest stands small below. */
function questionsOf(rows, detail) {
  if (!rows.every((row) => typeof row.question === "string")) return tableOf(rows, detail);
  const main = new Set(["question", "expected", "answer", "score", "right", "correct"]);
  return el("div", { class: "scroll" }, el("table", { class: "seen questions" },
    el("thead", {}, el("tr", {}, ["question", "expected", "given", "score"].map((name) => el("th", { scope: "col", text: name })))),
    el("tbody", {}, rows.map((row) => el("tr", { class: row.unanswered ? "unanswered" : isWrong(row) ? "wrong" : "" },
      el("td", {}, el("span", { class: "text", text: row.question }), el("span", { class: "note below" },
        Object.entries(row).filter(([name, value]) => !main.has(name) && worth(name, value) && value !== row.answer)
          .map(([name, value]) => el("span", {}, el("i", { text: spaced(name) }), [value].flat().map(told).join(", "))))),
      el("td", { text: told(row.expected) }),
      el("td", { text: row.answer === null || row.answer === undefined ? "no answer" : told(row.answer) }),
      el("td", { class: "number", text: row.score === null || row.score === undefined ? "\u2013" : told(row.score) }))))));
}

/** Whether a row is a claim that the image does not keep. */
function isWrong(row) {
  for (const name of ["right", "correct", "satisfied", "met", "holds"]) if (row[name] === false) return true;
  return row.score === 0 || row.score === false || ("requirement" in row && row.answer === false);
}

/** Lines of text that were read, with how sure the reader was. */
function readLines(lines) {
  return el("table", { class: "seen lines" }, el("tbody", {}, lines.map((line) => el("tr", { class: line.counted === false ? "weak" : "" },
    el("td", { class: "text", text: told(line.text) }),
    el("td", { class: "number" }, typeof line.confidence === "number"
      ? el("meter", { min: 0, max: 1, value: line.confidence, "aria-label": "confidence" }) : null),
    el("td", { class: "number", text: typeof line.confidence === "number" ? line.confidence.toFixed(2) : "" }),
    el("td", { class: "note", text: line.counted === false ? "too faint to count" : "" })))));
}

function cropsOf(crops, detail) {
  return el("div", { class: "crops" }, crops.map((crop) => el("figure", { class: "crop" },
    pictureOf(detail.files[crop.path], `crop of ${told(crop.image)}`, { loading: "lazy" }),
    el("figcaption", { text: `${told(crop.image)}  ${(crop.rectangle || []).join(", ")}` }))));
}

function repliesOf(replies) {
  return replies.map((reply) => el("details", { class: "long" }, el("summary", { text: plural(reply.length, "character") }), el("pre", { text: reply })));
}
