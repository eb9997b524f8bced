// What the pages are made of.

import { h, s, show } from "./dom.js";
import { ApiError, page } from "./api.js";
import { number, safe } from "./format.js";

export const STATES = ["active", "pending", "scheduled", "retry", "archived", "completed", "aggregating"];

export function say(message, bad = false) {
  const toast = h("div", { class: bad ? "toast bad" : "toast" }, safe(message));
  document.getElementById("said").append(toast);
  setTimeout(() => toast.remove(), bad ? 12000 : 5000);
}

/** What went wrong, as a paragraph in the place of what should be there. */
export function failure(error) {
  return h("p", { class: "bad" }, error instanceof ApiError ? safe(error.message) : `This page has a fault: ${error.message}`);
}

/** A table. Columns are {head, n, cell(row)}; on small screens each row becomes a card. */
export function table(caption, columns, rows, props) {
  const head = h("tr", null, columns.map((column) => h("th", { scope: "col", class: column.n ? "n" : null }, column.head)));
  const body = h("tbody", null, rows.map((row) => tr(columns, row, props?.row?.(row))));
  return h("div", { class: "scroll" },
    h("table", { class: "cards-small" }, h("caption", null, caption), h("thead", null, head), body));
}

export function tr(columns, row, props) {
  const cells = columns.map((column) => h("td", { class: column.n ? "n" : null, "data-label": column.head }, column.cell(row)));
  return h("tr", props, cells);
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

/** The shares of the states of a queue. The same stands in the columns beside it. */
export function stateBar(row, width = 120) {
  const total = STATES.reduce((sum, state) => sum + (row[state] ?? 0), 0);
  const told = STATES.filter((state) => row[state] > 0).map((state) => `${number(row[state])} ${state}`).join(", ") || "empty";
  const bar = s("svg", { width, height: 12, role: "img", "aria-label": told }, s("title", null, told));
  let x = 0;
  for (const state of STATES) {
    const part = total ? (row[state] / total) * width : 0;
    if (part > 0) bar.append(s("rect", { x, y: 0, width: Math.max(part, 1), height: 12, class: state }));
    x += part;
  }
  return bar;
}

export function spark(values, width = 90, height = 20) {
  const most = Math.max(...values, 1e-9);
  const step = width / Math.max(values.length - 1, 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(height - 1 - (value / most) * (height - 2)).toFixed(1)}`);
  return s("svg", { width, height, "aria-hidden": "true" }, s("polyline", { points: points.join(" "), class: "spark" }));
}

/** Asks whether something is meant. Many tasks want their number typed. */
export function confirm({ question, subject, consequence, word, type }) {
  return new Promise((resolve) => {
    const typed = type ? h("input", { autocomplete: "off", "aria-label": `Type ${type} to go on` }) : null;
    const yes = h("button", { class: "bad", value: "yes", disabled: Boolean(type) }, word);
    typed?.addEventListener("input", () => {
      yes.disabled = typed.value.trim() !== String(type);
    });
    const dialog = h("dialog", { "aria-labelledby": "question" },
      h("form", { method: "dialog" },
        h("h2", { id: "question" }, question),
        h("p", { class: "mono" }, safe(subject)),
        h("p", null, consequence),
        typed && h("p", null, `Type ${type} to go on: `, typed),
        h("div", { class: "bar" }, yes, h("button", { value: "no" }, "No"))));
    const before = document.activeElement;
    dialog.addEventListener("close", () => {
      const isMeant = dialog.returnValue === "yes";
      dialog.remove();
      before?.focus?.();
      resolve(isMeant);
    });
    document.body.append(dialog);
    dialog.showModal();
    (typed ?? dialog.querySelector("button[value=no]")).focus();
  });
}

/** The line of the table of actions, if this one may do it. */
export const allowed = (me, name) => me.actions.find((action) => action.name === name);

/** A button that does something after a question; nothing where it is not allowed. */
export function act(me, name, { what, subject, work, done, word, quiet }) {
  const action = allowed(me, name);
  if (!action) return null;
  const go = async () => {
    const meant = quiet || (await confirm({
      question: `${action.word} ${what}?`, subject, consequence: action.consequence, word: action.word,
    }));
    if (!meant) return;
    try {
      say((await work()) ?? `${what}: ${action.past}`);
      await done?.();
    } catch (error) {
      say(error.message, true);
    }
  };
  const risky = /delete|remove/.test(name);
  return h("button", { type: "button", class: risky ? "bad" : null, onclick: go, "data-action": name }, word ?? action.word);
}

export const queueLink = (queue) => h("a", { href: page("queue", { queue }) }, safe(queue));
export const taskLink = (queue, id, label) => h("a", { href: page("task", { queue, id }), class: "mono" }, safe(label ?? id));

/** Reads something and shows it, or why it cannot be read. */
export async function into(element, read, render) {
  try {
    show(element, render(await read()));
    return true;
  } catch (error) {
    if (error.name === "AbortError") return false;
    show(element, failure(error));
    return false;
  }
}
