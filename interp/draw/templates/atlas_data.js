// The data of the page: models, columns of numbers, places of heads, and links to heads.
const atlas = JSON.parse(document.getElementById("atlas").textContent);
const UNCLEAR = "unclear";
for (const model of atlas.models) {
  const { labels, places, stacks } = model;
  model.size = labels.length;
  model.at = new Map(labels.map((label, i) => [label, i]));
  model.grids = stacks.map((s) => new Int32Array(s.layers * s.heads).fill(-1));
  for (let i = 0; i < model.size; i++) {
    const stack = places[3 * i];
    model.grids[stack][places[3 * i + 1] * stacks[stack].heads + places[3 * i + 2]] = i;
  }
}
const modelOf = new Map(atlas.models.map((model) => [model.id, model]));

// Numbers are three bytes each, the upper ones of a float; equal numbers are one number.
function column(holder, name, length) {
  holder.read ??= {};
  return holder.read[name] ??= unpacked(holder[name], length);
}
function unpacked(x, length) {
  if (typeof x !== "string") return new Float32Array(length).fill(x ?? NaN);
  const text = atob(x), bits = new Uint32Array(text.length / 3);
  for (let i = 0, at = 0; i < bits.length; i++, at += 3)
    bits[i] = (text.charCodeAt(at) << 24) | (text.charCodeAt(at + 1) << 16) | (text.charCodeAt(at + 2) << 8);
  return new Float32Array(bits.buffer);
}
function digits(x, signed) {
  if (x === null || x === undefined || Number.isNaN(x)) return "";
  const size = Math.abs(x), plus = signed && x > 0 ? "+" : "";
  return plus + (size >= 1e5 || (size > 0 && size < 5e-4) ? x.toExponential(1) : x.toFixed(size >= 100 ? 1 : 3));
}
function between(low, high, signed) {
  const known = [low, high].every((x) => typeof x === "number" && !Number.isNaN(x));
  return known ? ` [${digits(low, signed)}, ${digits(high, signed)}]` : "";
}
function placed(model, i) { return model.places.slice(3 * i, 3 * i + 3); }
function roleOf(model, i) { return atlas.roles[model.roles[i]]; }
function sign(role) {
  return make("i", { class: `badge ${role[3]}`, "aria-hidden": "true" }, role[2]);
}
function place(model, label) { return `${encodeURIComponent(model)}/${encodeURIComponent(label)}`; }
function headLink(model, label, text = label) {
  return make("a", { class: "head", href: `#${place(model, label)}` }, text);
}
function headsIn(hash) {
  const found = [];
  for (const part of hash.replace(/^#/, "").split(",")) {
    const [model, label] = part.split("/").map((x) => { try { return decodeURIComponent(x); } catch { return ""; } });
    if (label !== undefined && modelOf.get(model)?.at.has(label)) found.push({ model, label });
  }
  return found.slice(0, 2);
}
// Low and high of a metric's colours, and whether they are signed; as in `Scale.fit`.
function scaleOf(values, low = null, high = null) {
  let least = Infinity, most = -Infinity;
  for (const v of values) if (!Number.isNaN(v)) { least = Math.min(least, v); most = Math.max(most, v); }
  if (most < least) least = most = 0;
  const a = low ?? Math.min(0, least), signed = a < 0 && (high === null || high > 0);
  const b = high ?? Math.max(signed ? 0 : a, most), size = Math.max(-a, b) || 1;
  return signed ? { low: -size, high: size, signed } : { low: a, high: b > a ? b : a + 1, signed };
}
function bin(v, scale) {
  if (Number.isNaN(v)) return "none";
  const part = within((v - scale.low) / (scale.high - scale.low), 0, 1);
  return `${scale.signed ? "d" : "q"}${Math.round(32 * part)}`;
}
// Copy and save buttons for the rows of a table, or for rows that a function returns.
function rowButtons(name, rows) {
  const csv = () => rows().map((cells) => cells.map((c) => (/[",\n]/.test(c) ? `"${String(c).replaceAll('"', '""')}"` : c)).join(",")).join("\n") + "\n";
  const copy = control("Copy rows", async () => {
    try { await navigator.clipboard.writeText(csv()); copy.textContent = "Copied"; }
    catch { copy.textContent = "Not allowed here: use CSV"; }
  });
  const save = control("CSV", () => {
    const url = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
    make("a", { href: url, download: `${name.replace(/[^\w.-]+/g, "-")}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }, { "aria-label": `save the rows of ${name} as CSV` });
  return make("span", { class: "rows" }, copy, save);
}
function cellsOf(found) {
  return [...found.rows].map((line) => [...line.cells].map((cell) => cell.innerText.trim()));
}
for (const found of document.querySelectorAll("main table")) {
  const near = found.closest("section"), name = near?.querySelector("h2, h3")?.textContent ?? "rows";
  found.parentElement.before(rowButtons(name, () => cellsOf(found)));
}
// Without scripts, a link to a head leads to its row in a table.
for (const line of document.querySelectorAll("table.roles th[id]")) line.removeAttribute("id");
