// The image or video of a cell and its display modes.

/** Display modes for the images of a cell: ``{name, render}``, most useful first. One with ``fails`` shows why the cell failed. */
function modesOf(detail) {
  const { output, record } = detail;
  const modes = [{ name: "Output", render: () => (output?.kind === "video" ? playback(output, record) : plain(output, "output")) }];
  const base = detail.inputs[0] || detail.reference;
  if (base?.src && output?.src && output.kind !== "video") modes.push({ name: "Slider", render: () => slider(base, output, detail.inputs[0] ? "input" : "reference", "output") });
  if (base && output) modes.push({ name: "Side by side", render: () => beside([[detail.inputs[0] ? "input" : "reference", base], ["output", output],
    ...(detail.inputs[0] && detail.reference ? [["reference", detail.reference]] : [])]) });
  if (detail.masks.length && output) modes.push({ name: "Mask", render: () => masked(output, detail.masks) });
  const shared = (test) => record.graders.filter(test).length > 1;
  const maps = shared((grader) => detail.files[grader.details.difference_map]);
  const texts = shared((grader) => textBoxesOf(grader).length);
  for (const grader of record.graders) {
    const fails = Boolean(output?.src) && detail.failing.includes(grader.key);
    const map = grader.details.difference_map;
    if (typeof map === "string" && detail.files[map]) {
      const spot = output?.src ? failedWindow(grader, record) : null;
      modes.push({ name: maps ? `Difference (${grader.key})` : "Difference", fails: fails && !spot, render: () => difference(detail.files[map], grader) });
      if (spot) modes.push({ name: maps ? `Failure (${grader.key})` : "Failure", fails, render: () => marked(output, spot) });
    }
    const [boxed, places] = [textBoxesOf(grader), placesOf(grader)];
    if (boxed.length && output) modes.push({ name: texts ? `Text (${grader.key})` : "Text", fails, render: () => boxes(output, boxed, places, record) });
    else if (places.length && output) modes.push({ name: `Places (${grader.key})`, fails, render: () => boxes(output, [], places, record) });
  }
  for (const input of detail.inputs) modes.push({ name: detail.inputs.length > 1 ? `Input: ${input.role}` : "Input", render: () => plain(input, `input, ${input.role}`) });
  if (detail.reference) modes.push({ name: "Reference", render: () => plain(detail.reference, "reference") });
  return modes;
}

/** Buttons for the modes above the image; ``choose`` and ``key`` handle keys. ``look`` is what an address states, else what
 * failed is shown. ``changed`` gets the mode only if it was chosen. */
function createStage(modes, { look = {}, eager = false, changed } = {}) {
  const frame = el("div", { class: "frame", tabindex: "0", role: "group", "aria-label": "Image" });
  const zoom = createZoom(frame, { eager, changed: reportLook, ...look.position });
  let chosen = look.mode;
  const buttons = modes.map((mode, at) => el("button", { type: "button", class: "mode", "aria-pressed": "false", text: mode.name, click: () => choose(at) }));

  function show(at) {
    frame.replaceChildren(modes[at].render());
    zoom.show();
    buttons.forEach((button, other) => button.setAttribute("aria-pressed", other === at));
  }

  function choose(at) {
    if (!modes[at]) return;
    chosen = modes[at].name;
    show(at);
    reportLook();
  }

  function reportLook() {
    changed?.({ mode: chosen, position: zoom.view, divide: frame.querySelector(".divide")?.value });
  }

  const [first] = [modes.findIndex((mode) => mode.name === look.mode), modes.findIndex((mode) => mode.fails), 0].filter((at) => at >= 0);
  show(first);
  const divide = frame.querySelector(".divide");
  if (divide && look.divide !== undefined) {
    divide.value = look.divide;
    divide.dispatchEvent(new Event("input"));
  }
  frame.addEventListener("input", reportLook);
  const bar = el("div", { class: "modes" }, el("div", { role: "group", "aria-label": "Display modes", class: "choices" }, buttons), zoom.bar);
  return { node: el("div", { class: "stage" }, bar, frame), choose, key: zoom.key };
}

/** Layers that are zoomed together. */
function sheet(kind, ...layers) {
  return el("div", { class: "pane" }, el("div", { class: `sheet ${kind}` }, layers));
}

