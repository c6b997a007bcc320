// Tables of models: filter by name or by what was found, sort by a column, CSV of what is seen.
const tables = [...document.querySelectorAll("table.models")], bar = document.querySelector(".tools");
const count = make("span", { class: "note", role: "status" });
const search = make("input", { type: "search", id: "filter", placeholder: "part of a name", autocomplete: "off", oninput: sift });
const wanted = make("select", { id: "wanted", onchange: sift }, make("option", { value: "" }, "any model"));
for (const at of columns(tables[0]).slice(3)) wanted.append(make("option", { value: at.index }, `with ${at.name}`), make("option", { value: -at.index }, `without ${at.name}`));
bar.append(make("label", { for: "filter" }, "Models "), search, make("label", { for: "wanted" }, " show "), wanted,
  ...tables.map((t) => make("a", { class: "data", href: "#", onclick: (event) => file(event, t) }, `CSV: ${t.closest("section").querySelector("h2").textContent}`)), count);

function columns(table) {
  return [...table.tHead.rows[0].cells].map((cell, index) => ({ cell, index, name: cell.firstChild.textContent }));
}
function sift() {
  const text = search.value.trim().toLowerCase(), at = Number(wanted.value), kept = new Set();
  for (const row of tables[0].tBodies[0].rows) {
    const has = at ? Number(row.cells[Math.abs(at)].dataset.value) : 1;
    if (row.dataset.model.toLowerCase().includes(text) && (at === 0 || (at > 0 ? has > 0 : has === 0))) kept.add(row.dataset.model);
  }
  for (const table of tables) for (const row of table.tBodies[0].rows) row.hidden = !kept.has(row.dataset.model);
  count.textContent = `${kept.size} of ${tables[0].tBodies[0].rows.length} models`;
}
for (const table of tables) {
  for (const { cell, index } of columns(table)) {
    const name = cell.firstChild.textContent;
    cell.firstChild.replaceWith(make("button", { type: "button", onclick: () => sort(table, index) }, name));
  }
}
// The first press puts the largest on top, the next one the smallest; empty cells come last.
function sort(table, index) {
  const heads = [...table.tHead.rows[0].cells], down = heads[index].getAttribute("aria-sort") !== "descending";
  const named = index === 0, up = named ? heads[0].getAttribute("aria-sort") !== "ascending" : !down;
  const rows = [...table.tBodies[0].rows], key = (row) => (row.cells[index].dataset.value === "" ? NaN : Number(row.cells[index].dataset.value));
  rows.sort((a, b) => {
    if (named) return (up ? 1 : -1) * a.dataset.model.localeCompare(b.dataset.model, "en", { numeric: true });
    const [x, y] = [key(a), key(b)];
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
    return up ? x - y : y - x;
  });
  table.tBodies[0].append(...rows);
  heads.forEach((head, i) => (i === index ? head.setAttribute("aria-sort", up ? "ascending" : "descending") : head.removeAttribute("aria-sort")));
}
function file(event, table) {
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const heads = columns(table).map((c) => c.name);
  const lines = [heads.flatMap((name, i) => (i ? [name, `${name} head`] : [name]))];
  for (const row of table.tBodies[0].rows) {
    if (row.hidden) continue;
    lines.push([...row.cells].flatMap((cell, i) => (i ? [cell.dataset.value === "-1" ? "" : cell.dataset.value, cell.querySelector("a,small")?.textContent ?? ""] : [row.dataset.model])));
  }
  event.currentTarget.href = `data:text/csv;charset=utf-8,${encodeURIComponent(lines.map((l) => l.map(quoted).join(",")).join("\n") + "\n")}`;
  event.currentTarget.download = `${table.classList.contains("roles") ? "roles" : "scores"}.csv`;
}
sift();
