// The nodes of a workflow as a drawing: in layers from left to right, each behind all that it waits for.

import { page } from "./api.js";
import { h, s } from "./dom.js";
import { short } from "./format.js";
import { MEMBERS } from "./ui.js";

/** Most nodes that are drawn. The table beside it has them all. */
const MOST = 300;
const [WIDTH, HEIGHT, ACROSS, DOWN] = [168, 40, 56, 14];
const KINDS = new Map(MEMBERS);

/** The nodes in layers: as many before each as its longest way has. */
function layers(nodes) {
  const depths = new Map();
  let rest = nodes;
  while (rest.length) {
    const later = [];
    for (const node of rest) {
      const before = node.after.map((edge) => depths.get(edge.node));
      if (before.includes(undefined)) later.push(node);
      else depths.set(node.name, before.reduce((most, depth) => Math.max(most, depth + 1), 0));
    }
    // There is no circle; a name that is not known would be one.
    if (later.length === rest.length) break;
    rest = later;
  }
  const columns = [];
  for (const node of nodes) {
    const depth = depths.get(node.name) ?? 0;
    (columns[depth] ??= []).push(node);
  }
  return columns;
}

/** Where each node stands. In its layer it is as high as those before it are on average, so that few lines cross. */
function places(columns) {
  const found = new Map();
  const rows = Math.max(...columns.map((column) => column.length));
  columns.forEach((column, x) => {
    const height = (node) => {
      const before = node.after.map((edge) => found.get(edge.node)?.row).filter((row) => row !== undefined);
      return before.length ? before.reduce((sum, row) => sum + row, 0) / before.length : 0;
    };
    const heights = new Map(column.map((node) => [node, height(node)]));
    const top = (rows - column.length) / 2;
    [...column].sort((a, b) => heights.get(a) - heights.get(b)).forEach((node, at) => {
      const row = top + at;
      found.set(node.name, { row, x: 2 + x * (WIDTH + ACROSS), y: 2 + row * (HEIGHT + DOWN) });
    });
  });
  return { found, width: columns.length * (WIDTH + ACROSS) - ACROSS + 4, height: rows * (HEIGHT + DOWN) - DOWN + 4 };
}

const addressOf = (node) => (node.is_batch ? page("batch", { id: node.id }) : node.queue ? page("task", { queue: node.queue, id: node.id }) : null);

export const workOf = (node) => (node.is_batch ? "batch" : node.signal ? "signal" : short(node.type ?? "?", 60));

function box(node, { x, y }) {
  const told = `${short(node.name)}: ${node.state}, ${workOf(node)}`;
  const parts = [
    s("title", null, told),
    s("rect", { x, y, width: WIDTH, height: HEIGHT, rx: 5, class: "node" }),
    s("rect", { x, y: y + 3, width: 5, height: HEIGHT - 6, class: KINDS.get(node.state) ?? "off" }),
    s("text", { x: x + 12, y: y + 17 }, short(node.name, 22)),
    s("text", { x: x + 12, y: y + 32, class: "dim" }, short(`${node.state}, ${workOf(node)}`, 24)),
  ];
  const href = addressOf(node);
  return href ? s("a", { href, "aria-label": told }, parts) : s("g", null, parts);
}

function line(from, to, when) {
  const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x - 6, to.y + HEIGHT / 2];
  const middle = (x1 + x2) / 2;
  return s("path", { d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`, class: when, "marker-end": "url(#arrow)" },
    s("title", null, `when ${when}`));
}

/** The drawing. */
export function graph(nodes) {
  if (nodes.length > MOST) return h("p", { class: "dim" }, `These are ${nodes.length} nodes, too many to be drawn; the table has them.`);
  const { found, width, height } = places(layers(nodes));
  const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "graph", role: "group", "aria-label": `The ${nodes.length} nodes; the table below says the same` },
    s("defs", null, s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 2, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" }, s("path", { d: "M0 0L8 4L0 8z" }))));
  for (const node of nodes) {
    for (const edge of node.after) {
      if (found.has(edge.node)) svg.append(line(found.get(edge.node), found.get(node.name), edge.when));
    }
  }
  for (const node of nodes) svg.append(box(node, found.get(node.name)));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The graph" }, svg);
}
