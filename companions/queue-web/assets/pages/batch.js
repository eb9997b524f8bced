// One batch or workflow: its members, callbacks, nodes and children, what it waits for, and what can be done.

import { get, page, seg, send } from "../api.js";
import { h, show } from "../dom.js";
import { number, oneLine, safe, short, time } from "../format.js";
import { graph, workOf } from "../graph.js";
import { reread } from "../live.js";
import { settings } from "../settings.js";
import { MEMBERS, act, batchLink, batchState, facts, failure, into, memberBar, table, taskLink } from "../ui.js";

export default async function batch({ root, me, params, signal, again }) {
  const id = params.get("id") ?? "";
  const path = `batches/${seg(id)}`;
  const [head, buttons, nodes, why, tree] = ["Reading …", "", "", "", ""].map((text) => h("div", null, text));
  const list = h("div", null, "Reading …");
  show(root, h("h1", null, "Batch ", h("span", { class: "mono" }, safe(id))), head, buttons, nodes, why, tree, h("h2", null, "Members that are tasks"), list);

  // What has not changed stays as it is: somebody may be reading it.
  const drawn = new Map();
  const draw = (element, value, render) => {
    const text = JSON.stringify(value);
    if (drawn.get(element) === text || element.contains(document.activeElement)) return;
    drawn.set(element, text);
    show(element, render(value));
  };
  const read = async () => {
    try {
      const found = await get(path, {}, signal);
      draw(head, found, about);
      draw(buttons, [found.over, found.state], () => actions({ found, path, me, done: again }));
      const [{ items }, explained] = await Promise.all([get(`${path}/nodes`, {}, signal), get(`${path}/explain`, {}, signal)]);
      draw(nodes, items, () => items.some((node) => node.after.length || node.signal) && [h("h2", null, "Nodes"), graph(items), nodeTable({ items, path, me, done: again })]);
      draw(why, explained, waits);
      if (found.children.length) draw(tree, await get(`${path}/tree`, {}, signal), children);
    } catch (error) {
      if (error.name !== "AbortError") show(head, failure(error));
      drawn.delete(head);
    }
  };
  await read();
  await members({ list, path, id, params, signal });
  reread(null, read, signal);
}

function about(found) {
  const others = MEMBERS.filter(([state]) => found[state] > 0).map(([state]) => `${number(found[state])} ${state}`).join(", ");
  return [
    memberBar(found, 260),
    facts([
      ["State", batchState(found.state)], found.description && ["For", safe(found.description)], found.parent && ["Parent", batchLink(found.parent)],
      ["Members", `${number(found.total)}${others ? `: ${others}` : ""}`], ["Created", time(found.created)],
      ["Committed", found.committed ? time(found.committed) : "not yet: members may still be added"], ["Last change", time(found.touched)],
      found.over && ["Over", time(found.over)], found.deadline && ["Deadline", time(found.deadline)], found.generation > 1 && ["Begun anew", `${number(found.generation - 1)} times, because something was run again`],
    ]),
    found.callbacks.length > 0 && table("Callbacks", [
      { head: "When", cell: (row) => row.event }, { head: "Task", cell: (row) => short(row.type, 60) }, { head: "Queue", cell: (row) => safe(row.queue) },
      { head: "State", cell: (row) => h("span", { class: row.state === "dead" ? "bad" : null }, row.state) }, { head: "Since", cell: (row) => time(found.fired[row.event]) },
    ], found.callbacks),
  ];
}

function actions({ found, path, me, done }) {
  const options = { what: "this batch", subject: found.id, done };
  const count = (verb) => send("POST", `${path}/${verb}`, { json: { dry_run: true } });
  return h("div", { class: "bar" },
    !found.over && act(me, "batch.cancel", {
      ...options, before: async () => {
        const { members, children } = await count("cancel");
        return { told: `${number(members)} of its own members are live, and it has ${number(children)} children.`, count: members };
      },
      work: () => send("POST", `${path}/cancel`, { json: {} }).then(() => "the batch is cancelled"),
    }),
    act(me, "batch.retry", {
      ...options, word: "Run again what is dead in",
      before: async () => {
        const { members } = await count("retry");
        if (!members) throw new Error("None of its own members is dead.");
        return { told: `${number(members)} of its own members are dead.`, count: members };
      },
      work: async () => `${number((await send("POST", `${path}/retry`, { json: {} })).members)} members are run again`,
    }),
    act(me, "batch.resolve", {
      ...options, word: "Count as succeeded what is dead in",
      before: async () => {
        const { members } = await send("POST", `${path}/resolve`, { json: { all: true, dry_run: true } });
        if (!members) throw new Error("None of its own members is dead or removed.");
        return { told: `${number(members)} of its own members are dead or removed.`, count: members };
      },
      work: async () => `${number((await send("POST", `${path}/resolve`, { json: { all: true } })).members)} members count as succeeded`,
    }));
}

