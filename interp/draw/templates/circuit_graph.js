// The graph of a circuit: nodes by layer and by the token position at which they act.
const found = JSON.parse(document.getElementById("circuit").textContent);
const WIDE = 66, HIGH = 24, GAP = 8, ROW = 74, WRAP = 30, MOST = 8, EDGE_HITS = 600, FIRST = 40, PARTS = { q: -20, k: 0, v: 20 };
const by = new Map(found.nodes.map((n) => [n.id, n]));
const owner = (end) => end.split(".")[0], part = (end) => end.split(".")[1] ?? "";
const links = found.edges.map(([from, to, effect, low, high, way], at) => ({ at, from, to, node: owner(to), part: part(to), effect, low, high, how: found.how[way][0], rough: found.how[way][1] }));
for (const l of links) for (const id of [l.from, l.node]) if (!by.has(id)) by.set(id, { id }); // ends without a score
const names = [...by.keys()], inSet = new Set(found.set?.nodes ?? []), setEdges = new Set(found.set?.edges ?? []);
const size = (n) => Math.abs(n.without ?? 0) > Math.abs(n.effect ?? 0) ? n.without : n.effect ?? n.estimate ?? 0;
const largest = Math.max(...[...by.values()].map((n) => Math.abs(size(n))), 0) || 1;
const widest = Math.max(...links.map((l) => Math.abs(l.effect ?? 0)), 0) || 1;
const ends = (x) => [x.effect, x.low, x.high].map((v) => Math.abs(v ?? 0));
const AXIS = { nodes: Math.max(...[...by.values()].flatMap(ends), largest), links: Math.max(...links.flatMap(ends), widest) };
const allRough = links.length > 0 && links.every((l) => l.rough);
const host = document.querySelector(".graph"), said = document.querySelector(".circuit [role=status]");
const spell = (x) => (x === null || x === undefined ? "" : Math.abs(x) >= 100 ? x.toFixed(0) : Number(x.toPrecision(3)).toString());
const between = (x) => (x.low === null || x.low === undefined ? "" : ` [${spell(x.low)}, ${spell(x.high)}]`);

function level(id) {
  const m = /^(L|mlp)(\d+)/.exec(id);
  return m ? Number(m[2]) + (m[1] === "mlp" ? 0.5 : 0) : id === "logits" ? 1e6 : -1;
}
// The state of the page; it is what the address holds and what undo goes back to.
const fresh = () => ({ k: found.set ? 0 : Math.min(names.length, 16), e: FIRST, rough: allRough, pins: [], hidden: [], groups: [], open: "", other: false });
let state = fresh();
let other = found.published ? { name: found.published.name, nodes: new Set(found.published.heads) } : null;

function shownNodes() {
  const ids = state.k ? names.slice(0, state.k) : names.filter((id) => inSet.has(id) || id === "logits");
  const kept = new Set([...ids, ...state.pins]);
  if (by.has("logits")) kept.add("logits");
  if (state.other && other) for (const id of other.nodes) if (by.has(id)) kept.add(id);
  for (const id of state.hidden) kept.delete(id);
  return kept;
}
function groupOf() {
  return new Map(state.groups.flatMap(([name, ...ids]) => ids.map((id) => [id, name])));
}
function possibleLinks(nodes) { // the largest first, those of the set before others
  const some = links.filter((l) => nodes.has(l.from) && nodes.has(l.node)
    && (state.k ? (state.rough || !l.rough) : setEdges.size ? setEdges.has(l.at) : state.rough || !l.rough));
  return [...some.filter((l) => setEdges.has(l.at)), ...some.filter((l) => !setEdges.has(l.at))];
}
const shownLinks = (nodes) => possibleLinks(nodes).slice(0, state.e);
function columnOf(id) { // the position at which a node acts: where its strongest attention starts
  if (id === "logits") return Math.max(...Object.values(found.pair.positions ?? {}), -1);
  return by.get(id)?.reads?.[0] ?? -1;
}
function columnName(at) {
  if (at < 0) return "any position";
  const roles = Object.entries(found.pair.positions ?? {}).filter(([, p]) => p === at).map(([name]) => name);
  return `${roles.join(", ") || at}: ${found.pair.clean?.[at] ?? ""}`;
}

