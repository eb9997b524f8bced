// Tasks of a queue: a list, or a search that says how much it looked at.

import { get, page, send } from "../api.js";
import { h, show } from "../dom.js";
import { number, oneLine, safe, short, time } from "../format.js";
import { carryOut } from "../operation.js";
import { settings } from "../settings.js";
import { STATES, allowed, confirm, failure, say, taskLink, tr } from "../ui.js";

const LIMIT = 50;
const INTO_THE_BIN = "They go into the bin, and can be restored for a day. Redis has their memory back when that is over, or the bin is emptied.";

export default async function tasks({ root, me, params, signal, go }) {
  const names = (await get("queues", {}, signal)).items.map((row) => row.queue);
  const queue = params.get("queue") ?? names[0] ?? "";
  const state = params.get("state") ?? (params.get("q") ? "" : "pending");
  const q = params.get("q") ?? "";
  const order = params.get("order") ?? (/archived|completed/.test(state) ? "newest" : "oldest");
  const at = (change) => page("tasks", { queue, state, q, order, ...change });

  const choose = h("select", { name: "queue" }, (names.includes(queue) ? names : [queue, ...names]).map((name) => h("option", { value: name, selected: name === queue }, safe(name))));
  const box = h("input", { type: "search", name: "q", value: q, class: "wide", placeholder: "type:email:* error:\"timed out\" payload.user.id:7 -older:1h word", maxlength: 4096 });
  const sort = h("select", { name: "order" }, ["oldest", "newest"].map((value) => h("option", { value, selected: value === order }, value)));
  const search = (event) => {
    event.preventDefault();
    go(at({ queue: choose.value, q: box.value.trim(), order: sort.value }));
  };
  const form = h("form", { class: "bar", role: "search", onsubmit: search },
    h("label", null, "Queue", choose), h("label", { class: "grow" }, "Filter", box), h("label", null, "From the", sort), h("button", null, "Search"));
  choose.addEventListener("change", search);
  sort.addEventListener("change", search);
  const tabs = h("div", { class: "tabs" }, ["", ...STATES].map((name) =>
    h("a", { href: at({ state: name, order: "" }) + (name ? "" : "&state="), "aria-current": name === state ? "page" : null }, name || "all states")));

  const told = h("p", { class: "dim", role: "status" }, "Reading …");
  const columns = columnsOf(state);
  const body = h("tbody", null);
  const list = h("div", { class: "scroll" }, h("table", { class: "cards-small" },
    h("caption", null, `Tasks of queue ${safe(queue)}`), h("thead", null, h("tr", null, columns.map((column) => h("th", { scope: "col", class: column.n ? "n" : null }, column.head)))), body));
  const more = h("button", { type: "button", "data-next": true, hidden: true }, "Next page");
  const stop = h("button", { type: "button", hidden: true }, "Stop searching");
  const buttons = h("div", { class: "bar" });
  show(root, h("h1", null, "Tasks"), form, tabs, told, list, h("div", { class: "bar" }, more, stop), buttons);
  if (!queue) {
    show(told, "There are no queues yet.");
    return;
  }

  let cursor = null;
  let found = 0;
  let isStopped = false;
  const read = async () => {
    more.hidden = true;
    let room = LIMIT;
    isStopped = false;
    try {
      // Each answer is short; a search goes on by itself, and says how far it is.
      do {
        const answer = await get("tasks", { queue, state, q, order, limit: room, cursor }, signal);
        found += answer.items.length;
        room -= answer.items.length;
        cursor = answer.next;
        body.append(...answer.items.map((task) => tr(columns, task)));
        const { looked_at, of, complete } = answer.searched;
        const looked = complete ? `looked at all ${number(of)}` : `looked at ${number(looked_at)} of ${number(of)}`;
        const moved = answer.moved ? " Tasks have come or gone so fast that some may be missing here." : "";
        show(told, answer.total === null ? `Found ${number(found)}, ${looked}.${moved}` : `${number(found)} of ${number(answer.total)}.${moved}`);
        stop.hidden = !(cursor && room > 0);
      } while (cursor && room > 0 && !isStopped && !signal.aborted);
    } catch (error) {
      if (error.name === "AbortError") return;
      show(told, failure(error));
    }
    stop.hidden = true;
    more.hidden = !cursor;
    more.textContent = isStopped ? "Search on" : "Next page";
  };
  more.addEventListener("click", () => {
    if (!isStopped) {
      body.replaceChildren();
      found = 0;
    }
    read();
  });
  stop.addEventListener("click", () => {
    isStopped = true;
  });
  if (state) show(buttons, h("span", { class: "dim" }, "All that fit: "), many({ me, queue, state, q, done: () => go(at({})) }));
  await read();
}

/** What can be done to all tasks that fit: first they are counted. */
export function many({ me, queue, state, q, done }) {
  const possible = { active: ["cancel"], pending: ["archive", "delete"], archived: ["run", "delete"] }[state] ?? ["run", "archive", "delete"];
  return possible.map((verb) => {
    const action = allowed(me, `tasks.${verb}`);
    if (!action) return null;
    const filter = `state:${state} ${q}`.trim();
    const wish = { action: verb, queues: [queue], filter };
    const work = async () => {
      try {
        const { matched } = await send("POST", "operations", { json: { ...wish, dry_run: true } });
        if (matched === 0) {
          say("No task fits.");
          return;
        }
        const meant = await confirm({
          question: `${action.word} ${number(matched)} tasks?`, subject: `${queue}: ${filter}`, consequence: verb === "delete" ? INTO_THE_BIN : action.consequence,
          word: action.word, type: matched > 1000 ? matched : null,
        });
        if (!meant) return;
        say(`${action.word}: ${number(matched)} tasks …`);
        await carryOut(me, { ...wish, at_most: Math.ceil(matched * 1.1) }, done);
      } catch (error) {
        say(error.message, true);
      }
    };
    return h("button", { type: "button", class: verb === "delete" ? "bad" : null, onclick: work, "data-many": verb }, `${action.word} all`);
  });
}

function columnsOf(state) {
  const payload = { head: "Payload", cell: (task) => (settings.payloads === "shown" ? h("code", null, oneLine(task.payload)) : h("span", { class: "dim" }, "hidden")) };
  const error = { head: "Last error", cell: (task) => short(task.last_error ?? "–") };
  const base = [
    { head: "Id", cell: (task) => taskLink(task.queue, task.id, short(task.id, 60)) },
    { head: "Type", cell: (task) => (task.unreadable ? h("span", { class: "bad" }, "cannot be read") : short(task.type, 60)) },
    ...(state ? [] : [{ head: "State", cell: (task) => task.state ?? "–" }]),
    { head: "Retried", n: true, cell: (task) => (task.unreadable ? "–" : `${task.retried} of ${task.max_retry}`) },
  ];
  const due = (head) => ({ head, cell: (task) => time(task.next_process_at) });
  const more = {
    scheduled: [due("Starts"), payload], retry: [due("Next attempt"), error], archived: [{ head: "Last failed", cell: (task) => time(task.last_failed_at) }, error],
    completed: [{ head: "Completed", cell: (task) => time(task.completed_at) }, { head: "Result", cell: (task) => h("code", null, oneLine(task.result)) }],
    aggregating: [{ head: "Group", cell: (task) => short(task.group ?? "–", 40) }, payload],
    active: [{ head: "", cell: (task) => (task.orphaned ? h("span", { class: "warn" }, "orphaned") : "") }, payload],
  }[state] ?? [payload];
  return [...base, ...more];
}

