// What this browser remembers, and what the server is set to.

import { get } from "../api.js";
import { h, show } from "../dom.js";
import { safe } from "../format.js";
import { set, settings } from "../settings.js";
import { facts, into } from "../ui.js";

const CHOICES = [
  ["theme", "Theme", ["auto", "light", "dark"]], ["zone", "Times", ["relative", "local", "utc"]], ["keys", "Keys", ["on", "off"]], ["payloads", "Payloads", ["shown", "hidden"]],
];

export default async function preferences({ root, me, signal }) {
  const choose = ([name, label, values]) => h("label", null, label,
    h("select", { name, onchange: (event) => set(name, event.target.value) }, values.map((value) => h("option", { value, selected: settings[name] === value }, value))));
  const server = h("div", null, "Reading …");
  show(root, h("h1", null, "Settings"), h("div", { class: "bar" }, CHOICES.map(choose)), h("p", { class: "dim" }, "They are kept in this browser. Press ? for the keys."), h("h2", null, "The server"), server);
  await into(server, () => get("", {}, signal), (info) => facts([
    ["Version", info.version], ["Redis", safe(info.redis)], ["Changes", info.read_only ? "refused" : "possible"], ["You are", me.login ? `${safe(me.name)}, ${me.role}` : "not logged in: everybody who gets here may do everything"],
    ["You see", me.queues.length ? `the queues ${safe(me.queues.join(", "))}` : "all queues"], ["You may", me.permissions.join(", ")],
  ]));
}
