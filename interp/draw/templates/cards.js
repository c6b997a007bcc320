// A click on a head, or Enter, opens its card: what it scores in every map of its model. Tables of
// class sortable are sorted by a click on the name of a column. Uses the maps' own numbers.
for (const card of document.querySelectorAll("section .card")) {
  const maps = [...card.closest("section").querySelectorAll("svg.map")].filter((map) => map.describe);
  const close = () => { card.hidden = true; if (card.from) card.from.focus(); };
  function scoreOf(text) {
    const found = /^L\d+H\d+[^:]*: (-?[\d.]+(?:e[-+]?\d+)?)/.exec(text);
    return found ? Number(found[1]) : NaN;
  }
  function rank(map, score) {
    const { layers, heads } = map.dataset, n = Number(heads);
    map.scores ??= Array.from({ length: layers * n }, (_, i) => scoreOf(map.describe(Math.floor(i / n), i % n)))
      .filter((x) => !Number.isNaN(x));
    return `${1 + map.scores.filter((x) => x > score).length} of ${map.scores.length}`;
  }
  function open(stack, layer, head, from) {
    card.from = from;
    const name = maps.some((map) => map.dataset.stack !== stack) ? ` ${stack}` : "", rows = [];
    for (const map of maps) {
      const text = map.dataset.stack === stack && map.describe(layer, head);
      if (!text) continue;
      const score = scoreOf(text);
      const place = Number.isNaN(score) ? "" : rank(map, score);
      rows.push(row(map.dataset.metric, text.slice(text.indexOf(": ") + 2), place));
    }
    const button = control("Close", close);
    card.replaceChildren(make("h4", {}, `L${layer}H${head}${name}`),
      table("", ["metric", "score, null, n", "rank"], rows), button);
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
for (const sorted of document.querySelectorAll("table.sortable")) {
  const names = [...sorted.tHead.rows[0].cells];
  names.forEach((name, at) => {
    name.append(control("", () => {
      const down = name.getAttribute("aria-sort") !== "descending", [body] = sorted.tBodies;
      for (const other of names) other.removeAttribute("aria-sort");
      name.setAttribute("aria-sort", down ? "descending" : "ascending");
      const text = (line) => (line.cells[at] ? line.cells[at].textContent : "");
      const known = [...body.rows].filter((line) => !Number.isNaN(parseFloat(text(line))));
      const compare = known.length ? (a, b) => parseFloat(text(a)) - parseFloat(text(b))
        : (a, b) => text(a).localeCompare(text(b));
      const lines = (known.length ? known : [...body.rows]).sort((a, b) => (down ? compare(b, a) : compare(a, b)));
      body.append(...lines, ...[...body.rows].filter((line) => !lines.includes(line)));
    }));
    name.lastChild.append(...[...name.childNodes].slice(0, -1));
  });
}
