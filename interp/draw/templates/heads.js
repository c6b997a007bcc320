// Writes the numbers of the head under the pointer, or chosen with the arrow keys, below its map.
"use strict";
const LEFT = 44, TOP = 34; // as in panel.py
for (const map of document.querySelectorAll("svg.map")) {
  const { cell, heads, layers, unit } = map.dataset;
  const size = Number(cell), columns = Number(heads), rows = Number(layers);
  const output = map.parentElement.querySelector("output");
  let cursor = null, elements = null, numbers = null, at = [0, 0];

  // Both are made when a map is first used: a page can hold hundreds of maps.
  function titles() {
    if (!elements) {
      elements = new Map();
      for (const rect of map.querySelectorAll("rect")) {
        const key = `${rect.getAttribute("y")},${rect.getAttribute("x")}`;
        elements.set(key, rect.textContent);
      }
    }
    return elements;
  }
  function lists() {
    if (!numbers) {
      numbers = {};
      for (const name of ["score", "sem", "null", "n"]) {
        const text = map.dataset[name] || "";
        numbers[name] = text.split(",").map((x) => x.replace(/^(-?)\./, "$10."));
      }
    }
    return numbers;
  }
  function describe(layer, head) {
    if (map.dataset.score === undefined) {
      return titles().get(`${TOP + layer * size},${LEFT + head * size}`) || "";
    }
    const { score, sem, null: nulls, n } = lists();
    const i = layer * columns + head;
    if (!score[i]) return `L${layer}H${head}: no score`;
    const error = sem[i] ? ` ± ${sem[i]}` : "";
    const base = nulls[i] ? `; null ${nulls[i]}` : "";
    const count = n.length > 1 ? n[i] : n[0];
    return `L${layer}H${head}: ${score[i]}${error}${unit ? " " + unit : ""}${base}; n ${count}`;
  }
  function show(layer, head) {
    at = [layer, head];
    output.textContent = describe(layer, head);
    if (!cursor) {
      cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
      cursor.setAttribute("class", "cursor");
      map.append(cursor);
    }
    const x = LEFT + head * size - 0.5, y = TOP + layer * size - 0.5;
    cursor.setAttribute("d", `M${x} ${y}h${size}v${size}h${-size}z`);
  }
  if (map.dataset.score === undefined && !map.querySelector("rect")) continue; // a picture only
  map.describe = describe; // cards.js reads these
  map.at = () => at;

  // The head under a mouse, a pen or a finger; null beside the cells.
  map.under = (event) => {
    const box = map.getBoundingClientRect();
    const scale = map.viewBox.baseVal.width / box.width;
    const head = Math.floor(((event.clientX - box.left) * scale - LEFT) / size);
    const layer = Math.floor(((event.clientY - box.top) * scale - TOP) / size);
    return head >= 0 && head < columns && layer >= 0 && layer < rows ? [layer, head] : null;
  };
  // A finger comes down without having moved: its place is known from pointerdown on, which is
  // before the map has the focus.
  for (const name of ["pointermove", "pointerdown"]) {
    map.addEventListener(name, (event) => {
      const found = map.under(event);
      if (found) show(...found);
    });
  }
  map.addEventListener("focus", () => show(...at));
  map.addEventListener("keydown", (event) => {
    const [layer, head] = at;
    const next = {
      ArrowUp: [layer - 1, head], ArrowDown: [layer + 1, head],
      ArrowLeft: [layer, head - 1], ArrowRight: [layer, head + 1],
      Home: [layer, 0], End: [layer, columns - 1],
      PageUp: [0, head], PageDown: [rows - 1, head],
    }[event.key];
    if (!next || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    show(Math.min(Math.max(next[0], 0), rows - 1), Math.min(Math.max(next[1], 0), columns - 1));
  });
}
