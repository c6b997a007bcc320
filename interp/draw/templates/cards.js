// A click on a head, or Enter, opens its card: what it scores in every map of its model. Tables of
// class sortable are sorted by a click on the name of a column. Uses the maps' own numbers.
for (const section of document.querySelectorAll("section")) {
  const card = section.querySelector(".card");
  if (!card) continue;
  const maps = [...section.querySelectorAll("svg.map")].filter((map) => map.describe);
  const close = () => { card.hidden = true; if (card.from) card.from.focus(); };
  function scoreOf(text) {
    const found = /^L\d+H\d+[^:]*: (-?[\d.]+(?:e[-+]?\d+)?)/.exec(text);
    return found ? Number(found[1]) : NaN;
  }
  function rank(map, score) {
    if (!map.sorted) {
      map.sorted = [];
      for (let layer = 0; layer < Number(map.dataset.layers); layer++)
        for (let head = 0; head < Number(map.dataset.heads); head++) {
          const value = scoreOf(map.describe(layer, head));
          if (!Number.isNaN(value)) map.sorted.push(value);
        }
    }
    return `${1 + map.sorted.filter((x) => x > score).length} of ${map.sorted.length}`;
  }
  function open(stack, layer, head, from) {
    card.replaceChildren();
    card.from = from;
    const title = document.createElement("h4");
    const name = maps.some((map) => map.dataset.stack !== stack) ? ` ${stack}` : "";
    title.textContent = `L${layer}H${head}${name}`;
    const table = document.createElement("table");
    const top = table.createTHead().insertRow();
    for (const text of ["metric", "score, null, n", "rank"]) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = text;
      top.append(cell);
    }
    const body = table.createTBody();
    for (const map of maps) {
      if (map.dataset.stack !== stack) continue;
      const text = map.describe(layer, head);
      if (!text) continue;
      const row = body.insertRow();
      const metric = document.createElement("th");
      metric.scope = "row";
      metric.textContent = map.dataset.metric;
      row.append(metric);
      row.insertCell().textContent = text.slice(text.indexOf(": ") + 2);
      const score = scoreOf(text);
      row.insertCell().textContent = Number.isNaN(score) ? "" : rank(map, score);
    }
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Close";
    button.addEventListener("click", close);
    card.append(title, table, button);
    card.hidden = false;
    button.focus({ preventScroll: true });
  }
  card.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
  for (const map of maps) {
    map.addEventListener("click", (event) => {
      const found = event.detail ? map.under(event) : map.at(); // a screen reader has no pointer
      if (found) open(map.dataset.stack, ...found, map);
    });
    map.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault(); // or it would press the card's button, which has the focus then
      open(map.dataset.stack, ...map.at(), map);
    });
  }
}
for (const table of document.querySelectorAll("table.sortable")) {
  const names = [...table.tHead.rows[0].cells];
  names.forEach((name, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...name.childNodes);
    name.append(button);
    button.addEventListener("click", () => {
      const down = name.getAttribute("aria-sort") !== "descending";
      for (const other of names) other.removeAttribute("aria-sort");
      name.setAttribute("aria-sort", down ? "descending" : "ascending");
      const body = table.tBodies[0];
      const rows = [...body.rows].map((row) => {
        const text = row.cells[at] ? row.cells[at].textContent : "";
        return { row, text, value: parseFloat(text) };
      });
      const known = rows.filter((x) => !Number.isNaN(x.value));
      const numeric = known.length > 0;
      const compare = numeric ? (a, b) => a.value - b.value : (a, b) => a.text.localeCompare(b.text);
      const sorted = (numeric ? known : rows).sort((a, b) => (down ? compare(b, a) : compare(a, b)));
      const last = numeric ? rows.filter((x) => Number.isNaN(x.value)) : [];
      body.append(...[...sorted, ...last].map((x) => x.row));
    });
  });
}
