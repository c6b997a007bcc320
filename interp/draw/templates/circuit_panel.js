// What stands beside the graph: controls, the node or edge that is open, undo and the address.
const about = document.querySelector(".circuit .about"), bar = document.querySelector(".circuit .controls");
const past = [];
function change(step, told = "") {
  past.push(JSON.stringify(state));
  state = { ...state, ...step };
  refresh(told);
}
function refresh(told = "") {
  controls();
  draw();
  panel();
  said.textContent = told || caption();
  const short = JSON.stringify(state);
  history.replaceState(null, "", short === JSON.stringify(fresh()) ? location.pathname + location.search : `#${encodeURIComponent(short)}`);
}
function undo() {
  const before = past.pop();
  if (before) { state = JSON.parse(before); refresh("One step was undone."); }
}
addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "z" && !event.target.closest("input, textarea")) { event.preventDefault(); undo(); }
});
function toggled(list, id) { return list.includes(id) ? list.filter((x) => x !== id) : [...list, id]; }

function caption() {
  const nodes = shownNodes(), all = possibleLinks(nodes).length, lines = Math.min(all, state.e);
  let text = !all ? `${nodes.size} nodes are drawn; no edge between them was measured.`
    : `${nodes.size} nodes and ${lines < all ? `the ${lines} strongest of ${all}` : all} edges are drawn.`;
  if (host.classList.contains("wide")) text += " The graph is wider than this window: scroll it sideways.";
  if (!state.k && found.set) text = `The set: ${found.set.text}. ${text}`;
  else {
    const heads = names.slice(0, state.k).filter((id) => id.startsWith("L")).length;
    const near = found.sizes.filter((s) => s.heads <= heads).at(-1);
    if (near && near.heads > 0) text += ` The first ${near.heads} head${near.heads > 1 ? "s" : ""} alone keep ${percent(near.kept)}${near.low === undefined || near.low === null ? "" : ` [${Math.round(100 * near.low)}, ${Math.round(100 * near.high)}]`}${near.random === undefined ? "" : `; random heads ${percent(near.random)}`}.`;
  }
  if (found.left_out > 0) text += ` ${found.left_out} smaller edges are in the files, not on this page.`;
  if (links.some((l) => l.rough) && !state.rough) text += " Estimates are not drawn.";
  if (state.other && other) text += ` ${compared()}`;
  return text;
}
const percent = (x) => `${Math.round(100 * x)} %`;
function compared() {
  const mine = new Set([...(inSet.size ? inSet : names.slice(0, state.k))].filter((id) => id.startsWith("L")));
  const both = [...other.nodes].filter((id) => mine.has(id)).length, all = new Set([...mine, ...other.nodes]).size;
  const gone = [...other.nodes].filter((id) => !by.has(id));
  return `${other.name}: ${both} of its ${other.nodes.size} heads are among the ${mine.size} heads here (${all ? percent(both / all) : "0 %"} of both together)${gone.length ? `; not in this file: ${gone.slice(0, 8).join(", ")}` : ""}.`;
}

