// What the pages are made of.

import { h, s, show } from "./dom.js";
import { ApiError, page } from "./api.js";
import { number, safe } from "./format.js";

export const STATES = ["active", "pending", "scheduled", "retry", "archived", "completed", "aggregating"];

/** Says something for some seconds; `button` is {word, work}: what can be done about it. */
export function say(message, bad = false, button = null) {
  const toast = h("div", { class: bad ? "toast bad" : "toast" }, safe(message));
  const act = () => {
    toast.remove();
    button.work();
  };
  if (button) toast.append(" ", h("button", { type: "button", onclick: act, "data-said": button.word }, button.word));
  document.getElementById("said").append(toast);
  setTimeout(() => toast.remove(), button ? 30000 : bad ? 12000 : 5000);
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

/** Shares as a bar, of [name, count, class]. The same stands in words beside it. */
export function bar(parts, width = 120) {
  const total = parts.reduce((sum, [, count]) => sum + count, 0);
  const told = parts.filter(([, count]) => count > 0).map(([name, count]) => `${number(count)} ${name}`).join(", ") || "empty";
  const drawn = s("svg", { width, height: 12, role: "img", "aria-label": told }, s("title", null, told));
  let x = 0;
  for (const [, count, kind] of parts) {
    const part = total ? (count / total) * width : 0;
    if (part > 0) drawn.append(s("rect", { x, y: 0, width: Math.max(part, 1), height: 12, class: kind }));
    x += part;
  }
  return drawn;
}

/** The shares of the states of a queue. */
export const stateBar = (row, width) => bar(STATES.map((state) => [state, row[state] ?? 0, state]), width);

/** The states of members of a batch, and the states of tasks whose colour each has. */
export const MEMBERS = [
  ["succeeded", "completed"], ["sent", "pending"], ["failing", "retry"], ["waiting", "scheduled"], ["dead", "archived"], ["removed", "archived"],
  ["doomed", "archived"], ["cancelled", "off"], ["skipped", "off"],
];
export const memberBar = (batch, width) => bar(MEMBERS.map(([state, kind]) => [state, batch[state] ?? 0, kind]), width);
export const batchState = (state) => h("span", { class: /doomed|dead|abandoned/.test(state) ? "bad" : state === "succeeded" ? "good" : null }, state);

export function spark(values, width = 90, height = 20) {
  const most = Math.max(...values, 1e-9);
  const step = width / Math.max(values.length - 1, 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(height - 1 - (value / most) * (height - 2)).toFixed(1)}`);
  return s("svg", { width, height, "aria-hidden": "true" }, s("polyline", { points: points.join(" "), class: "spark" }));
}

/** Asks whether something is meant. Many tasks want their number typed. */
export function confirm({ question, subject, consequence, word, type, more }) {
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
        more && h("p", null, more),
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

/** A button that does something after a question; nothing where it is not allowed. `before` counts: {told, count}, or null where nothing is to be done. */
export function act(me, name, { what, subject, work, done, word, quiet, before }) {
  const action = allowed(me, name);
  if (!action) return null;
  const go = async () => {
    try {
      const known = before ? await before() : {};
      if (known === null) return;
      const meant = quiet || (await confirm({
        question: `${word ?? action.word} ${what}?`, subject, consequence: `${known.told ?? ""} ${action.consequence}`, word: word ?? action.word,
        type: known.count > 1000 ? known.count : null,
      }));
      if (!meant) return;
      const outcome = await work();
      // An empty text: it has said so itself.
      if (outcome !== "") say(outcome ?? `${what}: ${action.past}`);
      await done?.();
    } catch (error) {
      say(error.message, true);
    }
  };
  const risky = /delete|remove|batch.cancel/.test(name);
  return h("button", { type: "button", class: risky ? "bad" : null, onclick: go, "data-action": name }, word ?? action.word);
}

export const queueLink = (queue) => h("a", { href: page("queue", { queue }) }, safe(queue));
export const batchLink = (id, label) => h("a", { href: page("batch", { id }), class: "mono" }, safe(label ?? id));
export const taskLink = (queue, id, label) => h("a", { href: page("task", { queue, id }), class: "mono" }, safe(label ?? id));

/** What is read for an element, the last of it. */
const reads = new WeakMap();

/** Reads something and shows it, or why it cannot be read; not if something else was asked for since, whose answer has come before. */
export async function into(element, read, render) {
  const asked = {};
  reads.set(element, asked);
  const draw = (what) => reads.get(element) === asked && show(element, what());
  try {
    const answer = await read();
    draw(() => render(answer));
    return true;
  } catch (error) {
    if (error.name === "AbortError") return false;
    draw(() => failure(error));
    return false;
  }
}