function nodeTable({ items, path, me, done }) {
  return table("Nodes, in their order", [
    { head: "Node", cell: (row) => h("b", null, short(row.name, 80)) }, { head: "State", cell: (row) => h("span", { class: /dead|removed|doomed/.test(row.state) ? "bad" : null }, row.state) },
    { head: "Work", cell: (row) => (row.is_batch ? batchLink(row.id) : row.queue ? [taskLink(row.queue, row.id, short(row.type, 60)), ` in ${short(row.queue, 40)}`] : waiting(row)) },
    { head: "After", cell: (row) => row.after.map((edge) => `${short(edge.node, 60)}${edge.when === "succeeded" ? "" : ` (${edge.when})`}`).join(", ") || "–" },
    { head: "", cell: (row) => [row.signal && /waiting|sent|skipped|dead/.test(row.state) && signals({ row, path, me, done }), /succeeded|dead|removed|cancelled|skipped/.test(row.state) && rerun({ row, path, me, done })] },
  ], items);
}

function waiting(row) {
  const { otherwise, until, said } = row.signal ?? {};
  return [workOf(row), until ? [", until ", time(until)] : "", otherwise ? `, then ${otherwise}` : "", said === null || said === undefined ? "" : [": ", h("code", null, short(JSON.stringify(said), 200))]];
}

function signals({ row, path, me, done }) {
  const text = h("input", { placeholder: "null", autocomplete: "off", size: 12, "aria-label": `What is said to ${short(row.name, 40)}, as JSON` });
  const button = (word, decline) => act(me, "batch.signal", {
    what: "the signal of this node", subject: row.name, word, done,
    work: async () => {
      const payload = text.value.trim() === "" ? null : JSON.parse(text.value);
      const { signal } = await send("POST", `${path}/signals/${seg(row.name)}`, { json: { payload, decline } });
      text.blur();
      return `the signal is ${signal}`;
    },
  });
  const give = button("Give", false);
  return give && [text, " ", give, " ", button("Decline", true)];
}

function rerun({ row, path, me, done }) {
  return act(me, "batch.rerun", {
    what: "this node", subject: row.name, word: "Run again", done,
    work: async () => `${number((await send("POST", `${path}/nodes/${seg(row.name)}/rerun`, { json: {} })).nodes)} nodes are run again`,
  });
}

function waits(found) {
  const place = (row) => [
    row.state === "missing" ? "not there (deleted, or its end is not recorded yet)" : row.state, " in queue ", safe(row.queue), row.paused ? h("span", { class: "warn" }, ", which is paused") : "",
    ", the first is ", taskLink(row.queue, row.first, short(row.first, 60)),
  ];
  const lines = [
    ...found.members.map((row) => [`${number(row.tasks)} of its members: `, place(row)]),
    found.unseen > 0 && `${number(found.unseen)} members more were not looked at`,
    ...found.callbacks.map((row) => ["a callback: ", place(row)]),
    found.todo.length > 0 && `somebody has to carry out: ${safe(found.todo.join(", "))}`,
    found.next_look && ["the leader of the servers looks after it next ", time(found.next_look)],
  ].filter(Boolean);
  return lines.length > 0 && [h("h2", null, "What it waits for"), h("ul", null, lines.map((line) => h("li", null, line)))];
}

/** The batches below it, as lists in lists. */
function children({ items, truncated }) {
  const lists = [h("ul", { class: "tree" })];
  for (const branch of items) {
    const item = h("li", null, branch.depth ? batchLink(branch.id) : h("b", null, safe(branch.id)), " ", batchState(branch.state), ` ${number(branch.succeeded)} of ${number(branch.total)} succeeded`,
      branch.description ? h("span", { class: "dim" }, ` ${short(branch.description, 80)}`) : null);
    lists.length = branch.depth + 1;
    lists[branch.depth].append(item);
    const below = h("ul", null);
    item.append(below);
    lists.push(below);
  }
  lists[0].querySelectorAll("ul:empty").forEach((empty) => empty.remove());
  return [h("h2", null, "Batches below it"), lists[0], truncated && h("p", { class: "dim" }, "There are more; look at a part of it.")];
}

async function members({ list, path, id, params, signal }) {
  const state = params.get("state") ?? "";
  const names = ["", ...MEMBERS.map(([name]) => name).filter((name) => name !== "doomed")];
  const tabs = h("div", { class: "tabs" }, names.map((name) => h("a", { href: page("batch", { id, state: name }), "aria-current": name === state ? "page" : null }, name || "all")));
  const rows = h("div", null, "Reading …");
  show(list, tabs, rows);
  let at;
  const read = (cursor) => {
    at = cursor;
    return into(rows, () => get(`${path}/members`, { state, cursor, limit: 50 }, signal), (answer) => [
    table(answer.items.length ? "In their order" : "There are none", [
      { head: "Task", cell: (row) => (row.task ? taskLink(row.queue, row.id, short(row.id, 70)) : h("span", { class: "mono" }, short(row.id, 70))) },
      { head: "Member", cell: (row) => h("span", { class: /dead|removed/.test(row.state) ? "bad" : null }, row.state) },
      { head: "Task is", cell: (row) => row.task?.state ?? h("span", { class: "dim" }, "gone") }, { head: "Queue", cell: (row) => short(row.queue, 60) }, { head: "Type", cell: (row) => short(row.task?.type ?? "–", 60) },
      { head: "Payload", cell: (row) => (!row.task ? "–" : settings.payloads === "shown" ? h("code", null, oneLine(row.task.payload)) : h("span", { class: "dim" }, "hidden")) },
    ], answer.items),
    answer.next && h("button", { type: "button", "data-next": true, onclick: () => read(answer.next) }, "Next page"),
    ]);
  };
  await read();
  reread(rows, () => read(at), signal);
}
