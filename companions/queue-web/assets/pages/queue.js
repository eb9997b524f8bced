// One queue.

import { early, get, page, seg, send } from "../api.js";
import { h, s, show } from "../dom.js";
import { bytes, duration, number, safe } from "../format.js";
import { watch } from "../live.js";
import { STATES, act, facts, into, stateBar, table } from "../ui.js";
import { pauseButton } from "./overview.js";

export default async function queue({ root, me, params, signal, go, again }) {
  const name = params.get("queue") ?? "";
  const path = `queues/${seg(name)}`;
  const counts = h("div", null);
  const days = h("div", null, "Reading …");
  const buttons = h("div", { class: "bar" });
  // What stands below is shown when the counts are, which would move it.
  const below = h("div", { hidden: true }, h("h2", null, "Days"), days);
  show(root, h("h1", null, "Queue ", safe(name)), counts, buttons, below);
  const counted = early(get(`${path}/days`, { days: 30 }, signal));

  const draw = (row, memory) => {
    show(counts, stateBar(row, 260),
      h("div", { class: "tabs" }, STATES.map((state) => h("a", { href: page("tasks", { queue: name, state }) }, `${state} ${number(row[state])}`))),
      facts([
        ["State", row.paused ? h("span", { class: "warn" }, "paused") : "running"], ["Tasks", number(row.size)], ["Latency", duration(row.latency_ms)],
        ["Groups", h("a", { href: page("groups", { queue: name }) }, number(row.groups))],
        ["Limits", h("a", { href: page("limits", { queue: name }) }, "what runs and waits under them")],
        ["Today (UTC)", `${number(row.processed_today)} processed, ${number(row.failed_today)} failed`],
        ["Ever", `${number(row.processed_total)} processed, ${number(row.failed_total)} failed`],
        ["Memory", memory === undefined ? "not measured" : memory === null ? "the server does not tell" : `about ${bytes(memory)}`],
      ]));
    show(buttons, pauseButton(me, row, again), h("button", { type: "button", onclick: measure }, "Measure memory"),
      act(me, "queue.remove", { what: "this queue", subject: name, work: () => send("DELETE", path).then(() => undefined), done: () => go("./") }));
  };
  let memory;
  const measure = async () => {
    await into(counts, () => get(path, { memory: "true" }, signal), (row) => {
      memory = row.memory_bytes;
      queueMicrotask(() => draw(row, memory));
      return null;
    });
  };

  await into(counts, () => get(path, {}, signal), (row) => {
    queueMicrotask(() => draw(row));
    return null;
  });
  below.hidden = false;
  watch((look) => {
    const row = look.queues.find((other) => other.queue === name);
    // While the keyboard is in it, it stays as it is.
    if (row && !row.error && !counts.contains(document.activeElement) && !buttons.contains(document.activeElement)) draw(row, memory);
  }, signal);
  await into(days, () => counted, (answer) => [chart(answer.items), numbers(answer.items)]);
}

/** Bars of what was processed; the table beside it says the same. */
function chart(days) {
  const past = [...days].reverse();
  const most = Math.max(...past.map((day) => day.processed), 1);
  const svg = s("svg", { viewBox: "0 0 620 120", width: "100%", height: 120, role: "img", "aria-label": "Tasks processed and failed on each day; the table below has the numbers" });
  past.forEach((day, at) => {
    const height = (day.processed / most) * 100;
    const failed = (Math.min(day.failed, day.processed) / most) * 100;
    svg.append(s("rect", { x: at * 20 + 2, y: 104 - height, width: 16, height, class: "done" }, s("title", null, `${day.date}: ${number(day.processed)}`)),
      s("rect", { x: at * 20 + 2, y: 104 - failed, width: 16, height: failed, class: "failed" }));
    if (at % 5 === 0) svg.append(s("text", { x: at * 20, y: 117 }, day.date.slice(5)));
  });
  return svg;
}

const numbers = (days) => h("details", null, h("summary", null, "Numbers"), table("By day (UTC)", [
  { head: "Day", cell: (day) => day.date }, { head: "Processed", n: true, cell: (day) => number(day.processed) },
  { head: "Failed", n: true, cell: (day) => number(day.failed) },
], days));