function plain(image, alt) {
  return sheet("", imageElement(image, alt));
}

const MARKS = {
  locality: [["red", "changed outside the mask"], ["blue", "changed inside it"], ["white", "edge of the mask"], ["yellow", "largest change outside"]],
  reference: [["red", "differs from the reference"]],
};

/** A difference map with a color legend. */
function difference(map, grader) {
  const legend = (MARKS[grader.type] || []).map(([color, meaning]) => el("span", {}, el("i", { class: `swatch ${color}`, "aria-hidden": "true" }), el("b", { text: color }), meaning));
  const image = plain(map, `difference map of ${grader.key}`);
  return legend.length && map.src ? el("div", { class: "with-bar" }, image, el("p", { class: "strength legend" }, legend)) : image;
}

/** By grader: the window of each score that can exceed a limit, and the size of the image that windows are of. */
const WINDOWS = {
  locality: { size: "base_size", meaning: "changed outside the mask", windows: [["content_change", "redraw_window"], ["redraw", "redraw_window"],
    ["changed_outside", "window"], ["worst_window", "window"], ["isolated_change", "isolated_window"]] },
  reference: { size: "reference_size", meaning: "differs from the reference", windows: [["worst_window", "window"], ["delta_e", "window"], ["ssim", "window"]] },
};

/** Where a grader failed: ``{area, size, meaning}`` with the window ``{left, top, width, height}`` and the image size that it is of. */
function failedWindow({ key, type, details }, { scores }) {
  const { size, meaning, windows } = WINDOWS[type] ?? { windows: [] };
  const limits = details.limits ?? {};
  const isBroken = (name) => {
    const score = scores[`${key}.${name}`];
    return typeof score === "number" && (score > limits[`max_${name}`] || score < limits[`min_${name}`]);
  };
  const isRedraw = "max_redraw" in limits; // then other changes are allowed
  const area = details[windows.find(([name, window]) => (window === "redraw_window") === isRedraw && isBroken(name))?.[1]];
  const sides = /^(\d+)x(\d+)$/.exec(details[size]);
  return area && sides ? { area, size: sides.slice(1), meaning } : null;
}

/** The output with a box around the window that failed. */
function marked(output, { area, size: [width, height], meaning }) {
  const { left, top, width: wide, height: high } = area;
  const box = outline([[left, top], [left + wide, top], [left + wide, top + high], [left, top + high]], "spot", meaning);
  return sheet("", imageElement(output, "output"), svg("svg", { class: "layer", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `${meaning} at x ${left}, y ${top}` }, box));
}

function beside(images) {
  return el("div", { class: "beside" }, images.map(([name, image]) => el("figure", {}, image?.kind === "video" ? imageElement(image, name) : el("div", { class: "pane" }, imageElement(image, name)), el("figcaption", { text: name }))));
}

/** Two overlaid images with a divider that mouse, touch or arrow keys move. */
function slider(under, over, underName, overName) {
  const above = el("div", { class: "above" }, imageElement(under, underName));
  const line = el("div", { class: "line", "aria-hidden": "true" });
  const range = el("input", { type: "range", min: 0, max: 100, step: 0.5, value: 50, class: "divide", "aria-label": `Share of the ${underName} shown over the ${overName}`,
    input: () => move(Number(range.value)) });

  function move(share) {
    above.style.clipPath = `inset(0 ${100 - share}% 0 0)`;
    line.style.left = `${share}%`;
    range.setAttribute("aria-valuetext", `${Math.round(share)} % ${underName}`);
  }

  move(50);
  return sheet("slider", imageElement(over, overName), above, line, range,
    el("span", { class: "slide-name left", text: underName }), el("span", { class: "slide-name right", text: overName }));
}

/** Masks as tints over the output, with adjustable strength. */
function masked(output, masks) {
  const tints = masks.map((mask) => el("div", { class: "above tint" }, imageElement(mask, `mask ${mask.role}`)));
  const strength = el("input", { type: "range", min: 0, max: 100, value: 60, "aria-label": "Tint strength",
    input: () => tints.forEach((tint) => { tint.style.opacity = Number(strength.value) / 100; }) });
  tints.forEach((tint) => { tint.style.opacity = 0.6; });
  return el("div", { class: "with-bar" }, sheet("", imageElement(output, "output"), tints),
    el("label", { class: "strength" }, `Tint: may change (${masks.map((mask) => mask.role).join(", ")})`, strength));
}