// Places of nodes: columns by position, rows by layer; a cell with many nodes is wrapped.
function layout(ids) {
  const cells = new Map(), columns = [...new Set(ids.map(columnOf))].sort((a, b) => a - b);
  const levels = [...new Set(ids.map(level))].sort((a, b) => b - a);
  for (const id of ids) {
    const key = `${level(id)}|${columnOf(id)}`;
    cells.set(key, [...(cells.get(key) ?? []), id]);
  }
  const left = new Map(), places = new Map();
  const most = columns.length > 1 ? MOST : 2 * MOST;
  let x = 62;
  for (const c of columns) {
    const wide = Math.max(...levels.map((l) => Math.min((cells.get(`${l}|${c}`) ?? []).length, most)), 1.5);
    left.set(c, [x, wide * (WIDE + GAP)]);
    x += wide * (WIDE + GAP) + 26;
  }
  let y = 30;
  const rows = [];
  for (const l of levels) {
    let deep = 1;
    for (const c of columns) {
      const row = (cells.get(`${l}|${c}`) ?? []).sort((a, b) => Number(a.split("H")[1]) - Number(b.split("H")[1]) || 0);
      deep = Math.max(deep, Math.ceil(row.length / most));
      const [start, room] = left.get(c), across = Math.min(row.length, most);
      row.forEach((id, i) => {
        const inRow = Math.min(across, row.length - Math.floor(i / most) * most);
        places.set(id, [start + (room - inRow * (WIDE + GAP)) / 2 + ((i % most) + 0.5) * (WIDE + GAP), y + Math.floor(i / most) * WRAP]);
      });
    }
    rows.push([l, y]);
    y += ROW + (deep - 1) * WRAP;
  }
  return { places, columns, left, rows, width: Math.max(x, 420), height: y - ROW + HIGH + 24 };
}

