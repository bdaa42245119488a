// A video beside its measures over time: charts with a cursor that follows the playback, and that seek where they are clicked.

const CHART = { width: 600, height: 44 };
const SERIES = { luminance: "luminance", change: "change to the previous frame", required_text: "required text read" };

/** The video, with a chart for each series that a grader measured. */
function playback(output, record) {
  const player = imageElement(output, "output");
  const charts = chartsOf(record);
  const sheet = el("div", { class: "sheet" }, player);
  if (!charts.length || player.tagName !== "VIDEO") return el("div", { class: "playback" }, sheet);
  const end = endOf(record, charts);
  const cursors = [];
  const nodes = charts.map((chart) => chartNode(chart, end, seek, cursors));
  const moment = el("span", { class: "moment", text: timeText(0) });

  function seek(share) {
    player.currentTime = share * (Number.isFinite(player.duration) ? player.duration : end);
    follow();
  }

  function follow() {
    const share = Math.min(1, player.currentTime / (Number.isFinite(player.duration) ? player.duration : end));
    for (const cursor of cursors) cursor.setAttribute("transform", `translate(${share * CHART.width} 0)`);
    moment.textContent = timeText(player.currentTime);
    if (!player.paused && !player.ended && player.isConnected) requestAnimationFrame(follow);
  }

  for (const name of ["play", "seeked", "timeupdate"]) player.addEventListener(name, follow);
  return el("div", { class: "playback" }, sheet,
    el("div", { class: "charts" }, nodes, el("p", { class: "note axis-note" }, moment, el("span", { text: `of ${timeText(end)}; click a chart to seek` }))));
}

/** The series of all graders of a cell, with the stretches that a grader reports. */
function chartsOf(record) {
  const charts = [];
  for (const grader of record.graders) {
    const series = grader.details.over_time;
    if (!series || !isSeries(series.seconds)) continue;
    const stretches = ["frozen", "black"].flatMap((kind) => (Array.isArray(grader.details[kind]) ? grader.details[kind] : [])
      .filter((stretch) => isSeries(stretch) && stretch.length === 2).map(([from, to]) => ({ kind, from, to })));
    for (const [name, values] of Object.entries(series)) {
      if (name === "seconds" || !isSeries(values) || values.length !== series.seconds.length) continue;
      charts.push({ grader: grader.key, name: SERIES[name] || spaced(name), seconds: series.seconds, values, stretches, holds: name === "required_text" });
    }
  }
  return charts;
}

const isSeries = (values) => Array.isArray(values) && values.length > 0 && values.every(Number.isFinite);

/** The duration that a grader measured, or the end of the last point. */
function endOf(record, charts) {
  const measured = charts.map((chart) => record.scores[`${chart.grader}.duration_s`]).find(Number.isFinite);
  return measured || Math.max(...charts.map(({ seconds }) => seconds.at(-1) + (seconds.at(-1) - seconds[0]) / Math.max(1, seconds.length - 1))) || 1;
}

function chartNode(chart, end, seek, cursors) {
  const { width, height } = CHART;
  const most = Math.max(...chart.values);
  const top = chart.name === SERIES.change ? most || 1 : 1;
  const x = (second) => Math.min(1, Math.max(0, second / end)) * width;
  const y = (value) => height - 1 - Math.min(1, Math.max(0, value / top)) * (height - 2);
  const cursor = svg("line", { class: "cursor", x1: 0, x2: 0, y1: 0, y2: height });
  cursors.push(cursor);
  const label = `${chart.grader}: ${chart.name}, from ${formatValue(Math.min(...chart.values))} to ${formatValue(most)}`;
  const drawing = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    chart.stretches.map(({ kind, from, to }) => svg("rect", { class: kind, x: x(from), y: 0, width: Math.max(1, x(to) - x(from)), height },
      svg("title", { text: `${kind} from ${timeText(from)} to ${timeText(to)}` }))),
    svg("polyline", { class: "series", points: pointsOf(chart, end).map(([second, value]) => `${x(second).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }),
    cursor);
  const seekAt = (event) => {
    const { left, width: across } = drawing.getBoundingClientRect();
    seek(Math.min(1, Math.max(0, (event.clientX - left) / across)));
  };
  drawing.addEventListener("pointerdown", (event) => {
    drawing.setPointerCapture(event.pointerId);
    seekAt(event);
  });
  drawing.addEventListener("pointermove", (event) => event.buttons & 1 && seekAt(event));
  const kinds = [...new Set(chart.stretches.map(({ kind }) => kind))];
  return el("figure", {}, el("figcaption", {}, el("b", { text: chart.name }), el("span", { text: chart.grader }),
    kinds.map((kind) => el("span", {}, el("i", { class: `swatch ${kind}`, "aria-hidden": "true" }), kind)),
    el("span", { class: "extent", text: `0 to ${formatValue(top)}` })), drawing);
}

/** The points of a line. A sampled frame stands for the time around it, so its value holds until halfway to the next. */
function pointsOf({ seconds, values, holds }, end) {
  if (!holds) return [...seconds.map((second, at) => [second, values[at]]), [end, values.at(-1)]];
  return seconds.flatMap((second, at) => [
    [at ? (seconds[at - 1] + second) / 2 : 0, values[at]],
    [at + 1 < seconds.length ? (second + seconds[at + 1]) / 2 : end, values[at]],
  ]);
}

const timeText = (seconds) => `${seconds.toFixed(2)} s`;
