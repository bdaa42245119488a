// The image or video of a cell and its display modes.

/** Display modes for the images of a cell: ``{name, render}``, most useful first. */
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
    const map = grader.details.difference_map;
    if (typeof map === "string" && detail.files[map]) {
      modes.push({ name: maps ? `Difference (${grader.key})` : "Difference", render: () => difference(detail.files[map], grader) });
      const spot = failedWindow(grader, record);
      if (spot && output?.src) modes.push({ name: maps ? `Failure (${grader.key})` : "Failure", render: () => marked(output, spot) });
    }
    const boxed = textBoxesOf(grader);
    if (boxed.length && output) modes.push({ name: texts ? `Text (${grader.key})` : "Text", render: () => boxes(output, boxed, placesOf(grader), record) });
  }
  for (const input of detail.inputs) modes.push({ name: detail.inputs.length > 1 ? `Input: ${input.role}` : "Input", render: () => plain(input, `input, ${input.role}`) });
  if (detail.reference) modes.push({ name: "Reference", render: () => plain(detail.reference, "reference") });
  return modes;
}

/** Buttons for the modes above the image; ``choose`` and ``key`` handle keys. ``look`` is what an address states. */
function createStage(modes, { look = {}, eager = false, changed } = {}) {
  const frame = el("div", { class: "frame", tabindex: "0", role: "group", "aria-label": "Image" });
  const zoom = createZoom(frame, { eager, changed: reportLook, ...look.position });
  let chosen = 0;
  const buttons = modes.map((mode, at) => el("button", { type: "button", class: "mode", "aria-pressed": "false", text: mode.name, click: () => choose(at) }));

  function show(at) {
    chosen = at;
    frame.replaceChildren(modes[at].render());
    zoom.show();
    buttons.forEach((button, other) => button.setAttribute("aria-pressed", other === at));
  }

  function choose(at) {
    if (!modes[at]) return;
    show(at);
    reportLook();
  }

  function reportLook() {
    changed?.({ mode: modes[chosen].name, position: zoom.view, divide: frame.querySelector(".divide")?.value });
  }

  show(Math.max(0, modes.findIndex((mode) => mode.name === look.mode)));
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

/** Where a locality grader failed outside the mask: ``{left, top, width, height}`` and the image size that they are of. */
function failedWindow({ key, type, details }, { scores }) {
  if (type !== "locality" || !details.limits) return null;
  const exceeds = (name, limit) => typeof scores[`${key}.${name}`] === "number" && scores[`${key}.${name}`] > details.limits[limit];
  const spread = exceeds("changed_outside", "max_changed_outside") || exceeds("worst_window", "max_worst_window");
  const area = spread ? details.window : exceeds("isolated_change", "max_isolated_change") ? details.isolated_window : null;
  const size = /^(\d+)x(\d+)$/.exec(details.base_size);
  return area && size ? { area, size: [size[1], size[2]] } : null;
}

/** The output with a box around the window that failed. */
function marked(output, { area, size: [width, height] }) {
  const box = svg("rect", { x: area.left, y: area.top, width: area.width, height: area.height, class: "spot" },
    svg("title", { text: "changed outside the mask" }));
  return sheet("", imageElement(output, "output"), svg("svg", { class: "layer", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `changed outside the mask at x ${area.left}, y ${area.top}` }, box));
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

/** The items of a grader's details that are about a place, such as a missing line with what was read instead. */
function placesOf({ details }) {
  const tables = Object.entries(details).filter(([name, value]) => name !== "lines" && isTable(value));
  return tables.flatMap(([name, rows]) => rows.flatMap((row) => [row, ...(isTable(row?.parts) ? row.parts : [])]).filter((row) => isBox(row?.box))
    .map((row) => ({ box: row.box, title: `${spaced(name)}: ${row.line ?? row.text}` })));
}

function outline(box, kind, title) {
  return svg("polygon", { points: box.map((corner) => corner.join(",")).join(" "), class: kind }, title ? svg("title", { text: title }) : null);
}

function boxes(output, lines, places, record) {
  const marks = [...lines.map((line) => outline(line.box, line.counted === false ? "read weak" : "read", `${line.text}  (${formatValue(line.confidence)})`)),
    ...places.map(({ box, title }) => outline(box, "spot", title))];
  const layer = svg("svg", { class: "layer", viewBox: `0 0 ${record.width || 1} ${record.height || 1}`, preserveAspectRatio: "none", role: "img", "aria-label": `${lines.length} text lines` }, marks);
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
