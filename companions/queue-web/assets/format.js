// How values are shown.

import { h } from "./dom.js";
import { settings } from "./settings.js";

const numbers = new Intl.NumberFormat("en");
export const number = (value) => (value === null || value === undefined ? "–" : numbers.format(value));

/** A duration in its two largest units: 350ms, 12s, 5m30s. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)}ms`;
  const secs = Math.floor(ms / 1000);
  const pair = (large, unit, small, other) => (small ? `${large}${unit}${small}${other}` : `${large}${unit}`);
  if (secs < 60) return `${secs}s`;
  if (secs < 3600) return pair(Math.floor(secs / 60), "m", secs % 60, "s");
  if (secs < 86400) return pair(Math.floor(secs / 3600), "h", Math.floor((secs % 3600) / 60), "m");
  return pair(Math.floor(secs / 86400), "d", Math.floor((secs % 86400) / 3600), "h");
}

export function bytes(count) {
  if (count === null || count === undefined) return "unknown";
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (count >= size) return `${(count / size).toFixed(1)} ${unit}`;
  }
  return `${count} bytes`;
}

/** Text that somebody else has written: what would be invisible, or would turn the text round, is shown. */
export function safe(text) {
  return String(text)
    .replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, "\ufffd")
    .replace(/[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, (c) => `[U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
}

export function short(text, most = 120) {
  const line = safe(text).replace(/\s+/g, " ");
  return line.length <= most ? line : line.slice(0, most - 1) + "…";
}

function absolute(date, zone) {
  const pad = (n) => String(n).padStart(2, "0");
  if (zone === "utc") return date.toISOString().replace("T", " ").replace(/\.\d+Z$/, "Z");
  const offset = -date.getTimezoneOffset();
  const sign = offset < 0 ? "-" : "+";
  const away = `${sign}${pad(Math.floor(Math.abs(offset) / 60))}:${pad(Math.abs(offset) % 60)}`;
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  return `${day} ${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}${away}`;
}

function distance(date) {
  const ms = date - Date.now();
  if (Math.abs(ms) < 1000) return "now";
  return ms > 0 ? `in ${duration(ms)}` : `${duration(-ms)} ago`;
}

/** An instant as the settings have it; the other form is its title. */
export function time(text) {
  if (!text) return h("span", { class: "dim" }, "–");
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return h("span", null, safe(text));
  const relative = settings.zone === "relative";
  const shown = relative ? distance(date) : absolute(date, settings.zone);
  return h("time", { datetime: text, title: relative ? absolute(date, "local") : distance(date) }, shown);
}

// Deeper nesting is not indented further: the indentation alone would be as long as the square of the depth.
const MAX_INDENT = 30;

/** JSON, indented on its text: numbers, order and duplicate keys stay as they are. Null if it is no JSON. */
export function indented(text) {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  let out = "";
  let depth = 0;
  let inside = false;
  const line = () => "\n" + "  ".repeat(Math.min(Math.max(depth, 0), MAX_INDENT));
  for (let i = 0; i < text.length; i += 1) {
    const c = text[i];
    if (inside) {
      out += c;
      if (c === "\\") out += text[(i += 1)] ?? "";
      else if (c === '"') inside = false;
    } else if (c === '"') {
      out += c;
      inside = true;
    } else if (c === "{" || c === "[") {
      const rest = text.slice(i + 1, i + 50).trimStart();
      if (rest[0] === "}" || rest[0] === "]") {
        out += c + rest[0];
        i = text.indexOf(rest[0], i + 1);
      } else {
        depth += 1;
        out += c + line();
      }
    } else if (c === "}" || c === "]") {
      depth -= 1;
      out += line() + c;
    } else if (c === ",") out += c + line();
    else if (c === ":") out += ": ";
    else if (!/\s/.test(c)) out += c;
  }
  return out;
}

/** Bytes as the API gives them, over many lines. */
export function pretty(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return indented(value) ?? value;
  if (value.message_pack !== undefined) return JSON.stringify(value.message_pack, null, 2);
  return hex(value.base64 ?? "");
}

/** On one line. */
export function oneLine(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return short(value);
  if (value.message_pack !== undefined) return short(JSON.stringify(value.message_pack));
  return `<binary>`;
}

function hex(base64) {
  const binary = atob(base64);
  const lines = [];
  for (let at = 0; at < Math.min(binary.length, 4096); at += 16) {
    const part = Array.from(binary.slice(at, at + 16), (c) => c.charCodeAt(0));
    const digits = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${letters}`);
  }
  if (binary.length > 4096) lines.push("…");
  return lines.join("\n");
}