function controls() {
  const last = names.length, label = state.k ? `first ${state.k} of ${last} nodes` : `the set, ${inSet.size} nodes`;
  const read = make("output", {}, label);
  const slide = make("input", { type: "range", min: found.set ? 0 : 1, max: last, value: state.k, "aria-label": "number of nodes",
    oninput: () => { state.k = Number(slide.value); draw(); said.textContent = caption(); read.textContent = state.k ? `first ${state.k} of ${last} nodes` : `the set, ${inSet.size} nodes`; },
    onchange: () => refresh() });
  const parts = [make("label", {}, "Size ", slide, " ", read)];
  const all = possibleLinks(shownNodes()).length, few = (e) => `${Math.min(e, all)} of ${all} edges`;
  if (all > 1) {
    const count = make("output", {}, few(state.e));
    const edges = make("input", { type: "range", min: 1, max: all, value: Math.min(state.e, all), "aria-label": "number of edges",
      oninput: () => { state.e = Number(edges.value); draw(); said.textContent = caption(); count.textContent = few(state.e); },
      onchange: () => refresh() });
    parts.push(make("label", {}, "Edges ", edges, " ", count));
  }
  if (links.some((l) => l.rough)) parts.push(tick("Estimates (dashed)", state.rough, () => change({ rough: !state.rough })));
  if (other) parts.push(tick(`Compare with ${other.name}`, state.other, () => change({ other: !state.other })));
  const file = make("input", { type: "file", accept: ".json", hidden: true, onchange: () => readOther(file.files[0]) });
  const tools = [
    control("Undo", undo, { disabled: past.length === 0 }),
    control("Reset", () => change(fresh()), {}),
    control("Compare with a file", () => file.click()), file,
    control("Copy link", copyLink), control("SVG", saveSvg), control("GraphML", saveGraphml), control("circuit-tracer", saveTracer),
  ];
  if (state.hidden.length) tools.unshift(control(`Show ${state.hidden.length} hidden`, () => change({ hidden: [] })));
  if (state.pins.length > 1) tools.unshift(groupForm());
  const active = document.activeElement?.getAttribute?.("aria-label");
  bar.replaceChildren(...parts, ...tools);
  if (active?.startsWith("number of")) bar.querySelector(`[aria-label="${active}"]`)?.focus();
}
function tick(text, checked, onchange) {
  return make("label", {}, make("input", { type: "checkbox", checked, onchange }), ` ${text}`);
}
function groupForm() {
  const name = make("input", { type: "text", size: 10, maxlength: 40, "aria-label": "name of the group", placeholder: "group" });
  const go = () => {
    const ids = state.pins, rest = state.groups.map(([g, ...x]) => [g, ...x.filter((id) => !ids.includes(id))]).filter((g) => g.length > 1);
    const base = name.value.trim() || `${ids.length} nodes`, used = rest.map(([g]) => g);
    let title = base;
    for (let i = 2; used.includes(title); i += 1) title = `${base} ${i}`;
    change({ groups: [...rest, [title, ...ids]], pins: [] }, `${title}: ${ids.join(", ")}`);
  };
  return make("span", {}, name, " ", control(`Group ${state.pins.length} pinned`, go));
}
function readOther(file) {
  if (!file) return;
  file.text().then((text) => {
    let given;
    try { given = JSON.parse(text); } catch { given = null; }
    const nodes = given?.tables?.smallest_nodes?.map((row) => row.node) ?? given?.nodes;
    if (!Array.isArray(nodes) || nodes.some((n) => typeof n !== "string")) {
      said.textContent = `${file.name} is not a circuit; give the circuit.json of interp circuit.`;
      return;
    }
    other = { name: `${given.task ?? file.name} in ${given.model ?? "another model"}`, nodes: new Set(nodes.filter((n) => n.startsWith("L"))) };
    change({ other: true });
  });
}
function copyLink() {
  const done = () => { said.textContent = "The address with this view was copied."; };
  if (navigator.clipboard) navigator.clipboard.writeText(location.href).then(done, () => { said.textContent = location.href; });
  else said.textContent = location.href;
}

