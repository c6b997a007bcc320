// Files of what is drawn, and the view that the address names.
function save(content, name, type) {
  const link = make("a", { href: `data:${type};charset=utf-8,${encodeURIComponent(content)}`, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  said.textContent = `${name} was made of what is drawn.`;
}
const stem = `${found.task}_${found.model}`.replace(/[^\w.-]+/g, "_");
// A picture for paper: the colours of the light theme, without the page's style sheet.
function saveSvg() {
  const copy = host.querySelector("svg.circuit").cloneNode(true);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  for (const hit of copy.querySelectorAll(".hit")) hit.remove();
  const style = document.createElementNS("http://www.w3.org/2000/svg", "style");
  style.append("text{font:12px sans-serif;fill:#1b1f23}.soft{fill:#5b6570}.reads{font-size:10px}.lane{fill:#f4f6f8}.edge{fill:none;stroke:#0072b2;opacity:.7}.edge.minus{stroke:#d55e00}.rough{stroke-dasharray:5 4}.back{fill:#fff}.face{fill:#0072b2;stroke:#0072b2}.minus .face{fill:#d55e00;stroke:#d55e00}");
  copy.prepend(style);
  save(new XMLSerializer().serializeToString(copy), `${stem}.svg`, "image/svg+xml");
}
function xml(text) { return String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]); }
function saveGraphml() {
  const nodes = shownNodes(), lines = shownLinks(nodes), keys = [["node", "effect", "double"], ["node", "role", "string"], ["edge", "effect", "double"], ["edge", "input", "string"], ["edge", "estimate", "boolean"]];
  const data = (kind, name, value) => (value === undefined || value === null || value === "" ? "" : `<data key="${kind}_${name}">${xml(value)}</data>`);
  const rows = [...nodes].map((id) => `<node id="${xml(id)}">${data("node", "effect", by.get(id).effect)}${data("node", "role", by.get(id).role)}</node>`);
  const edges = lines.map((l) => `<edge id="${xml(nameOf(l))}" source="${xml(l.from)}" target="${xml(l.node)}">${data("edge", "effect", l.effect)}${data("edge", "input", l.to)}${data("edge", "estimate", l.rough ? "true" : "false")}</edge>`);
  save(['<?xml version="1.0" encoding="UTF-8"?>', '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
    ...keys.map(([kind, name, type]) => `<key id="${kind}_${name}" for="${kind}" attr.name="${name}" attr.type="${type}"/>`),
    '<graph edgedefault="directed">', ...rows, ...edges, "</graph>", "</graphml>", ""].join("\n"), `${stem}.graphml`, "application/xml");
}
// The JSON of circuit-tracer's front end, in which head h of layer l stands as feature n_layers + h.
function saveTracer() {
  const nodes = shownNodes(), end = Math.max(...Object.values(found.pair.positions ?? {}), 0), tokens = found.pair.clean ?? [""];
  const differ = Math.max(tokens.findIndex((t, i) => t !== found.pair.corrupted?.[i]), 0), cantor = (a, b) => (a + b) * (a + b + 1) / 2 + b;
  const of = (id) => {
    const m = /^(?:L(\d+)H(\d+)|mlp(\d+))$/.exec(id), at = by.get(id).reads?.[0] ?? end;
    if (id === "embed") return { node_id: `E_0_${differ}`, layer: "E", feature: differ, ctx_idx: differ, feature_type: "embedding" };
    if (!m) return { node_id: `${found.layers + 1}_0_${end}`, layer: String(found.layers + 1), feature: 0, ctx_idx: end, feature_type: "logit" };
    const layer = Number(m[1] ?? m[3]), f = found.layers + (m[2] === undefined ? found.heads : Number(m[2]));
    return { node_id: `${layer}_${f}_${at}`, layer: String(layer), feature: cantor(layer, f), ctx_idx: at, feature_type: "cross layer transcoder" };
  };
  const made = new Map([...nodes].map((id) => [id, of(id)])), ids = (list) => list.filter((id) => made.has(id)).map((id) => made.get(id).node_id);
  const sums = new Map();
  for (const l of shownLinks(nodes)) sums.set(`${l.from}>${l.node}`, (sums.get(`${l.from}>${l.node}`) ?? 0) + (l.effect ?? 0));
  save(JSON.stringify({
    metadata: { slug: stem.toLowerCase(), scan: found.model, transcoder_list: [], prompt_tokens: tokens, prompt: tokens.join(""), node_threshold: 1, schema_version: 1 },
    qParams: { pinnedIds: ids(state.pins), supernodes: state.groups.map(([name, ...list]) => [name, ...ids(list)]), linkType: "both", clickedId: "", sg_pos: "" },
    nodes: [...made].map(([id, x]) => ({ ...x, token_prob: 0, is_target_logit: id === "logits", run_idx: 0, reverse_ctx_idx: 0, jsNodeId: `${x.node_id.replace(/_[^_]*$/, "")}-${x.ctx_idx}`, clerp: nodeText(id), influence: Math.abs(size(by.get(id))) / largest, activation: size(by.get(id)) })),
    links: [...sums].map(([way, weight]) => ({ source: made.get(way.split(">")[0]).node_id, target: made.get(way.split(">")[1]).node_id, weight })),
  }), `${stem}.json`, "application/json");
}
// The view that the address names; what this circuit does not have is said and left out.
function followAddress() {
  let asked = null, told = "";
  try { asked = location.hash.length > 1 ? JSON.parse(decodeURIComponent(location.hash.slice(1))) : null; } catch { told = "The address names no view of this page, which shows the circuit as it opens."; }
  state = fresh();
  if (asked && typeof asked === "object") {
    const gone = new Set(), known = (id) => { const is = typeof id === "string" && by.has(id); if (!is) gone.add(String(id)); return is; };
    const list = (x) => (Array.isArray(x) ? x.filter(known) : []);
    if (Number.isInteger(asked.k)) state.k = within(asked.k, found.set ? 0 : 1, names.length);
    if (Number.isInteger(asked.e)) state.e = within(asked.e, 1, Math.max(links.length, 1));
    state.rough = asked.rough === true;
    state.pins = list(asked.pins);
    state.hidden = list(asked.hidden);
    state.groups = (Array.isArray(asked.groups) ? asked.groups : []).filter(Array.isArray).map(([name, ...ids]) => [String(name), ...list(ids)]).filter((g) => g.length > 1);
    state.other = asked.other === true && other !== null;
    if (typeof asked.open === "string" && asked.open && (linkOf(asked.open) || known(asked.open))) state.open = asked.open;
    if (gone.size) told = `Not in this circuit: ${[...gone].slice(0, 8).join(", ")}.`;
  }
  refresh(told);
}
addEventListener("hashchange", followAddress);
if (found.nodes.length) followAddress();
else { bar.hidden = true; said.textContent = "There is no node to draw."; }
