// Batches and workflows that are children of none, newest first.

import { get, page } from "../api.js";
import { h, show } from "../dom.js";
import { number, short, time } from "../format.js";
import { reread } from "../live.js";
import { batchLink, batchState, into, memberBar, table } from "../ui.js";

const STATES = ["", "open", "running", "doomed", "succeeded", "dead", "cancelled", "abandoned"];

export default async function batches({ root, params, signal, go }) {
  const [state, cursor] = [params.get("state") ?? "", params.get("cursor")];
  const list = h("div", null, "Reading …");
  const tabs = h("div", { class: "tabs" }, STATES.map((name) =>
    h("a", { href: page("batches", { state: name }), "aria-current": name === state ? "page" : null }, name || "all states")));
  show(root, h("h1", null, "Batches and workflows"), tabs, list);
  const read = () => into(list, () => get("batches", { state, cursor }, signal), (answer) => [
    table(caption(answer, state), [
      { head: "Batch", cell: (row) => batchLink(row.id, short(row.id, 60)) }, { head: "State", cell: (row) => batchState(row.state) },
      { head: "Members", cell: (row) => memberBar(row) }, { head: "Succeeded", n: true, cell: (row) => `${number(row.succeeded)} of ${number(row.total)}` },
      { head: "Dead", n: true, cell: (row) => h("span", { class: row.dead + row.removed ? "bad" : null }, number(row.dead + row.removed)) },
      { head: "Created", cell: (row) => time(row.created) }, { head: "Last change", cell: (row) => time(row.touched) },
      { head: "For", cell: (row) => short(row.description ?? "–", 120) },
    ], answer.items),
    answer.next && h("button", { type: "button", "data-next": true, onclick: () => go(page("batches", { state, cursor: answer.next })) }, state ? "Search on" : "Older"),
  ]);
  await read();
  reread(list, read, signal);
}

function caption(answer, state) {
  if (answer.items.length) return "Newest first; children stand with their parents";
  if (answer.next) return `None of a thousand batches is ${state}; there are older ones`;
  return state ? `No batch is ${state}` : "There are no batches";
}
