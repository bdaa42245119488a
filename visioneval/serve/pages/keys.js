// The keys of the label page.

import { $, el, state } from "./page.js";
import { setStage } from "./panes.js";
import { pressChoice, setActive, startNumber } from "./questions.js";
import { fitOrActual, zoomBy } from "./zoom.js";

const KEYS = [
  ["Y N", "yes, no"], ["0 \u2013 9", "score, or choice, of the active question"], ["A T B", "for a pair: A, tie, B"],
  ["letters", "tags, as shown"], ["/", "write text; Esc leaves the field"], ["\u2191 \u2193", "previous, next question"],
  ["Enter", "next"], ["S", "skip"], ["U", "undo"], ["I", "next image: input, both, mask"], ["Z", "fit or actual size"], ["+ \u2212", "zoom; drag to move"],
];

const COMMANDS_BY_KEY = {
  z: () => fitOrActual(), "?": () => $("keys").showModal(),
  i: () => setStage(state.stage + 1), "+": () => zoomBy(1.4), "=": () => zoomBy(1.4), "-": () => zoomBy(1 / 1.4),
  "/": () => state.asks.find((ask) => ask.type === "text")?.inputs[0].focus(),
  arrowup: () => setActive(Math.max(0, state.active - 1)),
  arrowdown: () => setActive(Math.min(state.asks.length - 1, state.active + 1)),
};

// What keys do to the item itself, which the page knows: submit, skip and undo.
let actions = {};

export function listenToKeys(ofItem) {
  actions = ofItem;
  Object.assign(COMMANDS_BY_KEY, { u: actions.undo, s: actions.skip });
  document.addEventListener("keydown", onKey);
  $("key-list").replaceChildren(...KEYS.flatMap(([key, description]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, description)]));
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || $("keys").open) return;
  if (!$("end").hidden && "uU?".includes(event.key)) COMMANDS_BY_KEY[event.key.toLowerCase()]();
  if ($("work").hidden) return;
  if (state.busy) {
    if (!event.repeat) state.typed.push(event.key);
    event.preventDefault();
    return;
  }
  const writing = event.target.matches("textarea, input[type=number]");
  if (event.key === "Escape" && writing) event.target.blur();
  else if (event.key === "Enter" && !event.shiftKey && !event.target.matches("button")) actions.submit();
  else if (writing || !(runKey(event.key.toLowerCase(), event.repeat))) return;
  event.preventDefault();
}

const handleKey = (key) => (key === "Enter" ? actions.submit() : runKey(key.toLowerCase(), false));

function runKey(key, repeated) {
  if (startNumber(key)) return false;
  if (pressChoice(key)) return true;
  const command = COMMANDS_BY_KEY[key];
  if (command && !(repeated && "us".includes(key))) command();
  return Boolean(command);
}

// Keys pressed while a request was running apply to the new item.
export function replayKeys() {
  while (state.typed.length && !state.busy && !$("work").hidden) handleKey(state.typed.shift());
}
