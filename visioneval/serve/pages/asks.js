// Questions as form fields, and reading of their values.

import { el } from "./page.js";

const MOST_BUTTONS = 11;

export function createAsk(ask, index, value, letters) {
  const choices = ask.type === "yes_no" ? [true, false] : ask.choices;
  const field = { ...ask, choices, keys: new Map(), inputs: [] };
  const optional = ask.required ? [] : [" ", el("small", {}, ask.type === "tags" ? "any number" : "optional")];
  const body = ask.type === "text" ? textBody(field, value) : choices.length > MOST_BUTTONS && ask.type === "scale" ? numberBody(field, value) : choiceBody(field, index, value, letters);
  const ends = ask.ends.length ? [el("p", { class: "ends", id: `ends${index}` }, ...ask.ends.map((text) => el("span", {}, text)))] : [];
  field.box = el("fieldset", { class: "ask", "aria-describedby": ends.length > 0 && `ends${index}` }, el("legend", {}, ask.ask, ...optional), body, ...ends);
  return field;
}

export function choiceText(ask, choice) {
  if (ask.type === "yes_no") return choice ? "Yes" : "No";
  if (ask.type === "pair") return choice === "tie" ? "Tie" : choice.toUpperCase();
  return ["tags", "one_of"].includes(ask.type) ? choice.replaceAll("_", " ") : String(choice);
}

function keyOf(ask, choice, at, letters) {
  if (ask.type === "yes_no") return choice ? "y" : "n";
  if (ask.type === "pair") return choice[0];
  if (ask.type === "tags") {
    const free = [...choice.toLowerCase(), ..."abcdefghjklmopqrtvwx"].find((letter) => /[a-z]/.test(letter) && !letters.has(letter));
    if (free) letters.add(free);
    return free ?? "";
  }
  if (ask.type === "scale") return /^\d$/.test(choice) ? String(choice) : "";  // a key is no other number than its own
  return at < 9 ? String(at + 1) : "";
}

function choiceBody(ask, index, value, letters) {
  const many = ask.type === "tags";
  const chosen = many ? value ?? [] : value === undefined ? [] : [value];
  const order = ask.type === "pair" ? ["a", "tie", "b"] : ask.choices;
  ask.choices = order;
  const boxes = order.map((choice, at) => {
    const key = keyOf(ask, choice, at, letters);
    const input = el("input", { type: many ? "checkbox" : "radio", name: `ask${index}`, value: at, checked: chosen.includes(choice) });
    ask.inputs.push(input);
    if (key) ask.keys.set(key, input);
    const text = choiceText(ask, choice);
    const hint = key && key !== text.toLowerCase() ? [el("kbd", { "aria-hidden": "true" }, key.toUpperCase())] : [];
    return el("label", { class: "choice" }, input, el("span", {}, text), ...hint);
  });
  return el("div", { class: ["yes_no", "scale", "pair"].includes(ask.type) ? "choices even" : "choices" }, ...boxes);
}

function textBody(ask, value) {
  const area = el("textarea", { rows: 2, maxlength: 10000, "aria-label": ask.ask, placeholder: "/ to write" });
  area.value = value ?? "";
  ask.inputs.push(area);
  return area;
}

function numberBody(ask, value) {
  const [low, high] = [ask.choices[0], ask.choices.at(-1)];
  const input = el("input", { type: "number", min: low, max: high, step: ask.step, "aria-label": ask.ask, placeholder: `${low} to ${high}` });
  input.value = value ?? "";
  ask.inputs.push(input);
  return input;
}

export function read(ask) {
  const [first] = ask.inputs;
  if (ask.type === "text") return first.value.trim() || null;
  if (first.type === "number") return first.value === "" || !first.validity.valid ? null : Number(first.value);
  const chosen = ask.choices.filter((_, at) => ask.inputs[at].checked);
  return ask.type === "tags" ? chosen : chosen[0] ?? null;
}
