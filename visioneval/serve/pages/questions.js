// The questions about an item: which is active, which is open, and their answers.

import { choiceText, createAsk, read } from "./asks.js";
import { saveDraft } from "./drafts.js";
import { $, state } from "./page.js";

// The field of a question, with its event handlers.
export function askBox(ask, index, value, letters) {
  const field = createAsk(ask, index, value, letters);
  field.box.addEventListener("focusin", () => setActive(index));
  field.box.addEventListener("input", (event) => {
    saveDraft(answers());
    $("trouble").hidden = true;
    if (event.target.type === "radio") setActive(nextOpen(index));
  });
  return field;
}

export const answers = () => Object.fromEntries(state.asks.map((ask) => [ask.key, read(ask)]));
const isOpen = (ask) => ask.required && read(ask) === null;

export function firstOpen(from) {
  const after = state.asks.findIndex((ask, at) => at >= from && isOpen(ask));
  return after >= 0 ? after : state.asks.findIndex(isOpen);
}

function nextOpen(index) {
  const next = firstOpen(index + 1);
  return next >= 0 ? next : Math.min(index + 1, state.asks.length - 1);
}

export function setActive(index, seen = true) {
  state.active = index;
  state.asks.forEach((ask, at) => ask.box.classList.toggle("active", at === index));
  if (seen) state.asks[index]?.box.scrollIntoView({ block: "nearest" });
}

// A digit begins a number in the field of the active question. The browser writes it.
export function startNumber(key) {
  const [field] = state.asks[state.active]?.inputs ?? [];
  if (field?.type !== "number" || !/^[\d.]$/.test(key)) return false;
  field.focus();
  return true;
}

export function pressChoice(key) {
  const order = [state.active, firstOpen(0), ...state.asks.keys()];
  const at = order.find((index) => state.asks[index]?.keys.has(key));
  if (at === undefined) return false;
  const ask = state.asks[at];
  const input = ask.keys.get(key);
  input.checked = ask.type === "tags" ? !input.checked : true;
  const off = input.checked ? "" : "not ";
  $("status").textContent = `${ask.ask} ${off}${choiceText(ask, ask.choices[ask.inputs.indexOf(input)])}`;
  if (ask.type === "tags") setActive(at);
  input.dispatchEvent(new Event("input", { bubbles: true }));
  return true;
}
