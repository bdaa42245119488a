// The images of an item: one or two side by side, one stage at a time.

import { watch } from "./drafts.js";
import { $, el, state } from "./page.js";
import { image } from "./requests.js";
import { listenToFrame, setView } from "./zoom.js";

export function stageButton(stage, index) {
  const key = index === 0 ? [" ", el("kbd", {}, "I")] : [];
  return el("button", { type: "button", onclick: () => setStage(index) }, stage.title, ...key);
}

export async function setStage(index) {
  const stages = state.item.stages;
  state.stage = (index + stages.length) % stages.length;
  [...$("stages").children].forEach((button, at) => button.setAttribute("aria-pressed", at === state.stage));
  const entries = stages[state.stage].images;
  $("work").classList.toggle("two", entries.length > 1);
  const panes = entries.map((entry) => pane(entry, entries.length > 1));
  const item = state.item;
  const ready = Promise.all(panes.map((view) => view.ready));
  await Promise.race([ready, new Promise((done) => setTimeout(done, 250))]);
  if (item !== state.item || stages[state.stage].images !== entries) return;
  $("panes").replaceChildren(...panes.map((view) => view.figure));
  setView();
  await ready;
  if (item !== state.item) return;
  arrangePanes();
  watch.run();
  setView();
  for (const id of state.progress.soon) image(id).catch(() => {});
  for (const stage of stages) for (const entry of stage.images) if (entry.kind === "image") image(entry.id).catch(() => {});
}

// Stacks two images vertically if that shows them larger.
export function arrangePanes() {
  const first = $("panes").querySelector("img");
  const { clientWidth: wide, clientHeight: high } = $("panes");
  const larger = (across, down) => Math.min(wide / across / first.naturalWidth, high / down / first.naturalHeight);
  $("work").classList.toggle("stacked", Boolean(first) && $("panes").children.length > 1 && larger(1, 2) > 1.15 * larger(2, 1));
}

function pane(entry, hasCaption) {
  const video = entry.kind === "video";
  const element = video ? el("video", { controls: true, loop: true, "aria-label": entry.title }) : el("img", { alt: entry.title, draggable: "false" });
  const frame = el("div", { class: "frame" });
  const showMissing = () => frame.replaceChildren(el("p", {}, "This image cannot be shown. Skip the item, or answer what you can."));
  const ready = entry.kind === "missing" ? Promise.resolve(showMissing()) : image(entry.id).then(async (url) => {
    element.src = url;
    if (!video) await element.decode();
    frame.replaceChildren(element);
  }).catch(showMissing);
  if (!video) listenToFrame(frame);
  return { ready, figure: el("figure", { class: "pane" }, ...(hasCaption ? [el("figcaption", {}, entry.title)] : []), frame) };
}
