// What happens to tasks and servers, as it happens.

import { page, refused, url } from "../api.js";
import { h, show } from "../dom.js";
import { duration, number, safe, short, time } from "../format.js";
import { pause, trouble } from "../live.js";
import { queueLink, table, taskLink, tr } from "../ui.js";

const KINDS = [
  "enqueued", "started", "progress", "succeeded", "failed", "archived", "snoozed", "revoked", "requeued", "cancelled", "lost", "forwarded", "server_started", "server_resized",
  "server_stopped", "operator",
];
const BAD = /^(failed|archived|lost|dropped|gap)$/;
/** Most events that are shown. */
const SHOWN = 300;

export default function events({ root, params, signal, go }) {
  const wish = { queue: params.get("queue") ?? "", type: params.get("type") ?? "", kind: params.get("kind") ?? "" };
  const input = (name, hint) => h("input", { name, value: wish[name], placeholder: hint, autocomplete: "off" });
  const inputs = { queue: input("queue", "all"), type: input("type", "all") };
  const kind = h("select", { name: "kind" }, ["", "failed,archived,lost", ...KINDS].map((value) => h("option", { value, selected: value === wish.kind }, value.replaceAll(",", ", ") || "all")));
  const listen = (event) => {
    event.preventDefault();
    go(page("events", { queue: inputs.queue.value.trim(), type: inputs.type.value.trim(), kind: kind.value }));
  };
  const hold = h("button", { type: "button", "aria-pressed": "false" }, "Hold");
  const told = h("p", { class: "dim", role: "status" }, "Connecting …");
  const unaware = h("p", { class: "warn", hidden: true });
  const list = table("Newest first", columns(), []);
  const body = list.querySelector("tbody");
  show(root, h("h1", null, "Events"), h("form", { class: "bar", role: "search", onsubmit: listen }, h("label", null, "Queue", inputs.queue), h("label", null, "Type", inputs.type), h("label", null, "Kind", kind),
    h("button", null, "Listen"), hold), told, unaware, list);

  const state = { last: null, count: 0, held: null, source: null, again: null };
  const status = () => show(told, `${number(state.count)} events heard${state.held ? `, ${number(state.held.length)} of them held back` : ""}. What happened before this page was open is not here.`);
  const add = (event) => {
    body.prepend(tr(columns(), event, { class: BAD.test(event.kind) && event.kind === "gap" ? "gap" : null }));
    while (body.rows.length > SHOWN) body.lastElementChild.remove();
  };
  hold.addEventListener("click", () => {
    if (state.held) state.held.forEach(add);
    state.held = state.held ? null : [];
    hold.textContent = state.held ? "Go on" : "Hold";
    hold.setAttribute("aria-pressed", String(Boolean(state.held)));
    status();
  });

  const close = () => {
    state.source?.close();
    state.source = null;
  };
  const open = () => {
    if (state.source || document.hidden || signal.aborted) return;
    clearTimeout(state.again);
    const source = new EventSource(url("feed", { ...wish, after: state.last }));
    state.source = source;
    source.addEventListener("start", (event) => {
      trouble("");
      state.last = event.lastEventId;
      const { unaware_servers: names } = JSON.parse(event.data);
      unaware.hidden = names.length === 0;
      show(unaware, `Of Go's servers, and older ones of ours, nothing is heard: ${short(names.join(", "), 300)}`);
      status();
    });
    source.addEventListener("happened", (event) => {
      trouble("");
      state.last = event.lastEventId;
      state.count += 1;
      if (state.held) state.held = [...state.held.slice(1 - SHOWN), JSON.parse(event.data)];
      else add(JSON.parse(event.data));
      status();
    });
    source.addEventListener("notice", (event) => {
      const { redis, error } = JSON.parse(event.data);
      trouble(redis === "away" ? `Redis cannot be read: ${error}. This page goes on by itself.` : "");
    });
    source.addEventListener("error", () => {
      trouble("The dashboard's server does not answer, or refuses. This page tries again.");
      // A browser tries again by itself, unless the answer was an error.
      if (source.readyState !== EventSource.CLOSED) return;
      close();
      state.again = setTimeout(open, 5000);
      refused();
    });
  };
  const turn = () => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", turn, { signal });
  window.addEventListener("pagehide", close, { signal });
  signal.addEventListener("abort", () => {
    close();
    clearTimeout(state.again);
    trouble("");
  });
  pause(signal);
  open();
}

const columns = () => [
  { head: "At", cell: (event) => time(new Date(event.at).toISOString()) }, { head: "What", cell: (event) => h("span", { class: BAD.test(event.kind) ? "bad" : null }, event.kind.replace("_", " ")) },
  { head: "Queue", cell: (event) => (event.queue ? queueLink(event.queue) : "–") },
  { head: "Task", cell: (event) => (event.queue && event.id ? taskLink(event.queue, event.id, short(event.id, 60)) : short(event.id ?? "–", 60)) },
  { head: "Type", cell: (event) => short(event.type ?? "–", 60) }, { head: "More", cell: more },
];

function more(event) {
  const parts = [
    event.action && safe(event.action), event.by && `by ${safe(event.by)}`, event.attempt && `attempt ${event.attempt}`, event.took_ms !== undefined && `took ${duration(event.took_ms)}`,
    event.percent !== undefined && `${event.percent} %`, event.count !== undefined && number(event.count), event.retry_at && ["again ", time(new Date(event.retry_at * 1000).toISOString())],
    event.error && short(event.error, 300), event.note && short(event.note, 300), !event.id && event.server && h("span", { class: "mono" }, short(event.server, 80)),
  ].filter(Boolean);
  return parts.map((part, at) => [at ? ", " : "", part]);
}
