// What a head does on text: its sentence, what is explained of it, its list, examples and numbers.
const RUNGS = [["explained_offset", "distance alone"], ["explained_position", "position"], ["explained_list", "the list"], ["explained_rules", "all rules together"], ["explained_tokens", "rules and the two tokens"], ["needs_context", "unexplained: needs context"]];
const CONTROLS = [["control_list_other_head", "another head's list"], ["control_list_swapped_document", "the list on another document"], ["control_other_head", "another head's rules"], ["control_random_keys", "the rules on random keys"], ["control_swapped_document", "the rules on another document"]];
function onText(model, i, label, found) {
  const out = [];
  const add = (heading, ...contents) => { if (contents.length) out.push(make("h3", {}, heading), ...contents); };
  if (found.sentence) out.push(make("p", { class: "sentence" }, found.sentence));
  const rungs = shares(model, i, RUNGS);
  if (rungs.length) add("Share of the pattern explained on unseen documents", shareTable(["", "", "95 % interval"], rungs));
  if (found.rules.length) {
    add("List, first match counts", shareTable(["attention goes", "share", "by position", "nats", "adds"], found.rules.map(([phrase, share, low, high, guess, nats, adds, ...ends]) =>
      make("tr", {}, make("th", { scope: "row" }, phrase), make("td", {}, `${percent(share)}${low === null ? "" : ` [${percent(low, "")}, ${percent(high, "")}]`}`), make("td", {}, percent(guess)), make("td", {}, digits(nats, true)), make("td", {}, adds === null ? "" : `${digits(adds, true)}${between(...ends)}`)))),
    make("p", { class: "note" }, "Share: of its attention off the sink, on keys of this entry and of none before it, counted on documents that did not choose the list. Adds: share of the pattern that is lost without it."));
  }
  add("Examples", ...found.examples.flatMap(onTextExample));
  if (found.by_entry?.length) out.push(make("details", {}, make("summary", {}, "An example of each entry"), ...found.by_entry.flatMap(([phrase, one]) => [make("h4", {}, phrase), ...onTextExample(one, 1, [one, one])])));
  for (const [name, value] of Object.entries(found.facts ?? {})) add(words(name), ...fact(value));
  const controls = shares(model, i, CONTROLS);
  const shown = new Set([...RUNGS, ...CONTROLS].map(([name]) => name));
  const numbers = scores(model, i, label, (metric) => metric.group === "text" && !shown.has(metric.name) && !/^(entry|line):/.test(metric.name));
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
// Whatever else a profile knows of a head: texts, numbers with intervals, lists of tokens with numbers, tables, groups of these.
function single(value) { // a text, a number, or a number with its interval; else null
  if (value === null || typeof value === "boolean") return String(value ?? "");
  if (typeof value === "number") return digits(value);
  if (typeof value === "string") return visible(value.trim() ? value : value.replaceAll(" ", "␣"));
  return typeof value.value === "number" ? `${digits(value.value)}${between(value.low, value.high)}` : null;
}
function fact(value) {
  if (value === null || value === "" || (Array.isArray(value) && !value.length)) return [];
  if (!Array.isArray(value)) {
    const text = single(value);
    if (text !== null) return [make("p", {}, text)];
    const entries = Object.entries(value), lines = entries.filter(([, x]) => single(x));
    const out = lines.length ? [shareTable(["", ""], lines.map(([name, x]) => row(words(name), single(x))))] : [];
    return out.concat(entries.filter(([, x]) => single(x) === null).flatMap(([name, x]) => { const shown = fact(x); return shown.length ? [make("p", {}, make("b", {}, words(name))), ...shown] : []; }));
  }
  if (value.some((x) => x !== null && typeof x === "object" && !Array.isArray(x))) {
    const names = [...new Set(value.flatMap((x) => Object.keys(x ?? {})))].filter((name) => name !== "low" && name !== "high");
    const ends = value.some((x) => typeof x?.low === "number"), cells = (x) => names.map((name) => single(x?.[name] ?? null) ?? "").concat(ends ? [between(x?.low, x?.high).trim()] : []);
    return [shareTable([...names.map(words), ...(ends ? ["95 % interval"] : [])], value.map((x) => row(...cells(x))))];
  }
  return [make("p", { class: "tokens" }, ...value.flatMap((x) => [make("span", {}, (Array.isArray(x) ? x : [x]).map((y) => single(y) ?? "").join(" ")), " · "]).slice(0, -1))];
}
