// What fails, grouped by its cause; with fp, one of these groups.

import { get, page, seg } from "../api.js";
import { h, show } from "../dom.js";
import { number, safe, short, time } from "../format.js";
import { facts, failure, queueLink, table, taskLink } from "../ui.js";
import { many } from "./tasks.js";

export default async function failures({ root, me, params, signal }) {
  const fp = params.get("fp");
  const queue = params.get("queue") ?? "";
  const told = h("p", { class: "dim", role: "status" }, "Reading …");
  const list = h("div", null);
  const again = h("button", { type: "button" }, "Look again");
  show(root, h("h1", null, fp ? "Failures of one cause" : "Failures"), h("div", { class: "bar" }, again), told, list);

  let timer = null;
  const read = async (params) => {
    clearTimeout(timer);
    let answer;
    try {
      answer = fp ? await get(`failures/${seg(fp)}`, {}, signal) : await get("failures", { queue, limit: 200, ...params }, signal);
      show(told, state(answer));
      show(list, fp ? one({ me, group: answer.group, done: look }) : groups(answer, queue));
    } catch (error) {
      if (error.name === "AbortError") return;
      show(told, failure(error));
      answer = { running: error.problem?.partial };
    }
    again.disabled = Boolean(answer.running);
    if (answer.running && !signal.aborted) timer = setTimeout(() => !signal.aborted && read(), 1000);
  };
  // What is told is a minute old at most; whoever has changed something wants to see that.
  const look = async () => {
    again.disabled = true;
    try {
      if (fp) await get("failures", { again: true, limit: 1 }, signal);
    } catch {
      // The same is said by what follows.
    }
    await read({ again: true });
  };
  again.addEventListener("click", look);
  await read();
}

function state(answer) {
  const looked = answer.partial ? `Looked at ${number(answer.looked_at)} of ${number(answer.of)} tasks so far.`
    : ["Looked at all ", number(answer.looked_at), " tasks in retry and in the archive, ", time(answer.ended), answer.running ? "; being looked at again." : "."];
  const other = answer.other ? ` ${number(answer.other)} of further groups are not told apart.` : "";
  const without = answer.without_error ? ` ${number(answer.without_error)} have no error.` : "";
  const unreadable = answer.unreadable.map((it) => h("span", { class: "bad" }, ` Queue ${short(it.queue, 60)} cannot be read: ${short(it.detail, 200)}.`));
  return [looked, other, without, unreadable, answer.error ? h("span", { class: "bad" }, ` It broke off: ${safe(answer.error)}`) : null];
}

function groups(answer, queue) {
  if (answer.items.length === 0) return answer.partial ? null : h("p", null, queue ? "Nothing in this queue has failed." : "Nothing has failed.");
  const title = answer.groups > answer.items.length ? `The ${number(answer.items.length)} largest of ${number(answer.groups)} groups` : `${number(answer.groups)} groups`;
  return table(title, [
    { head: "Tasks", n: true, cell: (group) => number(group.tasks) },
    { head: "Error", cell: (group) => h("a", { href: page("failures", { fp: group.fingerprint }), class: "mono" }, short(group.pattern, 200)) },
    { head: "Type", cell: (group) => short(group.type, 60) },
    { head: "Retry", n: true, cell: (group) => number(group.retry) },
    { head: "Archived", n: true, cell: (group) => number(group.archived) },
    { head: "Queues", cell: (group) => group.queues.slice(0, 5).map((it, at) => [at ? " " : null, queueLink(it.queue)]).concat(group.queues.length > 5 ? " …" : []) },
    { head: "Last", cell: (group) => time(group.last_failed_at) },
  ], answer.items);
}

function one({ me, group, done }) {
  const q = `fingerprint:${group.fingerprint}`;
  const lines = group.queues.flatMap(({ queue, retry, archived }) => [["retry", retry], ["archived", archived]].filter(([, count]) => count > 0).map(([state, count]) => ({ queue, state, count })));
  return [
    h("p", { class: "mono" }, safe(group.pattern)),
    facts([
      ["Type", safe(group.type)], ["Tasks", `${number(group.tasks)}: ${number(group.retry)} in retry, ${number(group.archived)} archived`],
      ["Their last failures", ["from ", time(group.first_failed_at), " to ", time(group.last_failed_at)]], ["Filter", h("code", null, q)],
    ]),
    h("div", { class: "bar" }, h("span", { class: "dim" }, "All of them: "),
      many({ me, queues: group.queues.map((it) => it.queue), states: [group.retry && "retry", group.archived && "archived"].filter(Boolean), q, done })),
    table("Where they are", [
      { head: "Queue", cell: (row) => queueLink(row.queue) }, { head: "State", cell: (row) => row.state },
      { head: "Tasks", n: true, cell: (row) => h("a", { href: page("tasks", { queue: row.queue, state: row.state, q }) }, number(row.count)) },
      { head: "Those here", cell: (row) => h("div", { class: "bar" }, many({ me, queues: [row.queue], states: [row.state], q, done })) },
    ], lines),
    table("Those that failed last", [
      { head: "Task", cell: (task) => taskLink(task.queue, task.id, short(task.id, 60)) }, { head: "Queue", cell: (task) => safe(task.queue) },
      { head: "State", cell: (task) => task.state }, { head: "Failed", cell: (task) => time(task.failed_at) }, { head: "Error", cell: (task) => short(task.error, 400) },
    ], group.samples),
  ];
}
