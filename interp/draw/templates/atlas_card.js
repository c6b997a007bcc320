// Cards of heads: what is known of one, in a panel beside the page; two can be pinned side by side.
const panel = document.querySelector("aside.cards");
const shown = { heads: [], from: null };
const gone = make("p", { class: "warning", role: "status", hidden: true });
document.querySelector("header").append(gone);

function openHead(model, label, from = null, beside = null) {
  if (from) shown.from = from;
  const head = { model, label }, first = beside ?? (shown.pinned ? shown.heads[0] : null);
  const heads = first && !(first.model === model && first.label === label) ? [first, head] : [head];
  go(`#${heads.map((h) => place(h.model, h.label)).join(",")}`);
  panel.querySelector("article:last-of-type h2")?.focus({ preventScroll: true });
}
function go(hash) {
  if (location.hash !== hash) history.pushState(null, "", hash || location.href.split("#")[0]);
  follow();
}
function follow() {
  shown.heads = headsIn(location.hash);
  const lost = location.hash.slice(1).split(",").filter((part) => part.includes("/") && !headsIn(part).length);
  gone.hidden = !lost.length;
  gone.textContent = `The address asks for ${lost.map((part) => { try { return decodeURIComponent(part); } catch { return part; } }).join(" and ")}, which this page does not have.`;
  shown.pinned &&= shown.heads.length > 0;
  if (shown.heads.length === 2) shown.pinned = true;
  panel.hidden = !shown.heads.length;
  document.body.classList.toggle("beside", !panel.hidden);
  panel.classList.toggle("both", shown.heads.length === 2);
  panel.replaceChildren(...shown.heads.map(({ model, label }, at) => cardOf(modelOf.get(model), label, at)));
  panel.scrollTop = 0;
  for (const map of maps) map.ringAt(shown.heads.filter((h) => h.model === map.model.id).map((h) => h.label));
}
function closeCard(at) {
  const left = shown.heads.filter((_, i) => i !== at);
  if (!left.length || !at) shown.pinned = false;
  go(left.length ? `#${left.map((h) => place(h.model, h.label)).join(",")}` : "");
  if (!left.length) (shown.from ?? maps[0]?.svg)?.focus({ preventScroll: true });
}
function cardOf(model, label, at) {
  const i = model.at.get(label), role = roleOf(model, i), card = model.cards[label] ?? {};
  const id = `card-${at}`, kv = model.kv?.[i];
  const title = make("h2", { id, tabindex: -1 }, `${label} `, make("span", { class: "soft" }, model.name));
  const pin = control(shown.pinned && at === 0 ? "Unpin" : "Pin", () => {
    shown.pinned = !(shown.pinned && at === 0);
    if (at === 1) shown.heads.reverse();
    go(`#${(shown.pinned ? shown.heads : shown.heads.slice(-1)).map((h) => place(h.model, h.label)).join(",")}`);
  }, { "aria-pressed": String(Boolean(shown.pinned && at === 0)), title: "keep this card and open the next head beside it" });
  const view = atlas.views[model.id];
  const bar = make("div", { class: "bar-row" }, control("Close", () => closeCard(at)), pin, ...around(model, i, at));
  if (view) bar.append(make("a", { href: `${view.file}#${encodeURIComponent(label)}` }, "Attention view"));
  const article = make("article", { "aria-labelledby": id }, title, bar,
    make("p", {}, ...(role ? [sign(role), ` ${role[1]}`] : ["Not judged: no score of it has a null."]), kv === undefined || kv === null ? "" : ` · key-value head ${kv}`));
  const add = (heading, ...contents) => { if (contents.length) article.append(make("h3", {}, heading), ...contents); };
  if (!view && !card.profile && !document.getElementById("live-data")) {
    article.append(make("p", { class: "note" }, "On a text of yours: ",
      ...(model.view ? [make("code", {}, model.view.replace("HEAD", label.split(".").at(-1)))]
        : [make("code", {}, "interp view"), " with the folder or hub id of this model."])));
  }
  if (card.profile) article.append(...onText(model, i, label, card.profile));
  // what prompts show is folded where a profile says more
  const folded = card.profile ? make("details", { class: "before" }, make("summary", {}, "Scores and examples on prompts")) : article;
  const prompted = (heading, ...contents) => { if (contents.length) folded.append(make("h3", {}, heading), ...contents); };
  if (card.evidence?.length) folded.append(make("ul", {}, ...card.evidence.map((e) => make("li", {}, e.text))));
  prompted("Without this head", ...effects(card.effects));
  prompted("Scores on their nulls", ...scores(model, i, label, (metric) => metric.group !== "text"));
  prompted("Strongest examples", ...(card.examples ?? []).map(example));
  prompted("What it writes", ...writes(card.writes));
  if (folded !== article && folded.children.length > 1) article.append(folded);
  add("In other results", ...list((card.parts ?? []).map((p) => make("a", { href: `#${p.part}` }, p.text || atlas.parts[p.part] || p.part))));
  add("Nearest heads", ...list((card.nearest ?? []).map((n) => {
    const name = modelOf.get(n.model)?.name ?? n.model, text = `${n.label}${n.model === model.id ? "" : ` in ${name}`}`;
    const known = modelOf.get(n.model)?.at.has(n.label);
    return make("span", {}, known ? headLink(n.model, n.label, text) : text, ` ${digits(n.similarity)}, ${n.how}`);
  })));
  document.dispatchEvent(new CustomEvent("atlas-card", { detail: { model: model.id, label, article } }));
  return article;
}
function list(items) { return items.length ? [make("ul", {}, ...items.map((x) => make("li", {}, x)))] : []; }
// Neighbours on the map: small cells are hard to hit with a finger.
function around(model, i, at) {
  const [stack, layer, head] = placed(model, i), { layers, heads } = model.stacks[stack];
  return [["←", 0, -1, "previous head"], ["→", 0, 1, "next head"], ["↑", -1, 0, "layer above"], ["↓", 1, 0, "layer below"]].map(([text, y, x, name]) => {
    const [a, b] = [layer + y, head + x];
    const next = a >= 0 && a < layers && b >= 0 && b < heads ? model.grids[stack][a * heads + b] : -1;
    return control(text, () => {
      const changed = [...shown.heads];
      changed[at] = { model: model.id, label: model.labels[next] };
      go(`#${changed.map((h) => place(h.model, h.label)).join(",")}`);
      panel.querySelectorAll("article")[at]?.querySelector(`[aria-label="${name}"]`)?.focus();
    }, { "aria-label": name, disabled: next < 0 });
  });
}
function effects(found) {
  if (!found?.length) return [];
  const rows = found.map((e) => row(e.task, e.intervention, `${digits(e.value, true)}${between(e.low, e.high, true)} ${e.unit}`, String(e.n)));
  return [table("", ["task", "intervention", "effect", "n"], rows)];
}
const FIRST = 8; // metrics shown before the others
function scores(model, i, label, wanted) {
  const known = new Map((model.cards[label]?.evidence ?? []).map((e) => [e.metric, true]));
  const found = model.metrics.filter(wanted).map((metric) => {
    const at = (name) => column(metric, name, model.size)[i];
    const score = at("score"), base = at("null_score"), p = metric.p === undefined ? NaN : at("p");
    return { metric, score, base, p, first: known.has(metric.name) };
  }).filter((x) => !Number.isNaN(x.score));
  if (!found.length) return [];
  found.sort((a, b) => b.first - a.first || (Number.isNaN(a.p) ? 2 : a.p) - (Number.isNaN(b.p) ? 2 : b.p));
  const lines = found.map(({ metric, score, base, p }) => {
    const values = column(metric, "score", model.size);
    let above = 1, total = 0;
    for (const v of values) if (!Number.isNaN(v)) { total++; if (metric.end === "low" ? v < score : v > score) above++; }
    const ends = interval(metric, model, i);
    const why = metric.reasons?.[column(metric, "reason", model.size)[i]] ?? "";
    const said = `${digits(score)}${between(...ends)}${why.startsWith("too few") ? ` [${why}]` : ""}`;
    const rest = [Number.isNaN(base) ? "no null" : `null ${digits(base)}`, Number.isNaN(p) ? "" : p < 1e-12 ? "p < 1e-12" : `p ${p < 1e-3 ? p.toExponential(0) : p.toFixed(3)}`, `${above} of ${total}`].filter(Boolean).join("; ");
    return make("tr", {}, make("th", { scope: "row", title: metric.text }, metric.name, make("br"), make("span", { class: "soft" }, metric.unit)),
      make("td", {}, distribution(metric, model, i, score, base, ends)), make("td", { class: "text" }, said, make("br"), make("span", { class: "soft" }, rest)));
  });
  const head = ["metric", "on its null", "score"];
  const rows = () => [["head", "metric", "unit", "score", "null", "p"], ...found.map((x) => [label, x.metric.name, x.metric.unit, x.score, x.base, x.p])];
  const out = [rowButtons(`${model.name} ${label}`, rows), table("", head, lines.slice(0, FIRST))];
  if (lines.length > FIRST) out.push(make("details", {}, make("summary", {}, `${lines.length - FIRST} more metrics`), table("", head, lines.slice(FIRST))));
  out.push(make("p", { class: "note" }, `Line: this head, with its 95 % interval; ticks: all heads; grey: their nulls${found.some((x) => x.metric.drawn > 1) ? `; outlined: heads of random weights${found.some((x) => x.metric.shared) ? ", some kept by earlier runs on this machine" : ""}` : ""}; short bar: the null ± 2 spreads of a head, where it is known.`));
  return out;
}
function interval(metric, model, i) {
  return ["score_low", "score_high"].map((end) => (metric[end] === undefined ? NaN : column(metric, end, model.size)[i]));
}
// The null in grey, heads of random weights as an outline, the other heads as ticks, this head as a line.
const WIDE = 150, HIGH = 34, BINS = 30;
function distribution(metric, model, i, score, base, ends) {
  const values = column(metric, "score", model.size), nulls = column(metric, "null_values", metric.nulls);
  const drawn = column(metric, "drawn_values", metric.drawn ?? 0), spread = metric.null_sd === undefined ? NaN : column(metric, "null_sd", model.size)[i];
  const band = [base - 2 * spread, base + 2 * spread];
  let low = Math.min(score, 0), high = Math.max(score, 0);
  for (const v of [...values, ...nulls, ...drawn, ...ends, ...band, base]) if (!Number.isNaN(v)) { low = Math.min(low, v); high = Math.max(high, v); }
  const x = (v) => +(4 + (WIDE - 8) * ((v - low) / (high - low || 1))).toFixed(1), foot = HIGH - 6;
  const histogram = (found) => {
    const bins = new Array(BINS).fill(0), step = (WIDE - 8) / BINS;
    for (const v of found) bins[Math.min(BINS - 1, Math.floor(BINS * ((v - low) / (high - low || 1))))]++;
    const most = Math.max(...bins);
    return bins.map((n, b) => (n ? `M${(4 + b * step).toFixed(1)} ${foot}v${(-(HIGH - 8) * n / most).toFixed(1)}h${step.toFixed(1)}V${foot}z` : "")).join("");
  };
  const parts = [make("path", { class: "base", d: `M0 ${foot}H${WIDE}` })];
  if (metric.nulls > 1) parts.push(make("path", { class: "nullband", d: histogram(nulls) }));
  if (drawn.length > 1) parts.push(make("path", { class: "drawn", d: histogram(drawn) }));
  if (!Number.isNaN(base)) parts.push(make("path", { class: "null", d: `M${x(base)} ${Number.isNaN(spread) ? 4 : foot - 7}V${foot}${Number.isNaN(spread) ? "" : `M${x(band[0])} ${foot - 4}H${x(band[1])}`}` }));
  if (values.length <= 2000) parts.push(make("path", { class: "rug", d: [...values].filter((v) => !Number.isNaN(v)).map((v) => `M${x(v)} ${foot + 1}v4`).join("") }));
  if (ends.every((v) => !Number.isNaN(v))) parts.push(make("path", { class: "between", d: `M${x(ends[0])} ${foot}H${x(ends[1])}` }));
  parts.push(make("path", { class: "here", d: `M${x(score)} 0V${HIGH}` }));
  const said = [`${digits(score)} between ${digits(low)} and ${digits(high)}`];
  if (!Number.isNaN(base)) said.push(`null ${digits(base)}${Number.isNaN(spread) ? "" : ` ± ${digits(spread)}`}`);
  if (drawn.length > 1) said.push(`${metric.draws} draws of random weights${metric.shared ? ", kept on this machine," : ""} from ${digits(drawn[0])} to ${digits(drawn.at(-1))}`);
  return make("svg", { class: "dist", width: WIDE, height: HIGH, viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": said.join(", ") }, ...parts);
}
function visible(token) { return token.replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅"; }
function example(one) {
  const most = Math.max(...one.weights.map((w) => w ?? 0), 1e-9);
  const spans = one.tokens.map((token, at) => make("span", {
    class: `q${Math.round(32 * within((one.weights[at] ?? 0) / most, 0, 1))}${at === one.query ? " query" : ""}`,
    title: at < one.weights.length ? `${at}: weight ${digits(one.weights[at])}` : `${at}: after the query`,
  }, visible(token)));
  const about = `${one.metric ? `${one.metric} ` : ""}${digits(one.value)}; weights of the query at ${one.query} (outlined), the largest ${digits(most)}`;
  return make("div", {}, make("p", { class: "text" }, ...spans), make("p", { class: "note" }, about));
}
function writes(found) {
  if (!found) return [];
  const tokens = (name, pairs) => (pairs?.length ? [make("p", { class: "tokens" }, make("b", {}, `${name}: `), ...pairs.flatMap(([token, value]) => [make("span", { title: digits(value, true) }, visible(token)), " · "]).slice(0, -1))] : []);
  const circuit = (name, head, rows) => (rows?.length ? [table(name, head, rows.map(([token, others]) => make("tr", {}, make("th", { scope: "row", class: "token" }, visible(token)), make("td", { class: "text tokens" }, others.map(visible).join(" · ")))))] : []);
  return [...tokens("Raises", found.up), ...tokens("Lowers", found.down),
    ...circuit("", ["attended token", "raises"], found.ov), ...circuit("", ["query token", "prefers the keys"], found.qk),
    ...(found.how ? [make("p", { class: "note" }, found.how)] : [])];
}
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !panel.hidden && !event.target.matches("input[type=search]")) closeCard(shown.heads.length - 1);
});
document.addEventListener("click", (event) => {
  const link = event.target.closest?.('a.head[href^="#"]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const [head] = headsIn(link.getAttribute("href"));
  if (!head) return;
  event.preventDefault();
  openHead(head.model, head.label, panel.contains(link) ? null : link);
});
addEventListener("hashchange", follow);
