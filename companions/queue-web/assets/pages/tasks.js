// Tasks of a queue: a list, or a search that says how much it looked at.

import { get, page, send } from "../api.js";
import { h, show } from "../dom.js";
import { number, oneLine, safe, short, time } from "../format.js";
import { carryOut } from "../operation.js";
import { pager } from "../pager.js";
import { set, settings } from "../settings.js";
import { STATES, allowed, confirm, say, taskLink } from "../ui.js";

/** What can be done to tasks in these states; to those in others, all but to stop them. */
const CAN = { active: ["cancel", "interrupt"], pending: ["archive", "delete"], archived: ["run", "delete"] };
const MOST_FILTERS = 20;
const INTO_THE_BIN = "They go into the bin, and can be restored for a day. Redis has their memory back when that is over, or the bin is emptied.";

export default async function tasks({ root, me, params, signal, go }) {
  const asked = get("queues", {}, signal);
  const queue = params.get("queue") ?? (await asked).items[0]?.queue ?? "";
  const state = params.get("state") ?? (params.get("q") ? "" : "pending");
  const q = params.get("q") ?? "";
  const order = params.get("order") ?? (/archived|completed/.test(state) ? "newest" : "oldest");
  const at = (change) => page("tasks", { queue, state, q, order, ...change });
  const { parts, start } = pager({ caption: `Tasks of queue ${safe(queue)}`, columns: columnsOf(state), read: (more) => get("tasks", { queue, state, q, order, ...more }, signal), signal });
  // Both are on their way; that the list fails is told in it.
  const listed = queue && start();
  const names = (await asked).items.map((row) => row.queue);

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

  const kept = settings.filters.filter((it) => it !== q);
  const keep = (filters) => () => {
    set("filters", filters.slice(0, MOST_FILTERS));
    go(at({}), true);
  };
  const saved = h("div", { class: "tabs" },
    settings.filters.map((it) => h("span", null, h("a", { href: at({ q: it, state: "" }), "aria-current": it === q ? "page" : null }, short(it, 60)),
      h("button", { type: "button", "aria-label": `Forget the filter ${it}`, onclick: keep(settings.filters.filter((other) => other !== it)) }, "×"))),
    q && kept.length === settings.filters.length ? h("button", { type: "button", "data-keep": true, onclick: keep([q, ...kept]) }, "Keep this filter") : null);

  // Above the list, which grows.
  const buttons = queue && state && h("div", { class: "bar" }, h("span", { class: "dim" }, "All that fit: "), many({ me, queues: [queue], states: [state], q, done: () => go(at({})) }));
  show(root, h("h1", null, "Tasks"), form, saved, tabs, buttons, queue ? parts : h("p", { role: "status" }, "There are no queues yet."));
  await listed;
}

/** What can be done to all tasks that fit: first they are counted. */
export function many({ me, queues, states, q, done }) {
  const possible = (verb) => states.every((state) => (CAN[state] ?? ["run", "archive", "delete"]).includes(verb));
  return ["run", "archive", "delete", "cancel", "interrupt"].filter(possible).map((verb) => {
    const action = allowed(me, `tasks.${verb}`);
    if (!action) return null;
    const filter = [...states.map((state) => `state:${state}`), q].join(" ").trim();
    const wish = { action: verb, queues, filter };
    const work = async () => {
      try {
        const { matched } = await send("POST", "operations", { json: { ...wish, dry_run: true } });
        if (matched === 0) {
          say("No task fits.");
          return;
        }
        const rate = verb === "run" ? h("input", { name: "rate", size: 8, placeholder: "100/1m", autocomplete: "off" }) : null;
        const meant = await confirm({
          question: `${action.word} ${number(matched)} tasks?`, subject: `${queues.join(", ")}: ${filter}`, consequence: verb === "delete" ? INTO_THE_BIN : action.consequence,
          word: action.word, type: matched > 1000 ? matched : null,
          more: rate && h("label", null, "No faster than ", rate, " (empty: as fast as Redis has time for it)"),
        });
        if (!meant) return;
        say(`${action.word}: ${number(matched)} tasks …`);
        await carryOut(me, { ...wish, at_most: Math.ceil(matched * 1.1), rate: rate?.value.trim() || undefined }, done);
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