let drawn = { nodes: new Map(), edges: [], near: new Map() };
function draw() {
  const groups = groupOf(), nodes = shownNodes(), lines = shownLinks(nodes), first = new Map();
  for (const id of nodes) if (groups.has(id) && !first.has(groups.get(id))) first.set(groups.get(id), id);
  const stands = (id) => first.get(groups.get(id)) ?? id; // the node of a group that stands for it
  const ids = [...nodes].filter((id) => stands(id) === id), map = layout(ids);
  const svg = make("svg", { viewBox: `0 0 ${map.width} ${map.height}`, width: map.width, height: map.height, class: "figure circuit", role: "group", "aria-label": `${ids.length} nodes and ${lines.length} edges` });
  for (const c of map.columns) {
    const [x, room] = map.left.get(c);
    svg.append(make("rect", { class: "lane", x: x - 8, y: 0, width: room + 16, height: map.height, rx: 6 }),
      make("text", { class: "soft", x, y: 14 }, columnName(c).slice(0, Math.max(10, room / 7))));
  }
  for (const [l, y] of map.rows) if (l >= 0 && l < 1e6 && Number.isInteger(l)) svg.append(make("text", { class: "soft", x: 2, y: y + 4 }, `layer ${l}`));
  const paths = make("g"), boxes = make("g");
  svg.append(paths, boxes);
  drawn = { nodes: new Map(), edges: [], near: new Map(), map, stands };
  const hits = lines.length <= EDGE_HITS;
  for (const l of [...lines].reverse()) {
    const a = stands(l.from), b = stands(l.node);
    if (a === b) continue;
    const [x0, y0] = map.places.get(a), [x, y1] = map.places.get(b), x1 = x + (groups.has(l.node) ? 0 : PARTS[l.part] ?? 0);
    const top = y0 - HIGH / 2, low = y1 + HIGH / 2, bend = Math.max((top - low) / 2, 14);
    const d = `M${x0} ${top}C${x0} ${top - bend} ${x1} ${low + bend} ${x1} ${low}`, minus = (l.effect ?? 0) < 0;
    const line = make("path", { class: `edge${minus ? " minus" : ""}${l.rough ? " rough" : ""}`, d, "stroke-width": (0.5 + 4.5 * Math.abs(l.effect ?? 0) / widest).toFixed(1), "data-at": l.at });
    line.append(make("title", {}, edgeText(l)));
    paths.append(line);
    if (hits) paths.append(make("path", { class: "hit", d, "data-at": l.at }, make("title", {}, edgeText(l))));
    drawn.edges.push([l, line]);
    for (const id of [a, b]) drawn.near.set(id, [...(drawn.near.get(id) ?? []), [l, line]]);
  }
  for (const id of ids) boxes.append(box(id, map.places.get(id), groups.get(id)));
  host.replaceChildren(svg);
  host.classList.toggle("wide", host.scrollWidth > host.clientWidth + 1);
  light(state.open);
}
const effectText = (l) => l.effect === null ? "not measured" : `${spell(l.effect)}${between(l)} ${found.unit}`;
function edgeText(l) {
  return `${l.from} to ${l.node}${l.part ? `, ${{ q: "query", k: "key", v: "value" }[l.part] ?? l.part}` : ""}: ${effectText(l)}${l.rough ? ", an estimate" : ""}`;
}
function nodeText(id) {
  const n = by.get(id), reads = readsText(n);
  return `${id}: ${n.effect === undefined ? "not measured" : `${spell(n.effect)}${between(n)} ${found.unit}`}${n.role ? `, ${n.role}` : ""}${reads ? `, ${reads}` : ""}`;
}
function readsText(n, whole = true) {
  if (!n.reads) return "";
  const name = (at) => Object.entries(found.pair.positions ?? {}).find(([, p]) => p === at)?.[0] ?? found.pair.clean?.[at] ?? at;
  return `${whole ? `${name(n.reads[0])} ` : ""}\u2192 ${name(n.reads[1])} ${n.reads[2].toFixed(2)}`;
}
function box(id, [x, y], group) {
  const n = by.get(id), minus = size(n) < 0, far = inSet.size && !inSet.has(id) && id !== "logits";
  const kind = ["node", minus ? "minus" : "", group ? "group" : "", far ? "far" : "", n.rough ? "rough" : "", state.pins.includes(id) ? "pinned" : "",
    state.other && other ? (other.nodes.has(id) ? "there" : /^L/.test(id) ? "here" : "") : ""].filter(Boolean).join(" ");
  const reads = readsText(n, false), text = group ?? id, wide = group ? WIDE + 8 : WIDE;
  const g = make("g", { class: kind, tabindex: 0, role: "button", "data-node": id });
  g.append(make("title", {}, group ? `${group}: ${state.groups.find(([g]) => g === group).slice(1).join(", ")}` : nodeText(id)),
    make("rect", { class: "back", x: x - wide / 2, y: y - HIGH / 2, width: wide, height: HIGH, rx: 5 }),
    make("rect", { class: "face", x: x - wide / 2, y: y - HIGH / 2, width: wide, height: HIGH, rx: 5, "fill-opacity": (0.06 + 0.5 * Math.abs(size(n)) / largest).toFixed(2) }),
    make("text", { x, y: y + 4, "text-anchor": "middle" }, text.length > 10 ? `${text.slice(0, 9)}\u2026` : text));
  if (reads && !group && drawn.map.places.size <= 60) g.append(make("text", { class: "soft reads", x, y: y + HIGH / 2 + 11, "text-anchor": "middle" }, reads.length > 15 ? reads.slice(0, 14) + "\u2026" : reads));
  drawn.nodes.set(id, g);
  return g;
}
// Shows a node with its edges, or one edge with its ends, and fades the rest.
function light(what) {
  const svg = host.querySelector("svg.circuit");
  if (!svg) return;
  for (const e of svg.querySelectorAll(".on")) e.classList.remove("on");
  const l = linkOf(what), id = l ? "" : drawn.stands?.(what);
  const near = l ? drawn.edges.filter(([x]) => x.at === l.at) : drawn.near.get(id) ?? [];
  const is = l ? near.length > 0 : drawn.nodes.has(id);
  svg.classList.toggle("focus", is);
  if (!is) return;
  for (const [x, line] of near) {
    line.classList.add("on");
    for (const end of [x.from, x.node]) drawn.nodes.get(drawn.stands(end))?.classList.add("on");
  }
  drawn.nodes.get(id)?.classList.add("on");
}
function linkOf(what) {
  const [from, to] = String(what).split(">");
  return to ? links.find((l) => l.from === from && l.to === to) : undefined;
}
const nameOf = (l) => `${l.from}>${l.to}`;
host.addEventListener("pointerover", (event) => {
  const node = event.target.closest("[data-node]"), edge = event.target.closest("[data-at]");
  light(node ? node.dataset.node : edge ? nameOf(links[edge.dataset.at]) : state.open);
});
host.addEventListener("pointerleave", () => light(state.open));
host.addEventListener("click", (event) => {
  const node = event.target.closest("[data-node]"), edge = event.target.closest("[data-at]");
  if (node || edge) change({ open: node ? node.dataset.node : nameOf(links[edge.dataset.at]) });
});
host.addEventListener("keydown", (event) => {
  const node = event.target.closest("[data-node]");
  if (!node) return;
  if (event.key === "Enter" || event.key === " ") { event.preventDefault(); change({ open: node.dataset.node }); focusOn(node.dataset.node); return; }
  const step = STEPS[event.key];
  if (!step) return;
  event.preventDefault();
  const [x, y] = drawn.map.places.get(node.dataset.node);
  const score = ([, [a, b]]) => { // the nearest node in that direction
    const along = step[0] ? (b - y) * step[0] : (a - x) * step[1], aside = step[0] ? Math.abs(a - x) : Math.abs(b - y);
    return along > 2 ? along + 3 * aside : Infinity;
  };
  const next = [...drawn.map.places].sort((a, b) => score(a) - score(b))[0];
  if (score(next) < Infinity) { focusOn(next[0]); light(next[0]); }
});
function focusOn(id) { drawn.nodes.get(id)?.focus(); }
