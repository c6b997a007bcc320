// What a head does on text: its sentence, what is explained of it, its rules, examples and numbers.
const RUNGS = [["explained_offset", "distance alone"], ["explained_position", "position"], ["explained_rules", "rules"], ["explained_tokens", "the two tokens"], ["needs_context", "unexplained: needs context"]];
const CONTROLS = [["control_other_head", "another head's rules"], ["control_random_keys", "the rules on random keys"], ["control_swapped_document", "the rules on another document"]];
function onText(model, i, label, found) {
  const out = [];
  const add = (heading, ...contents) => { if (contents.length) out.push(make("h3", {}, heading), ...contents); };
  if (found.sentence) out.push(make("p", { class: "sentence" }, found.sentence));
  const rungs = shares(model, i, RUNGS);
  if (rungs.length) add("Share of the pattern explained on unseen documents", shareTable(["", "", "95 % interval"], rungs));
  if (found.rules.length) {
    add("Rules", shareTable(["attention goes", "share", "by position", "nats"], found.rules.map(([phrase, share, low, high, guess, nats]) =>
      make("tr", {}, make("th", { scope: "row" }, phrase), make("td", {}, `${percent(share)}${low === null ? "" : ` [${percent(low, "")}, ${percent(high, "")}]`}`), make("td", {}, percent(guess)), make("td", {}, digits(nats, true))))),
    make("p", { class: "note" }, `Shares are of its attention off the sink${found.status === "rules" ? "; a key of several rules counts in equal parts" : "; no rule describes it, this is the nearest"}.`));
  }
  add("Examples", ...found.examples.flatMap(onTextExample));
  for (const [name, value] of Object.entries(found.facts ?? {})) add(words(name), ...fact(value));
  const controls = shares(model, i, CONTROLS);
  const shown = new Set([...RUNGS, ...CONTROLS].map(([name]) => name));
  const numbers = scores(model, i, label, (metric) => metric.group === "text" && !shown.has(metric.name) && !metric.name.startsWith("rule:"));
  if (controls.length + numbers.length) {
    const more = make("details", {}, make("summary", {}, "Controls and further numbers on this text"));
    if (controls.length) more.append(make("p", {}, "Descriptions that should fail; share of the pattern explained"), shareTable(["", "", "95 % interval"], controls));
    more.append(...numbers);
    out.push(more);
  }
  return out;
}
function shareTable(heads, rows) { const found = table("", heads, rows); found.className = "shares"; return found; }
function shares(model, i, names) {
  return names.flatMap(([name, text]) => {
    const metric = model.metrics.find((m) => m.group === "text" && m.name === name);
    const score = metric ? column(metric, "score", model.size)[i] : NaN;
    if (Number.isNaN(score)) return [];
    const ends = interval(metric, model, i), [low, high] = ends, known = !ends.some(Number.isNaN), wide = 90, x = (v) => +(wide * within(v, 0, 1)).toFixed(1);
    const bar = make("svg", { class: "share", width: wide, height: 12, viewBox: `0 0 ${wide} 12`, "aria-hidden": "true" },
      make("path", { class: "base", d: `M0 11.5H${wide}` }), make("path", { class: name === "needs_context" ? "rest" : "part", d: `M0 2h${x(score)}v8H0z` }),
      ...(known ? [make("path", { class: "error", d: `M${x(low)} 6H${x(high)}M${x(low)} 3v6M${x(high)} 3v6` })] : []));
    return [make("tr", { title: metric.text || text }, make("th", { scope: "row" }, text), make("td", {}, bar), make("td", {}, `${score.toFixed(2)}${known ? ` [${low.toFixed(2)}, ${high.toFixed(2)}]` : ""}`))];
  });
}
// Whatever else a profile knows of a head: texts, lists of tokens with numbers, and groups of these.
function fact(value) {
  if (value === null || value === "" || (Array.isArray(value) && !value.length)) return [];
  if (typeof value !== "object") return [make("p", {}, typeof value === "number" ? digits(value) : String(value))];
  if (Array.isArray(value)) {
    const plain = value.every((x) => x === null || typeof x !== "object" || (Array.isArray(x) && x.every((y) => typeof y !== "object")));
    if (plain) return [make("p", { class: "tokens" }, ...value.flatMap((x) => [make("span", {}, (Array.isArray(x) ? x : [x]).map((y) => (typeof y === "number" ? digits(y) : visible(String(y)))).join(" ")), " · "]).slice(0, -1))];
    return value.flatMap(fact);
  }
  return Object.entries(value).flatMap(([name, inner]) => { const shown = fact(inner); return shown.length ? [make("p", {}, make("b", {}, words(name))), ...shown] : []; });
}