/** Whether a value is the corners of a text, in pixels. */
const isBox = (value) => Array.isArray(value) && value.length > 2 && value.every((corner) => Array.isArray(corner) && corner.length === 2 && corner.every(Number.isFinite));

/** Text lines that a grader read, with their corners; those of OCR if a judge read the text again. */
function textBoxesOf({ details }) {
  return [details.lines, details.ocr?.lines].map((lines) => (Array.isArray(lines) ? lines : []).filter((line) => isBox(line?.box))).find((lines) => lines.length) ?? [];
}

const DOUBTFUL = new Set(["doubtful_extra", "unsettled"]); // what is not certain enough to fail

/** The items of a grader's details that are about a place, such as a missing line with what was read instead. */
function placesOf({ details }) {
  const tables = Object.entries(details).filter(([name, value]) => name !== "lines" && isTable(value));
  return tables.flatMap(([name, rows]) => rows.flatMap((row) => [row, ...(isTable(row?.parts) ? row.parts : [])]).filter((row) => isBox(row?.box))
    .map((row) => ({ box: row.box, kind: DOUBTFUL.has(name) ? "spot weak" : "spot", title: `${spaced(name)}: ${row.line ?? row.text ?? row.content ?? row.color}` })));
}

/** A box around a place; with a light edge, so that it can be seen on any color. */
function outline(box, kind, title) {
  const points = box.map((corner) => corner.join(",")).join(" ");
  return svg("g", {}, svg("polygon", { points, class: "edge" }), svg("polygon", { points, class: kind }, title ? svg("title", { text: title }) : null));
}

function boxes(output, lines, places, record) {
  const marks = [...lines.map((line) => outline(line.box, line.counted === false ? "read weak" : "read", `${line.text}  (${formatValue(line.confidence)})`)),
    ...places.map(({ box, kind, title }) => outline(box, kind, title))];
  const layer = svg("svg", { class: "layer", viewBox: `0 0 ${record.width || 1} ${record.height || 1}`, preserveAspectRatio: "none", role: "img", "aria-label": lines.length ? `${lines.length} text lines` : places.map(({ title }) => title).join("; ") }, marks);
  return sheet("", imageElement(output, "output"), layer);
}

const MOST_MAGNIFIED = 4;
const PLACE = { width: 180, height: 100 };

/** A place of the output, cut out with a margin and turned so that its text is upright. */
function placeOf(box, { output, record }) {
  if (!record.width || output?.kind === "video" || !IMAGE_SOURCE.test(output?.src ?? "")) return el("span", { class: "note", text: "no image" });
  const [[x0, y0], [x1, y1]] = box;
  const angle = Math.atan2(y1 - y0, x1 - x0);
  const turned = box.map(([x, y]) => [x * Math.cos(angle) + y * Math.sin(angle), y * Math.cos(angle) - x * Math.sin(angle)]);
  const [left, top] = [0, 1].map((axis) => Math.min(...turned.map((corner) => corner[axis])));
  const [wide, high] = [0, 1].map((axis) => Math.max(1, Math.max(...turned.map((corner) => corner[axis])) - [left, top][axis]));
  const margin = Math.min(wide, high) / 2;
  const size = [wide + 2 * margin, high + 2 * margin];
  const scale = Math.min(MOST_MAGNIFIED, PLACE.width / size[0], PLACE.height / size[1]);
  const image = svg("image", { href: output.src, width: record.width, height: record.height, preserveAspectRatio: "none" });
  const view = svg("svg", { class: "place", role: "img", "aria-label": "place in the output", width: size[0] * scale, height: size[1] * scale,
    viewBox: `${left - margin} ${top - margin} ${size.join(" ")}` }, svg("g", { transform: `rotate(${(-angle * 180) / Math.PI})` }, image, outline(box, "spot")));
  image.addEventListener("error", () => view.replaceWith(el("span", { class: "note", text: "the file is missing" })));
  return view;
}
