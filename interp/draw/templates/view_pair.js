// One query and one key by dimension: q, k, their product, what is added, and the row's softmax.
const TOP = 12; // keys of a row that are listed

function bar(x, width, negative, ...marks) {
  const rect = make("rect", { x, y: 2, width, height: 9, class: negative ? "below" : "above" });
  return make("svg", { viewBox: "0 0 90 13", width: 90, height: 13, class: "signed", "aria-hidden": "true" }, rect, ...marks);
}
function signedBar(value, size) {
  const part = size ? value / size : 0;
  return bar(45 + Math.min(0, part) * 44, Math.abs(part) * 44, part < 0, make("path", { d: "M45 0v13", class: "null" }));
}
const weightBar = (value) => bar(0, within(value, 0, 1) * 89, false);
const largest = (values) => values.reduce((a, b) => Math.max(a, Math.abs(b)), 0);

// Rows of coloured cells, one per dimension: what stands out stands out at a glance.
function strips(parts) {
  const canvas = make("canvas", { class: "heat", role: "img",
    "aria-label": "q, k and their product, one cell per dimension; the numbers are in the table" });
  const n = parts.q.length, cell = Math.max(2, Math.min(14, Math.floor(560 / n)));
  const pen = sized(canvas, 40 + n * cell, 3 * 24);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  [["q", parts.q], ["k", parts.k], ["q × k", parts.products]].forEach(([name, values], y) => {
    const size = largest(values) || 1;
    pen.fillStyle = INK;
    pen.fillText(name, 0, y * 24 + 10);
    values.forEach((value, x) => {
      pen.fillStyle = signedColour(value / size);
      pen.fillRect(40 + x * cell, y * 24, cell - (cell > 4 ? 1 : 0), 20);
    });
  });
  return canvas;
}

function dimensions(parts, sorted) {
  const columns = [parts.q, parts.k, parts.products], sizes = columns.map(largest);
  const order = [...parts.q.keys()];
  if (sorted) order.sort((a, b) => Math.abs(parts.products[b]) - Math.abs(parts.products[a]));
  const rows = order.map((i) =>
    row(String(i), ...columns.flatMap((values, at) => [signedBar(values[i], sizes[at]), spoken(values[i])])));
  return table("By dimension", ["dimension", "q", "", "k", "", "q × k × scale", ""], rows);
}

function sum(terms, parts, weight, sink) {
  const steps = [`Σ q × k × ${spoken(terms.scale)} = ${spoken(parts.product)}`];
  if (terms.softcap !== null) steps.push(`soft cap at ${terms.softcap}: ${spoken(parts.capped)}`);
  if (terms.biases) steps.push(`bias ${parts.bias < 0 ? "−" : "+"} ${spoken(Math.abs(parts.bias))}`);
  steps.push(Number.isFinite(parts.score) ? `score ${spoken(parts.score)}` : "hidden: this key is masked for this query");
  steps.push(`softmax over the row${sink ? " and the sink" : ""}: ${spoken(weight)}`);
  return steps.join(" → ");
}

function softmaxTable(shown, query, chosen, found) {
  const keys = [...Array(shown.columns).keys()].filter((k) => !found || Number.isFinite(found.scores[k]));
  const weight = (k) => (found ? found.weights[k] : shown.weight(query, k));
  keys.sort((a, b) => weight(b) - weight(a));
  const listed = keys.slice(0, TOP);
  if (!listed.includes(chosen) && keys.includes(chosen)) listed.push(chosen);
  const rows = listed.map((k) => {
    const cells = [shown.label("key", k)];
    if (found) cells.push(spoken(found.scores[k]));
    const line = row(...cells, weightBar(weight(k)), spoken(weight(k)), ...(found ? [spoken(shown.weight(query, k))] : []));
    if (k === chosen) line.className = "chosen";
    return line;
  });
  const rest = keys.filter((k) => !listed.includes(k));
  const others = rest.reduce((total, k) => total + weight(k), 0);
  const blank = found ? [""] : [];
  if (rest.length) rows.push(row(`${rest.length} more keys`, ...blank, weightBar(others), spoken(others), ...blank));
  if (found && found.sink) rows.push(row("sink", "", weightBar(found.sink), spoken(found.sink), ""));
  const heads = found ? ["key", "score", "softmax", "", "of the run"] : ["key", "softmax", ""];
  return table(`The row of query ${shown.label("query", query)}`, heads, rows);
}

// How to see this block token by token: a page cannot compute it, the model can.
function zoom(shown, query, key) {
  const ends = [["query", query, shown.stack.tokens[0]], ["key", key, shown.stack.tokens[1]]].map(([side, i, n]) => {
    const at = shown.place(side, i);
    return `${at}-${Math.min(at + shown.step, n)}`;
  });
  return make("p", { class: "note" }, "To zoom in, run it again with ",
    make("code", {}, `--set tiles=${shown.item.name}:${ends.join(",")}`), " (in Python: tiles=[...], or .tile()).");
}

async function showPair(place, shown, query, key) {
  place.replaceChildren(make("h4", { tabindex: -1 }, shown.said(query, key)));
  const terms = shown.tile || shown.step > 1 ? null : await termsOf(shown.item);
  if (!terms) {
    const why = shown.tile || shown.step > 1 ? "a map in blocks and a tile hold weights only"
      : shown.stack.why || "this page has no room for the queries and keys of this head; name it with heads=";
    place.append(make("p", { class: "note" }, `No products by dimension: ${why}.`));
    if (shown.stack.block > 1 && !shown.tile) place.append(zoom(shown, query, key));
    place.append(make("div", { class: "scroll" }, softmaxTable(shown, query, key, null)));
    return;
  }
  const parts = scoreParts(terms, query, key), found = softmaxRow(terms, query);
  const body = make("div", { class: "scroll tall" }, dimensions(parts, true));
  const sorted = make("input", { type: "checkbox", checked: true, onchange: () =>
    body.replaceChildren(dimensions(parts, sorted.checked)) });
  place.append(
    make("p", { class: "sum" }, sum(terms, parts, found.weights[key], found.sink)),
    make("p", { class: "note" }, "q and k are the vectors of the product: after rotary positions and norms, if the model has them."),
    make("div", { class: "scroll" }, strips(parts)),
    make("p", { class: "note" }, "Each row of colours and each column of bars is scaled to its largest absolute value."),
    make("label", {}, sorted, " largest products first"),
    make("div", { class: "two" }, body, make("div", { class: "scroll" }, softmaxTable(shown, query, key, found))),
  );
}
