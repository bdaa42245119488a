// The score of each case in A and in B, as points of a plot: on the line nothing changed.

const PLOT = { side: 320, left: 48, bottom: 34, top: 10 };
const VERDICT_SCORES = { PASS: 1, FAIL: 0 };

/** The mean of a metric over the samples of each case that have it on both sides. */
function meansByCase(list, name) {
  const sums = new Map();
  for (const pair of list) {
    const scored = name === "pass_rate" ? pair.verdicts.map((verdict) => VERDICT_SCORES[verdict]) : pair.scores.find(([metric]) => metric === name)?.slice(1);
    const scores = (scored || []).map((score) => (score === null || score === undefined ? NaN : Number(score)));
    if (scores.length !== 2 || !scores.every(Number.isFinite)) continue;
    const sum = sums.get(pair.case) || { case: pair.case, pairs: 0, a: 0, b: 0 };
    sums.set(pair.case, { ...sum, pairs: sum.pairs + 1, a: sum.a + scores[0], b: sum.b + scores[1] });
  }
  return [...sums.values()].map(({ pairs: count, a, b, ...rest }) => ({ ...rest, a: a / count, b: b / count }));
}

function casePlot(points, { range, better, type }) {
  const { side, left, bottom, top } = PLOT;
  const values = points.flatMap(({ a, b }) => [a, b]);
  const low = range?.[0] ?? (type === "bool" ? 0 : Math.min(...values));
  const high = range?.[1] ?? (type === "bool" ? 1 : Math.max(...values));
  const reach = high > low ? high - low : 1;
  const x = (value) => left + ((value - low) / reach) * side;
  const y = (value) => top + side - ((value - low) / reach) * side;
  const text = (content, attributes) => svg("text", { class: "tick", ...attributes }, content);
  const sides = { higher: ["B is better", "A is better"], lower: ["A is better", "B is better"] }[better] || ["higher in B", "higher in A"];
  return svg("svg", { class: "plot cases", viewBox: `0 0 ${left + side + 16} ${top + side + bottom}`, width: left + side + 16, height: top + side + bottom, role: "img",
    "aria-label": `${plural(points.length, "case")}: ${points.filter(({ a, b }) => b > a).length} higher in B, ${points.filter(({ a, b }) => b < a).length} lower in B` },
  svg("rect", { class: "area", x: left, y: top, width: side, height: side }),
  svg("line", { class: "zero", x1: left, y1: top + side, x2: left + side, y2: top }),
  text(sides[0], { x: left + 8, y: top + 16 }), text(sides[1], { x: left + side - 8, y: top + side - 8, "text-anchor": "end" }),
  text(formatValue(low), { x: left, y: top + side + 14 }), text(`A: ${formatValue(high)}`, { x: left + side, y: top + side + 14, "text-anchor": "end" }),
  text(formatValue(low), { x: left - 6, y: top + side, "text-anchor": "end" }), text(`B: ${formatValue(high)}`, { x: left - 6, y: top + 10, "text-anchor": "end" }),
  points.map(({ case: name, a, b }) => svg("circle", { class: "case", cx: x(a), cy: y(b), r: 5, click: () => { location.hash = `#pairs?${new URLSearchParams({ change: "", q: name })}`; } },
    svg("title", {}, `${name}: ${formatValue(a)} in A, ${formatValue(b)} in B`))));
}

/** The section with the plot and the choice of its metric; nothing if no case has a score on both sides. */
function casesSection({ list, metrics }) {
  const names = Object.keys(metrics).filter((name) => meansByCase(list, name).length);
  if (!names.length) return [];
  const area = el("div", {});
  const show = (name) => {
    const points = meansByCase(list, name);
    const moved = points.filter(({ a, b }) => a !== b).sort((one, two) => Math.abs(two.b - two.a) - Math.abs(one.b - one.a)).slice(0, 8);
    area.replaceChildren(el("div", { class: "by-case" }, casePlot(points, metrics[name]), moved.length ? el("div", {}, el("h3", { text: "Largest changes" }), el("table", {},
      el("thead", {}, el("tr", {}, ["case", "A", "B"].map((text, at) => el("th", { scope: "col", class: at ? "number" : "", text })))),
      el("tbody", {}, moved.map((point) => el("tr", {}, el("th", { scope: "row", text: point.case }), el("td", { class: "number", text: formatValue(point.a) }), el("td", { class: "number", text: formatValue(point.b) })))))) : null));
  };
  show(names[0]);
  return [el("h2", { text: "A and B by case" }), el("p", { class: "about" }, "Each point is a case, at the mean of its samples in A and in B. ",
    el("select", { "aria-label": "Metric", change: (event) => show(event.target.value) }, names.map((name) => el("option", { value: name, text: name })))), area];
}
