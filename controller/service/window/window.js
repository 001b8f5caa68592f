"use strict";
// The window: the page of the network, and one for each job, drawn anew from every snapshot that the controller sends.

const RATES_MS = 2000;
const HISTORY_MS = 60000;
const ROWS = 100;
const HOSTS_DRAWN = 32;
const STATES = { running: "ok", queued: "wait", gathering: "wait", ended: "soft" };

const page = { snapshot: null, history: [], lost: "", events: {}, all: new Set() };

function connect() {
  const stream = new EventSource("stream");
  stream.onmessage = (message) => {
    page.snapshot = JSON.parse(message.data);
    page.lost = "";
    const at = page.snapshot.at * 1000;
    page.history = page.history.filter((each) => each.at * 1000 > at - HISTORY_MS && each.at < page.snapshot.at);
    page.history.push({ at: page.snapshot.at, ports: portCounts(page.snapshot), rates: jobRates(page.snapshot) });
    draw();
  };
  stream.onerror = () => {
    page.lost = page.lost || new Date().toLocaleTimeString("en-GB");
    draw();
    if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 1000);
  };
}

let drawn = false;
function draw() {
  if (drawn) return;
  drawn = true;
  requestAnimationFrame(() => {
    drawn = false;
    show();
  });
}

function show() {
  const status = document.getElementById("status");
  const said = page.lost ? `no connection to the controller since ${page.lost}; trying again` : page.snapshot ? "live" : "connecting";
  if (status.textContent !== said) status.textContent = said;
  status.className = page.lost ? "bad" : "ok";
  document.body.className = page.lost ? "stale" : "";
  if (!page.snapshot) return;
  const [, kind, name] = location.hash.match(/^#\/(job)\/(.*)$/) || [];
  const main = document.getElementById("main");
  const fresh = h("main", { id: "main", tabindex: -1, class: kind ? "job" : "overview", "data-key": location.hash });
  fresh.append(...(kind ? jobPage(decodeURIComponent(name), main.clientWidth) : overview(main.clientWidth)));
  patch(main, fresh);
}

addEventListener("hashchange", () => {
  if (!page.snapshot) return;
  page.events = {};
  show();
  document.getElementById("main").focus();
  scrollTo(0, 0);
});
addEventListener("resize", () => page.snapshot && draw());

// The overview.

function overview(width) {
  const { jobs, switches, hosts, events } = page.snapshot;
  const alive = jobs.filter((job) => job.state !== "ended");
  const running = jobs.filter((job) => job.state === "running");
  const attached = running.flatMap((job) => job.workers).filter((worker) => worker.state === "seated");
  const ready = switches.filter((each) => each.state === "ready");
  document.title = `netsum: ${plural(running.length, "job")} running`;
  const halves = width >= 1068;
  return [
    h("h1", { class: "hidden" }, "Network and jobs"),
    section("Now", "wide",
      facts([
        ["jobs running", `${running.length} of ${alive.length}`],
        ["workers attached", count(attached.length)],
        ["switches ready", `${ready.length} of ${switches.length}`],
        ["slots free", `${count(sum(switches, "free_slots"))} of ${count(sum(switches, "slots"))}`],
        ["elements/s, all jobs", si(sum(jobs, "elements_per_s"), "")],
      ], true)),
    section("Needs attention", "wide", attention(alive, switches)),
    section("Network", "", network(switches, hosts, (halves ? (width - 48) * 0.45 : width) - 66)),
    section("Jobs", "", jobs.length ? jobTable(jobs) : h("p", { class: "soft" }, "No jobs: workers make one when they join, or an operator by ", h("code", {}, "netsum job create"), ".")),
    section("Events", "wide", eventTable("The last events of all jobs, the newest first", events.slice(-ROWS).reverse(), true)),
  ];
}

const section = (title, kind, ...children) =>
  h("section", { "aria-label": title, class: kind, "data-key": title }, h("h2", {}, title), children);
const sum = (rows, name) => rows.reduce((total, row) => total + row[name], 0);
const jobLink = (name) => h("a", { href: `#/job/${encodeURIComponent(name)}` }, name);

function attention(jobs, switches) {
  const items = [];
  for (const each of switches)
    if (each.state !== "ready") items.push(h("li", { class: "bad", "data-key": `switch ${each.name}` }, `switch ${each.name} is ${each.state}: ${each.reason}`));
  for (const job of jobs) {
    const missing = missingOf(job);
    if (job.state !== "running") items.push(h("li", { class: "wait", "data-key": `job ${job.name}` }, jobLink(job.name), ` is ${job.state}: ${job.reason || `${workers(missing)} missing`}`));
    else if (missing.length) items.push(h("li", { class: "bad", "data-key": `job ${job.name}` }, jobLink(job.name), `: ${workers(missing)} ${goneWord(job, missing)}`));
    for (const chunk of waitingChunks(job).slice(0, 1)) items.push(h("li", { class: "bad", "data-key": `chunks of ${job.name}` }, jobLink(job.name), `: ${chunkSentence(chunk)}`));
    const failed = job.workers.filter((worker) => worker.corrupted);
    if (failed.length) items.push(h("li", { class: "bad", "data-key": `failures of ${job.name}` }, jobLink(job.name), `: results failed the check at ${workers(failed.map((worker) => worker.rank))}`));
  }
  return items.length ? h("ul", { class: "attention" }, items) : h("p", { class: "ok" }, "Nothing.");
}

const missingOf = (job) => job.workers.filter((worker) => worker.state !== "seated").map((worker) => worker.rank);
const seated = (job) => `${count(job.workers.length - missingOf(job).length)} of ${count(job.world_size)}`;
const goneWord = (job, missing) => (missing.every((rank) => job.workers[rank].state === "detached") ? "detached, may come back" : "gone");

function jobTable(jobs) {
  const order = { running: 0, queued: 1, gathering: 2, ended: 3 };
  const rows = [...jobs].sort((a, b) => order[a.state] - order[b.state] || b.created - a.created);
  return limited("jobs", rows, (shown) => table("Jobs", [
    ["job", (job) => jobLink(job.name)],
    ["state", (job) => h("span", { class: STATES[job.state] }, job.state)],
    ["workers", (job) => seated(job), true],
    ["slots", (job) => count(job.slot_count), true],
    ["elements/s", (job) => si(job.elements_per_s, ""), true],
    ["retransmissions/s", (job) => si(sum(job.workers, "retransmissions_per_s"), ""), true],
  ], shown, (job) => job.name));
}

// The first rows, and a button that shows all: a table of a thousand rows is slow to draw twice a second.
function limited(name, rows, build) {
  if (rows.length <= ROWS || page.all.has(name)) return build(rows);
  const all = () => (page.all.add(name), show());
  return [build(rows.slice(0, ROWS)), h("p", {}, h("button", { type: "button", onclick: all }, `Show all ${count(rows.length)}`))];
}

function eventTable(caption, events, withJob) {
  if (!events.length) return h("p", { class: "soft" }, "None yet.");
  const of = (event) => (event.switch ? `switch ${event.switch}` : event.rank !== undefined ? `worker ${event.rank}` : "job");
  const made = table(caption, [
    ["time", (event) => h("time", { datetime: new Date(event.at * 1000).toISOString() }, clock(event.at))],
    ...(withJob ? [["job", (event) => (event.job ? jobLink(event.job) : "")]] : []),
    ["of", of],
    ["event", (event) => event.event],
    ["state", (event) => event.after],
    ["reason", (event) => event.reason],
  ], events, (event) => [event.at, event.job, event.switch, event.rank, event.event].join(" "));
  made.className = "events";
  return made;
}

// The network: switches in columns by their distance to hosts, hosts on the right.

function portCounts(snapshot) {
  const counts = {};
  for (const each of snapshot.switches)
    for (const port of each.ports) if (port.rx_bytes !== undefined) counts[`${each.name}/${port.number}`] = port;
  return counts;
}

// Bits per second through a port in both directions, over the last seconds; null if the controller cannot read its counters.
function loadOf(name, port) {
  const now = page.history[page.history.length - 1];
  const then = page.history.findLast((each) => each.at <= now.at - RATES_MS / 1000) || page.history[0];
  const [a, b] = [then.ports[`${name}/${port}`], now.ports[`${name}/${port}`]];
  if (!a || !b || now === then) return null;
  const rate = (field) => Math.max(0, ((b[field] - a[field]) * 8) / (now.at - then.at));
  return { up: rate("rx_bytes"), down: rate("tx_bytes"), dropped: b.rx_dropped + b.tx_dropped };
}

function links(switches, hosts) {
  const level = levels(switches, hosts);
  const joined = new Set();
  const found = [];
  for (const each of switches)
    for (const port of each.ports) {
      const far = level.get(port.peer);
      if (far === undefined || far > level.get(each.name) || (far === level.get(each.name) && port.peer < each.name)) continue;
      joined.add(port.peer);
      found.push({ from: each.name, to: port.peer, load: loadOf(each.name, port.number) });
    }
  for (const host of hosts) if (!joined.has(host.name)) found.push({ from: host.switch, to: host.name, load: null });
  return { level, found };
}

// Hosts are 0, a switch with hosts is 1, one that is next to such a switch 2, and so on.
function levels(switches, hosts) {
  const level = new Map(hosts.map((host) => [host.name, 0]));
  for (const host of hosts) level.set(host.switch, 1);
  for (let at = 1; at <= switches.length; at++)
    for (const each of switches)
      if (level.get(each.name) === at)
        for (const port of each.ports)
          if (port.peer && !level.has(port.peer) && switches.some((one) => one.name === port.peer)) level.set(port.peer, at + 1);
  for (const each of switches) if (!level.has(each.name)) level.set(each.name, 1);
  return level;
}

function network(switches, hosts, width) {
  const { level, found } = links(switches, hosts);
  const top = Math.max(...level.values());
  const busiest = Math.max(1e6, ...found.map((link) => (link.load ? Math.max(link.load.up, link.load.down) : 0)));
  const nodes = switches.map((each) => ({
    id: each.name, column: top - level.get(each.name), title: each.name, tone: each.state === "ready" ? "ok" : "bad",
    note: each.state === "ready" ? `${count(each.slots - each.free_slots)} of ${count(each.slots)} slots` : each.state,
  }));
  const edges = found.filter((link) => level.get(link.to) > 0).map((link) => edge(link, busiest));
  const ranksOn = workersByHost();
  for (const each of switches) {
    const below = found.filter((link) => link.from === each.name && level.get(link.to) === 0);
    if (hosts.length > HOSTS_DRAWN && below.length > 1) {
      const id = `hosts of ${each.name}`;
      const loads = below.map((link) => link.load).filter(Boolean);
      const load = loads.length ? { up: sum(loads, "up"), down: sum(loads, "down") } : null;
      nodes.push({ id, column: top, title: plural(below.length, "host"), note: plural(below.filter((link) => ranksOn[link.to]).length, "host") + " with workers" });
      edges.push(edge({ from: each.name, to: id, load }, busiest));
      continue;
    }
    for (const link of below) {
      nodes.push({ id: link.to, column: top, title: link.to, note: ranksOn[link.to] });
      edges.push(edge(link, busiest));
    }
  }
  const label = `Network: ${plural(switches.length, "switch").replace("switchs", "switches")} and ${plural(hosts.length, "host")}. The table of links says the same.`;
  return [
    diagram(label, nodes, edges, Math.max(230, Math.floor(width))),
    h("details", { "data-key": "links" }, h("summary", {}, `Links as a table (${found.length})`), limited("links", found, linkTable)),
  ];
}

function edge({ from, to, load }, busiest) {
  const most = load ? Math.max(load.up, load.down) : 0;
  const texts = load && most >= 1000 ? [`← ${si(load.up, "bit/s")}`, `→ ${si(load.down, "bit/s")}`] : null;
  return { from, to, texts, tone: most >= 1000 ? "busy" : null, width: (1.5 + (5 * most) / busiest).toFixed(1) };
}

const linkTable = (found) => table("Links", [
  ["link", (link) => `${link.from} – ${link.to}`],
  ["from the hosts", (link) => (link.load ? si(link.load.up, "bit/s") : "not known"), true],
  ["to the hosts", (link) => (link.load ? si(link.load.down, "bit/s") : "not known"), true],
  ["dropped packets", (link) => (link.load ? count(link.load.dropped) : ""), true],
], found);

function workersByHost() {
  const found = {};
  for (const job of page.snapshot.jobs)
    if (job.state !== "ended")
      for (const worker of job.workers) if (worker.host) (found[worker.host] = found[worker.host] || []).push(`${job.name} ${worker.rank}`);
  return found;
}

// A job.

const jobRates = (snapshot) => Object.fromEntries(snapshot.jobs.map((job) => [job.name, job.elements_per_s]));

function jobPage(name, width) {
  const job = page.snapshot.jobs.findLast((each) => each.name === name);
  document.title = `netsum: job ${name}`;
  const back = h("p", {}, h("a", { href: "#/" }, "← all jobs"));
  if (!job) return [h("section", {}, back, h("h1", {}, name), h("p", {}, "The controller has no job of this name."))];
  fetchEvents(name);
  const retransmissions = sum(job.workers, "retransmissions_per_s");
  const rates = page.history.map((each) => each.rates[name] || 0);
  const rows = [...job.workers].sort((a, b) => noteOf(b, job).weight - noteOf(a, job).weight || a.rank - b.rank);
  return [
    h("section", { "data-key": "job" }, back,
      h("h1", {}, `Job ${name} `, h("span", { class: STATES[job.state] }, job.state)),
      job.reason && h("p", {}, job.reason),
      facts([
        ["elements/s", si(job.elements_per_s, "")],
        ["results/s", si(job.results_per_s, "")],
        ["retransmissions/s", si(retransmissions, "")],
        ["slots", `${count(job.slot_count)}, from ${job.slot_base}`],
        ["workers", seated(job)],
      ], true),
      sparkline(`Elements per second in the last minute, ${si(Math.max(0, ...rates), "")} at most`, rates, Math.max(200, width - 34)),
      facts([["on", job.switch || "no switch yet"], ["lanes", job.lanes], ["epoch", job.epoch], ["restarts", job.restarts], ["moves", job.moves],
        ["waited", job.waited_s ? `${job.waited_s.toFixed(1)} s` : ""], ["quorum", job.quorum || ""], ["created", new Date(job.created * 1000).toLocaleString("en-GB")]])),
    section("A chunk's way", "", chunkWay(job, width - 34)),
    section("Workers", "", limited("workers", rows, (shown) => table("Workers, those that need attention first", [
      ["rank", (worker) => worker.rank, true],
      ["host", (worker) => worker.host],
      ["state", (worker) => h("span", { class: noteOf(worker, job).tone }, noteOf(worker, job).text)],
      ["chunks", (worker) => count(worker.chunks), true],
      ["chunks/s", (worker) => si(worker.chunks_per_s, ""), true],
      ["retransmissions", (worker) => count(worker.retransmissions), true],
      ["per s", (worker) => si(worker.retransmissions_per_s, ""), true],
      ["in flight", (worker) => worker.in_flight, true],
      ["round trip", (worker) => `${(worker.srtt_ns / 1e6).toFixed(2)} ms`, true],
    ], shown, (worker) => worker.rank))),
    section("Events", "", eventTable("Events of this job, the newest first", (page.events[name] || eventsOf(name)).slice(-ROWS).reverse(), false)),
  ];
}

const eventsOf = (name) => page.snapshot.events.filter((event) => event.job === name);

// The snapshot has the last events of all jobs; those of this job are fetched when it gets another one.
let fetched = "";
function fetchEvents(name) {
  const last = eventsOf(name).pop();
  const state = `${name} ${last ? last.at : 0}`;
  if (state === fetched) return;
  fetched = state;
  fetch(`events?job=${encodeURIComponent(name)}`).then((reply) => reply.json()).then((events) => {
    page.events = { [name]: events };
    draw();
  }, () => (fetched = ""));
}

const SILENT_S = 3;
function noteOf(worker, job) {
  const waiting = worker.state === "seated" && waitedFor(job).has(worker.rank);
  if (worker.state === "left") return { text: "has left", tone: job.state === "ended" ? "soft" : "bad", weight: 4 };
  if (worker.state === "absent") return { text: "has not joined", tone: "wait", weight: 3 };
  if (worker.state === "detached") return { text: "its connection broke", tone: "bad", weight: 4 };
  if (worker.corrupted) return { text: `${plural(worker.corrupted, "result")} failed the check`, tone: "bad", weight: 3 };
  if (waiting) return { text: "slow: others wait for it", tone: "bad", weight: 3 };
  if (job.last && job.last.rank === worker.rank) {
    const late = (Number(job.last.late_ns) / 1e6).toFixed(1);
    return { text: `slow: last in ${Math.round(job.last.share * 100)} % of collectives, by ${late} ms`, tone: "wait", weight: 2 };
  }
  if (worker.seen_s > SILENT_S) return { text: `no report for ${count(worker.seen_s)} s`, tone: "wait", weight: 2 };
  if (worker.stuck) return { text: "waits", tone: "wait", weight: 1 };
  return { text: "attached", tone: "ok", weight: 0 };
}

const waitedFor = (job) => new Set(waitingChunks(job).flatMap((chunk) => chunk.missing));

// The chunks that workers wait for, each once, the longest first. A switch says of a switch below only that it is not complete: all
// ranks behind that one are missing then, but for those that have said that their own contribution is in.
function waitingChunks(job) {
  if (job.waitingChunks) return job.waitingChunks;
  const found = new Map();
  for (const worker of job.workers) {
    if (!worker.stuck) continue;
    const { slot, chunk, waiting_ns, missing, switch_answered } = worker.stuck;
    const one = found.get(chunk) || { slot, chunk, waiting: [], missing: new Set(), contributed: new Set(), ns: 0, answered: false };
    one.waiting.push(worker.rank);
    missing.forEach((rank) => one.missing.add(rank));
    if (switch_answered && !missing.includes(worker.rank)) one.contributed.add(worker.rank);
    one.ns = Math.max(one.ns, waiting_ns);
    one.answered = one.answered || switch_answered;
    found.set(chunk, one);
  }
  const several = job.tree.length > 1;
  job.waitingChunks = [...found.values()].map((one) => ({ ...one, several, missing: [...one.missing].filter((rank) => !one.contributed.has(rank)) })).sort((a, b) => b.ns - a.ns);
  return job.waitingChunks;
}

function chunkSentence(one) {
  const [least, have] = one.missing.length === 1 ? ["", "has"] : one.several ? ["at least one of ", "has"] : ["", "have"];
  const why = one.missing.length ? `${least}${workers(one.missing)} ${have} not contributed`
    : one.answered ? "all have contributed, the result does not arrive" : "the switch does not answer";
  return `chunk ${one.chunk} in slot ${one.slot} waits for ${(one.ns / 1e9).toFixed(1)} s: ${why}`;
}

function chunkWay(job, width) {
  const [chunk] = waitingChunks(job);
  const all = job.workers.map((worker) => worker.rank);
  const tree = job.tree.length ? job.tree : job.switch ? [{ name: job.switch, parent: "", ranks: all, counters: job.counters }] : [];
  if (!tree.length) return h("p", { class: "soft" }, "The job has no switch yet.");
  const said = chunk ? `C${chunkSentence(chunk).slice(1)}.` : "No chunk waits: contributions go from the workers on the right to the root on the left, results back.";
  const { nodes, edges } = treeDrawing(job, tree, chunk);
  return [h("p", { class: chunk ? "bad" : "soft" }, said), diagram(`The job's tree. ${said}`, nodes, edges, Math.max(230, Math.floor(width)))];
}

// With a chunk that waits, each switch says what it has of that chunk.
function treeDrawing(job, tree, chunk) {
  const missing = new Set(chunk ? chunk.missing : []);
  const depth = (one) => (one.parent ? 1 + depth(tree.find((each) => each.name === one.parent)) : 0);
  const below = (one) => [...one.ranks, ...tree.filter((each) => each.parent === one.name).flatMap(below)];
  const deepest = Math.max(...tree.map(depth)) + 1;
  const [nodes, edges] = [[], []];
  for (const one of tree) {
    const late = below(one).filter((rank) => missing.has(rank));
    const has = below(one).length - late.length;
    const silent = chunk && !chunk.answered && !missing.size;
    const done = one.parent ? "complete, passed up" : "complete, result sent";
    const note = !chunk ? `${si(one.counters.contributions || 0, "")} contributions` : silent ? "no answer" : late.length ? `has ${has} of ${below(one).length}` : done;
    nodes.push({ id: one.name, column: depth(one), title: one.name, note, tone: silent ? "bad" : late.length ? "wait" : "ok" });
    if (one.parent) edges.push({ from: one.parent, to: one.name, tone: late.length ? "wait" : "busy" });
    leaves(job, one, missing, chunk, deepest, nodes, edges);
  }
  return { nodes, edges };
}

function leaves(job, one, missing, chunk, column, nodes, edges) {
  const late = one.ranks.filter((rank) => missing.has(rank));
  const groups = job.workers.length <= HOSTS_DRAWN ? one.ranks.map((rank) => [rank]) : [late, one.ranks.filter((rank) => !missing.has(rank))];
  for (const group of groups.filter((each) => each.length)) {
    const [worker, id] = [job.workers[group[0]], `${one.name} ${group[0]}`];
    const bad = missing.has(group[0]) || (group.length === 1 && noteOf(worker, job).tone === "bad");
    const state = group.length > 1 ? "" : ` on ${worker.host || "no host yet"}`;
    const note = chunk ? (missing.has(group[0]) ? "has not contributed" : "contributed") : group.length > 1 ? "" : noteOf(worker, job).text;
    nodes.push({ id, column, title: workers(group) + state, short: ranks(group), note, tone: bad ? "bad" : job.state === "ended" ? null : "ok" });
    edges.push({ from: one.name, to: id, tone: bad ? "bad" : job.state === "ended" ? null : "busy" });
  }
}
