"use strict";
// Boxes in columns, joined by lines: the network, and a job's tree. The root is on the left, hosts and workers are on the right.

const ROW = 46;
const BOX = 36;
const LABEL = 88;

// nodes: {id, column, title, short, note, tone}, where a note is a text or a list of names; edges: {from, to, texts, tone, width},
// from the left to the right.
function diagram(label, nodes, edges, width) {
  const columns = Math.max(...nodes.map((node) => node.column)) + 1;
  const gap = Math.max(24, Math.min(190, ((width - 2) / columns) * (width < 500 ? 0.3 : 0.55)));
  const box = Math.min(190, (width - 2 - gap * (columns - 1)) / columns);
  const step = columns > 1 ? (width - 2 - box) / (columns - 1) : 0;
  const height = place(nodes, edges, columns);
  const by = new Map(nodes.map((node) => [node.id, node]));
  const left = (node) => 1 + node.column * step;
  const labelled = step - box > LABEL;
  const shapes = edges.map((edge) => {
    const [from, to] = [by.get(edge.from), by.get(edge.to)];
    const same = from.column === to.column;
    const [x1, y1, x2, y2] = [left(from) + box, from.y + BOX / 2, same ? left(to) + box : left(to), to.y + BOX / 2];
    const level = same || !labelled ? x2 : Math.max(x1 + 20, x2 - LABEL);
    const bend = same ? x1 + 30 : (x1 + level) / 2;
    return svg("path", { d: `M${x1},${y1} C${bend},${y1} ${bend},${y2} ${level},${y2} H${x2}`, class: edge.tone, "stroke-width": edge.width || 1.5 });
  });
  // At the child, above and below the line, which is level there; the labels of neighbours are a row apart.
  const texts = edges.filter((edge) => edge.texts && labelled).map((edge) => {
    const to = by.get(edge.to);
    const [x, y] = [left(to) - 6, to.y + BOX / 2];
    return svg("text", { class: "halo", "text-anchor": "end" }, edge.texts.map((text, line) => svg("tspan", { x, y: y - 7 + 22 * line }, text)));
  });
  const boxes = nodes.map((node) =>
    svg("g", {}, svg("title", {}, [node.title, [node.note || []].flat().join(", ")].filter(Boolean).join(": ")),
      svg("rect", { x: left(node), y: node.y, width: box, height: BOX, rx: 7, class: node.tone }),
      svg("text", { x: left(node) + 8, y: node.y + (node.note ? 15 : 22) }, cut([node.title], box, 7.3, node.short)),
      node.note && svg("text", { class: "note", x: left(node) + 8, y: node.y + 29 }, cut(node.note, box, 5.9))));
  return svg("svg", { role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height}` }, shapes, boxes, texts);
}

// Names are cut in the middle, as they differ at their ends; of a text, the end goes. Of several names, the first is shown.
const cut = (text, width, letter, short) => {
  const most = Math.max(3, Math.floor((width - 14) / letter));
  const whole = Array.isArray(text) ? text.join(", ") : text;
  if (whole.length <= most) return whole;
  if (short) return cut(short, width, letter);
  if (!Array.isArray(text)) return text.slice(0, most - 1) + "…";
  const others = text.length > 1 ? ` +${text.length - 1}` : "";
  const room = Math.max(3, most - others.length);
  const end = text[0].slice(Math.max(text[0].lastIndexOf(" "), text[0].length - Math.floor(room / 2)));
  return text[0].length > room ? `${text[0].slice(0, room - 1 - end.length)}…${end}${others}` : text[0] + others;
};

// Give every node its y: the last column one below the other, the others in the middle of what is right of them.
function place(nodes, edges, columns) {
  const right = new Map(nodes.map((node) => [node.id, []]));
  const by = new Map(nodes.map((node) => [node.id, node]));
  for (const { from, to } of edges) if (by.get(from).column < by.get(to).column) right.get(from).push(by.get(to));
  let bottom = 2;
  for (const node of nodes) if (node.column === columns - 1) (node.y = bottom), (bottom += ROW);
  for (let column = columns - 2; column >= 0; column--) {
    const here = nodes.filter((node) => node.column === column);
    for (const node of here) {
      const ys = right.get(node.id).map((each) => each.y);
      node.y = ys.length ? ys.reduce((a, b) => a + b, 0) / ys.length : bottom;
    }
    here.sort((a, b) => a.y - b.y);
    here.forEach((node, at) => at && (node.y = Math.max(node.y, here[at - 1].y + ROW)));
    if (here.length) bottom = Math.max(bottom, here[here.length - 1].y + ROW);
  }
  return bottom;
}

function sparkline(label, values, width) {
  const top = Math.max(1, ...values);
  const points = values.map((value, at) => `${((at * width) / Math.max(1, values.length - 1)).toFixed(1)},${(38 - (value / top) * 34).toFixed(1)}`);
  return svg("svg", { role: "img", "aria-label": label, viewBox: `0 0 ${width} 40`, preserveAspectRatio: "none", style: null },
    points.length > 1 && svg("path", { class: "spark", d: "M" + points.join(" L") }));
}
