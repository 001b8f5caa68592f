"use strict";
// Elements, tables and numbers. All text enters the page as text nodes: no name is ever read as markup.

function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element[name] = value;
    else if (value !== undefined && value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Make an element like a new one, changing only what differs: focus, selection and open details stay. Children with a `data-key`
// keep their element when others come, go or change places.
function patch(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || key(old) !== key(fresh)) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes])
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const name of ["onclick", "oninput", "onchange"]) if (old[name] !== fresh[name]) old[name] = fresh[name];
  const wanted = new Set([...fresh.children].map(key));
  const kept = new Map();
  for (const child of [...old.children]) wanted.has(key(child)) ? kept.set(key(child), child) : child.remove();
  let next = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const same = key(child) ? kept.get(key(child)) : next;
    kept.delete(key(child));
    if (!same) {
      old.insertBefore(child, next);
      continue;
    }
    // An element that moves loses the focus, so others move around the one that has it.
    while (next !== same && same.contains(document.activeElement)) {
      const rest = next.nextSibling;
      old.append(next);
      next = rest;
    }
    if (next === same) next = next.nextSibling;
    else old.insertBefore(same, next);
    patch(same, child);
  }
  while (next) {
    const rest = next.nextSibling;
    next.remove();
    next = rest;
  }
}

const key = (node) => (node.getAttribute && node.getAttribute("data-key")) || "";

// columns: [title, cell of a row, whether it is a number]. keyOf: gives the rows' `data-key`. Roles are stated because narrow windows show rows as blocks.
function table(caption, columns, rows, keyOf = () => null) {
  const kind = (column) => (column[2] ? "number" : null);
  const head = columns.map((column) => h("th", { scope: "col", role: "columnheader", class: kind(column) }, column[0]));
  const line = (row) =>
    h("tr", { role: "row", "data-key": keyOf(row) }, columns.map((column) => h("td", { role: "cell", class: kind(column), "data-label": column[0] }, column[1](row))));
  return h("table", { role: "table", "aria-label": caption },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)), h("tbody", { role: "rowgroup" }, rows.map(line)));
}

function facts(pairs, big) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: big ? "facts big" : "facts" }, shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

const count = (value) => Math.round(value).toLocaleString("en");
const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB") + "." + String(Math.floor((at % 1) * 10));

// 34,100,000 as 34.1 M: three digits, and the unit that follows.
function si(value, unit) {
  const [by, letter] = value >= 1e9 ? [1e9, "G"] : value >= 1e6 ? [1e6, "M"] : value >= 1e3 ? [1e3, "k"] : [1, ""];
  const scaled = value / by;
  return `${scaled >= 100 || by === 1 ? Math.round(scaled) : scaled.toPrecision(3)} ${letter}${unit}`;
}

// 0, 1, 2, 3, 7 as "0 to 3, 7".
function ranks(numbers) {
  const runs = [];
  for (const each of [...numbers].sort((a, b) => a - b)) {
    const last = runs[runs.length - 1];
    if (last && each === last[1] + 1) last[1] = each;
    else runs.push([each, each]);
  }
  return runs.map(([from, to]) => (from === to ? from : to === from + 1 ? `${from}, ${to}` : `${from} to ${to}`)).join(", ");
}

const workers = (numbers) => `worker${numbers.length === 1 ? "" : "s"} ${ranks(numbers)}`;
