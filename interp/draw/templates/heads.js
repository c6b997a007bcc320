// Writes the numbers of the head under the pointer, or chosen with the arrow keys, below its map.
const LEFT = 44, TOP = 34; // as in panel.py
for (const map of document.querySelectorAll("svg.map")) {
  const { cell, heads, layers, unit, score: scores } = map.dataset;
  const size = Number(cell), columns = Number(heads), rows = Number(layers);
  if (scores === undefined && !map.querySelector("rect")) continue; // a picture only
  const output = map.parentElement.querySelector("output"), cursor = make("path", { class: "cursor" });
  let numbers = null, at = [0, 0]; // numbers are read when a map is first used: there can be hundreds of maps

  function titles() {
    const place = (rect, side, start) => (Number(rect.getAttribute(side)) - start) / size;
    const rects = [...map.querySelectorAll("rect")];
    return new Map(rects.map((r) => [place(r, "y", TOP) * columns + place(r, "x", LEFT), r.textContent]));
  }
  function lists() {
    const read = (name) => (map.dataset[name] || "").split(",").map((x) => x.replace(/^(-?)\./, "$10."));
    return { score: read("score"), sem: read("sem"), base: read("null"), n: read("n") };
  }
  function describe(layer, head) {
    const i = layer * columns + head;
    numbers ??= scores === undefined ? titles() : lists();
    if (scores === undefined) return numbers.get(i) || "";
    const { score, sem, base, n } = numbers;
    if (!score[i]) return `L${layer}H${head}: no score`;
    const error = sem[i] ? ` ± ${sem[i]}` : "", chance = base[i] ? `; null ${base[i]}` : "";
    return `L${layer}H${head}: ${score[i]}${error}${unit ? " " + unit : ""}${chance}; n ${n[n.length > 1 ? i : 0]}`;
  }
  function show(layer, head) {
    at = [layer, head];
    output.textContent = describe(layer, head);
    map.append(cursor);
    const x = LEFT + head * size - 0.5, y = TOP + layer * size - 0.5;
    cursor.setAttribute("d", `M${x} ${y}h${size}v${size}h${-size}z`);
  }
  // The head under a mouse, a pen or a finger; null beside the cells.
  function under(event) {
    const box = map.getBoundingClientRect(), scale = map.viewBox.baseVal.width / box.width;
    const head = Math.floor(((event.clientX - box.left) * scale - LEFT) / size);
    const layer = Math.floor(((event.clientY - box.top) * scale - TOP) / size);
    return head >= 0 && head < columns && layer >= 0 && layer < rows ? [layer, head] : null;
  }
  Object.assign(map, { describe, under, at: () => at }); // cards.js reads these
  // A finger comes down without having moved: its place is known from pointerdown on, which is
  // before the map has the focus.
  for (const name of ["pointermove", "pointerdown"]) {
    map.addEventListener(name, (event) => {
      const found = under(event);
      if (found) show(...found);
    });
  }
  map.addEventListener("focus", () => show(...at));
  map.addEventListener("keydown", (event) => {
    const step = STEPS[event.key], [layer, head] = at;
    const ends = { Home: [layer, 0], End: [layer, columns - 1], PageUp: [0, head], PageDown: [rows - 1, head] };
    const next = step ? [layer + step[0], head + step[1]] : ends[event.key];
    if (!next || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    show(within(next[0], 0, rows - 1), within(next[1], 0, columns - 1));
  });
}
