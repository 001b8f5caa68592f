"use strict";
// A recorded run, step by step: a packet that travels, what it is, and what every node did last.

const AROUND = 6;
const replay = { title: "", links: [], steps: [], chosen: [], at: 0, filter: "", timer: 0 };

function startReplay({ title, links, steps }) {
  Object.assign(replay, { title, links, steps, chosen: steps.map((_, at) => at) });
  document.title = `netsum: ${title}`;
  document.getElementById("status").textContent = "recorded";
  addEventListener("keydown", (event) => {
    if (event.target.matches("input[type=search]")) return;
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    go(replay.at + move);
  });
  addEventListener("resize", showReplay);
  showReplay();
}

function go(at) {
  replay.at = Math.max(0, Math.min(replay.chosen.length - 1, at));
  showReplay();
}

function play() {
  if (replay.timer) replay.timer = clearInterval(replay.timer) || 0;
  else
    replay.timer = setInterval(() => {
      if (replay.at >= replay.chosen.length - 1) play();
      else go(replay.at + 1);
    }, 500);
  showReplay();
}

// Only steps with a text, such as "chunk 7 ": that chunk's way.
function filterSteps(text) {
  replay.filter = text;
  const wanted = text.toLowerCase();
  replay.chosen = replay.steps.flatMap((step, at) => (`${step.text} `.toLowerCase().includes(wanted) ? [at] : []));
  go(0);
}

function showReplay() {
  const main = document.getElementById("main");
  const fresh = h("main", { id: "main", tabindex: -1 }, replayPage(main.clientWidth));
  patch(main, fresh);
}

function replayPage(width) {
  const { chosen, steps, at } = replay;
  const step = steps[chosen[at]];
  const button = (text, name, press) => h("button", { type: "button", "aria-label": name, onclick: press }, text);
  const time = step && step.at_ns !== undefined ? `, ${(step.at_ns / 1000).toFixed(2)} µs` : "";
  return [
    h("section", { "data-key": "replay" }, h("h1", {}, replay.title),
      h("p", { class: "controls" },
        button("‹", "previous step", () => go(at - 1)), button(replay.timer ? "❚❚" : "▶", replay.timer ? "pause" : "play", play), button("›", "next step", () => go(at + 1)),
        h("input", { type: "range", min: 0, max: Math.max(0, chosen.length - 1), value: at, "aria-label": "step", oninput: (event) => go(Number(event.target.value)) }),
        h("label", {}, "only steps with ", h("input", { type: "search", placeholder: "chunk 7 ", value: replay.filter, oninput: (event) => filterSteps(event.target.value) }))),
      h("p", { role: "status" }, step ? `Step ${count(at + 1)} of ${count(chosen.length)}${time}: ${step.text}` : "No step has this text."),
      step && replayDrawing(step, width - 34)),
    section("Steps", "", h("ol", { class: "steps", start: Math.max(0, at - AROUND) + 1 }, chosen.slice(Math.max(0, at - AROUND), at + AROUND + 1).map((number, place) => {
      const here = Math.max(0, at - AROUND) + place;
      return h("li", { "aria-current": here === at ? "step" : null },
        h("button", { type: "button", class: steps[number].lost ? "bad" : null, onclick: () => go(here) }, steps[number].text));
    }))),
  ];
}

function replayDrawing(step, width) {
  const { nodes, pairs } = shapeOf();
  const travels = [[step.from, step.to], ...(step.sent || [])];
  const edges = pairs.map(([from, to]) => {
    const goes = travels.find(([a, b]) => (a === from && b === to) || (a === to && b === from));
    const arrow = goes && (goes[0] === from ? "→" : "←");
    return { from, to, tone: goes ? (step.lost ? "bad" : "busy") : null, width: goes ? 4 : 1.5, texts: goes ? [`${arrow} ${cut(step.short || "", 260, 6)}`] : null };
  });
  const last = lastTexts();
  const drawn = nodes.map((node) => ({ ...node, note: last.get(node.id) || "", tone: travels.flat().includes(node.id) ? (step.lost ? "bad" : "ok") : null }));
  return diagram(`Network. ${step.text}`, drawn, edges, Math.max(230, width));
}

// What every node sent or received last, up to the present step.
function lastTexts() {
  const found = new Map();
  for (let at = replay.chosen[replay.at]; at >= 0 && found.size < shapeOf().nodes.length; at--) {
    const step = replay.steps[at];
    for (const name of [step.to, step.from]) if (name && !found.has(name)) found.set(name, step.short || step.text);
  }
  return found;
}

// Nodes with one neighbour are on the right, their neighbours left of them, and so on.
let shape = null;
function shapeOf() {
  if (shape) return shape;
  const near = new Map();
  const touch = (name) => near.get(name) || near.set(name, new Set()).get(name);
  for (const [from, to] of replay.links) touch(from).add(to), touch(to).add(from);
  const names = [...near.keys()].sort(new Intl.Collator("en", { numeric: true }).compare);
  const level = new Map(names.filter((name) => near.get(name).size < 2).map((name) => [name, 0]));
  if (level.size === names.length && names.length) level.set([...names].pop(), 1);
  for (let at = 0; at < names.length; at++)
    for (const name of names) if (level.get(name) === at) for (const other of near.get(name)) if (!level.has(other)) level.set(other, at + 1);
  const top = Math.max(0, ...level.values());
  const nodes = names.map((id) => ({ id, column: top - (level.get(id) || 0), title: id }));
  const column = new Map(nodes.map((node) => [node.id, node.column]));
  const pairs = names.flatMap((a) => [...near.get(a)].filter((b) => column.get(a) < column.get(b) || (column.get(a) === column.get(b) && a < b)).map((b) => [a, b]));
  return (shape = { nodes, pairs });
}

const recorded = document.getElementById("recorded");
if (recorded) startReplay(JSON.parse(recorded.textContent));
else connect();
