// A new task.

import { get, page, seg, send } from "../api.js";
import { h, show } from "../dom.js";
import { safe } from "../format.js";
import { say } from "../ui.js";

const FIELDS = [
  ["queue", "Queue", "default"], ["type", "Type", ""], ["in", "Start in", "10m"], ["max_retry", "Retries at most", "25"], ["timeout", "Timeout", "30m"],
  ["unique", "Unique for", "1h"], ["retention", "Keep after success", "24h"], ["group", "Group", ""], ["task_id", "Id", "made up"],
];

export default async function enqueue({ root, params, signal, go }) {
  const inputs = Object.fromEntries(FIELDS.map(([name, label, hint]) => [name, h("input", { name, placeholder: hint, autocomplete: "off", required: name === "type" || name === "queue" })]));
  const payload = h("textarea", { name: "payload", spellcheck: "false" });
  const told = h("p", { class: "dim", role: "status" });
  const line = h("pre", null);
  inputs.queue.value = params.get("queue") ?? "default";
  // Those of the task that it is to be like. Ours say what is true of that one alone.
  let headers = [];

  const task = () => {
    const wish = { type: inputs.type.value, payload: payload.value };
    for (const name of ["in", "timeout", "unique", "retention", "group", "task_id"]) if (inputs[name].value) wish[name] = inputs[name].value;
    if (inputs.max_retry.value) wish.max_retry = Number(inputs.max_retry.value);
    if (headers.length) wish.headers = Object.fromEntries(headers);
    return wish;
  };
  const check = () => {
    let kind = "text";
    try {
      JSON.parse(payload.value);
      kind = "JSON";
    } catch {
      kind = payload.value.trim() === "" ? "empty" : "text, not JSON";
    }
    show(told, `The payload is ${kind}.`);
    show(line, `queuectl enqueue --batch - <<'END'\n${safe(JSON.stringify({ ...task(), queue: inputs.queue.value }))}\nEND`);
  };
  const submit = async (event) => {
    event.preventDefault();
    try {
      const made = await send("POST", `queues/${seg(inputs.queue.value)}/tasks`, { json: task() });
      say(`task ${made.id} is ${made.state}`);
      go(page("task", { queue: made.queue, id: made.id }));
    } catch (error) {
      say(error.message, true);
    }
  };
  const form = h("form", { onsubmit: submit, oninput: check },
    h("div", { class: "bar" }, FIELDS.map(([name, label]) => h("label", null, label, inputs[name]))),
    h("label", null, "Payload", payload), told, h("div", { class: "bar" }, h("button", null, "Enqueue")));
  show(root, h("h1", null, "Enqueue a task"), form, h("h2", null, "The same on the command line"), line);
  check();
  const [queue, from] = [params.get("queue"), params.get("from")];
  if (!queue || !from) return;
  const like = await get(`queues/${seg(queue)}/tasks/${seg(from)}`, {}, signal);
  inputs.type.value = like.type;
  inputs.max_retry.value = like.max_retry;
  inputs.group.value = like.group ?? "";
  if (like.timeout_secs) inputs.timeout.value = `${like.timeout_secs}s`;
  if (like.retention_secs) inputs.retention.value = `${like.retention_secs}s`;
  headers = Object.entries(like.headers ?? {}).filter(([name, value]) => !name.startsWith("x-") && value !== "[redacted]");
  if (like.headers?.["x-encrypted"]) say("its payload is encrypted for that task alone: it is left out", true);
  else if (typeof like.payload === "string" && like.payload.includes("[redacted]")) say("a part of its payload is hidden here: it is left out", true);
  else if (typeof like.payload === "string" && like.payload_bytes <= 65536) payload.value = like.payload;
  else say("its payload is no text, or long: it is left out", true);
  check();
}