// The node or edge that is open.
function panel() {
  const l = linkOf(state.open);
  about.replaceChildren(...(l ? edgePanel(l) : by.has(state.open) ? nodePanel(by.get(state.open)) : firstPanel()));
}
function firstPanel() {
  const printed = (n) => size(n) === n.without ? { effect: n.without, on: n.on } : n; // by which nodes are ordered
  const rows = names.slice(0, 8).map((id) => [id, printed(by.get(id)), () => change({ open: id })]);
  return [make("h2", {}, "The first nodes"), effectTable(rows, AXIS.nodes), make("p", { class: "note" }, "Choose a node or an edge to see what it does.")];
}
// Lines with a name, a bar with its interval on an axis that all lines share, and the number.
function effectTable(rows, most) {
  const signed = rows.some(([, x]) => Math.min(x.effect ?? x.estimate ?? 0, x.low ?? 0) < -most / 50);
  return make("div", { class: "effects" }, ...rows.map((row) => effectRow(...row, most, signed)));
}
function effectRow(name, x, go, most, signed) {
  const value = x.effect ?? x.estimate ?? null, WIDTH = 96;
  const svg = make("svg", { viewBox: `0 0 ${WIDTH} 12`, width: WIDTH, height: 12, "aria-hidden": "true", class: "bars" });
  if (value !== null) {
    const zero = signed ? WIDTH / 2 : 0, to = (v) => within(zero + (WIDTH - zero) * v / most, 0, WIDTH);
    svg.append(make("rect", { class: value < 0 ? "minus" : "plus", x: Math.min(zero, to(value)), y: 2, width: Math.max(Math.abs(to(value) - zero), 0.5), height: 8 }));
    if (x.low !== null && x.low !== undefined) svg.append(make("path", { class: "error", d: `M${to(x.low)} 6H${to(x.high)}` }));
    svg.append(make("path", { class: "base", d: `M${zero} 0V12` }));
  }
  return make("div", { class: "effect" }, control(name, go), svg, make("span", { class: "number" }, value === null ? "not measured" : `${spell(value)}${between(x)}${x.on && !x.id ? ` (${x.on} out)` : ""}`));
}
function nodePanel(n) {
  const pinned = state.pins.includes(n.id), group = groupOf().get(n.id);
  const parts = [make("h2", { tabindex: -1 }, n.id, n.role ? make("span", { class: "soft" }, ` ${n.role}`) : "")];
  if (n.says) parts.push(make("p", { class: "sentence" }, n.says));
  parts.push(make("p", {}, n.effect === undefined ? "Not measured." : `${spell(n.effect)}${between(n)} ${found.unit}${n.how ? `, ${n.how}` : ""}, ${found.n} pairs.`,
    n.without === undefined ? "" : ` With ${n.on} ablated: ${spell(n.without)} ${found.unit}.`, n.estimate === undefined || n.effect !== undefined && !n.rough ? "" : ` Estimate by gradients: ${spell(n.estimate)}.`));
  parts.push(make("div", { class: "controls" }, control(pinned ? "Unpin" : "Pin", () => change({ pins: toggled(state.pins, n.id) })),
    control("Hide", () => change({ hidden: [...state.hidden, n.id], open: "", pins: state.pins.filter((x) => x !== n.id) })),
    ...(group ? [control(`Ungroup ${group}`, () => change({ groups: state.groups.filter(([g]) => g !== group) }))] : []),
    control("Close", () => change({ open: "" }))));
  if (n.row) parts.push(make("h3", {}, "Attention on the first pair"), attended(n));
  if (n.why) parts.push(make("h3", {}, "Why it attends there"), ...why(n));
  if (n.writes) parts.push(make("h3", {}, "What it writes"), ...written(n));
  const missing = Object.entries(found.missing).filter(([what]) => n[what] === undefined && (n.reads || what === "writes"));
  if (missing.length) parts.push(make("details", {}, make("summary", {}, "What could not be read"), ...missing.map(([, why]) => make("p", { class: "note" }, why))));
  const into = links.filter((l) => l.node === n.id), from = links.filter((l) => l.from === n.id);
  for (const [title, some, name] of [["Reads from", into, (l) => (l.part ? `${l.from} (${l.part})` : l.from)], ["Is read by", from, (l) => l.to]]) {
    if (!some.length) continue;
    const seen = some.filter((l) => state.rough || allRough || !l.rough).slice(0, 8);
    parts.push(make("h3", {}, title), effectTable(seen.map((l) => [name(l), l, () => change({ open: nameOf(l) })]), AXIS.links));
    if (some.length > seen.length) parts.push(make("p", { class: "note" }, `${some.length - seen.length} more, smaller or estimated.`));
  }
  return parts;
}
function attended(n) {
  const [query, key] = n.reads;
  const spans = n.row.map((weight, at) => {
    const span = make("span", { class: at === query ? "query" : "", title: `${at}: ${weight.toFixed(3)}` }, found.pair.clean[at] === "\n" ? "\u23ce" : found.pair.clean[at]);
    span.style.setProperty("--w", `${Math.round(100 * weight)}%`);
    return span;
  });
  return make("div", {}, make("p", { class: "weights" }, ...spans),
    make("p", { class: "note" }, `From position ${query} (outlined); ${percent(n.reads[2])} on position ${key}.`));
}
function why(n) {
  const lines = (side) => {
    const most = Math.max(...n.why[side].map(([, x]) => Math.abs(x)), 1e-9);
    return [make("h4", {}, side === "query" ? "The query side" : "The key side"),
      effectTable(n.why[side].slice(0, 5).map(([id, x]) => [id, { effect: x }, () => by.has(id) && change({ open: id })]), most)];
  };
  return [...lines("key"), ...lines("query"), make("p", { class: "note" }, "Parts of the attention score there, above the mean over all keys, in logits of the softmax; one pair, so without interval.")];
}
function written(n) {
  const list = (title, some) => make("p", {}, `${title} `, ...some.flatMap(([token, x]) => [make("code", {}, token), ` ${spell(x)}  `]));
  return [list("Raises", n.writes.up), list("Lowers", n.writes.down),
    make("p", { class: "note" }, `Logits through the unembedding alone, of the change from corrupted to clean at position ${n.writes.at} of the first pair, before the scale of the final norm.`)];
}
// What a writer meets on the other side of a head's score: with the others, the parts sum to its own.
function meets(l, reader, mine) {
  const [own, other] = l.part === "q" ? [0, 1] : [1, 0], [at, on] = reader.reads;
  const met = reader.why.pairs.filter((x) => x[own] === l.from).slice(0, 5).map((x) => [x[other], x[2]]);
  const rest = mine - met.reduce((sum, [, x]) => sum + x, 0);
  return [make("h3", {}, `What ${l.from} meets at the ${l.part === "q" ? "key" : "query"}`), partTable([...met, ["others", rest]]),
    make("p", { class: "note" }, `Parts of the attention score of ${l.node} from position ${at} to ${on} of the first pair, above the mean over all keys, in logits of the softmax. They sum to ${spell(mine)}, which ${l.from} adds as its ${l.part === "q" ? "query" : "key"}; the whole score is ${spell(reader.why.score)}.`)];
}
function partTable(rows) {
  return effectTable(rows.map(([id, x]) => [id, { effect: x }, () => by.has(id) && change({ open: id })]), Math.max(...rows.map(([, x]) => Math.abs(x)), 1e-9));
}
function stated(shares, from) {
  const mine = shares.find(([id]) => id === from);
  return mine ? `, that of ${from} is ${spell(mine[1])}` : "";
}
function edgePanel(l) {
  const writer = by.get(l.from), reader = by.get(l.node), way = { q: "query", k: "key", v: "value" }[l.part];
  const parts = [make("h2", { tabindex: -1 }, `${l.from} to ${l.node}`, make("span", { class: "soft" }, way ? ` as its ${way}` : "")),
    make("p", {}, `${effectText(l)}, ${l.how || "not stated how"}, ${found.n} pairs.`,
      writer.effect ? ` All edges of ${l.from} together: ${spell(writer.effect)}.` : "")];
  const share = l.part === "q" ? reader.why?.query : l.part === "k" ? reader.why?.key : null, mine = share?.find(([id]) => id === l.from);
  if (mine) parts.push(...meets(l, reader, mine[1]));
  if (l.part === "v" && reader.value) parts.push(make("h3", {}, `What ${l.node} carries`), partTable(reader.value.slice(0, 5)),
    make("p", { class: "note" }, `Shares of what ${l.node} writes at position ${reader.reads[0]} of the first pair, along its own direction, by the node that its values come from; all shares sum to 1${stated(reader.value, l.from)}.`));
  if (writer.writes) parts.push(make("h3", {}, "What travels"), ...written(writer));
  parts.push(make("div", { class: "controls" }, control(l.from, () => change({ open: l.from })), control(l.node, () => change({ open: l.node })), control("Close", () => change({ open: "" }))));
  return parts;
}
