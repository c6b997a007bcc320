// Circuits: a click on a node pins it and its edges; pinned nodes can be drawn as one group.
for (const svg of document.querySelectorAll("svg.graph")) {
  const nodes = [...svg.querySelectorAll(".node")], edges = [...svg.querySelectorAll(".edge")], pins = new Set();
  const model = atlas.models.find((m) => document.getElementById(svg.dataset.graph)?.closest(`[data-model="${CSS.escape(m.id)}"]`));
  for (const node of nodes) {
    const name = node.dataset.node, press = () => { if (!pins.delete(name)) pins.add(name); draw(); };
    for (const [key, value] of Object.entries({ tabindex: 0, role: "button", "aria-pressed": "false" })) node.setAttribute(key, value);
    node.addEventListener("click", press);
    node.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); press(); } });
  }
  svg.setAttribute("role", "group");
  const told = make("p", { class: "note", role: "status" });
  svg.after(told);
  const boxes = new Map(nodes.map((node) => [node.dataset.node, node.querySelector("rect")]));
  const ways = new Map(edges.map((edge) => [edge, edge.getAttribute("d")]));
  let group = new Set();
  // A group stands where its first node stands; edges within it are hidden.
  function draws() {
    const [first] = group, end = (name) => (group.has(name) ? first : name);
    for (const node of nodes) {
      const name = node.dataset.node;
      node.classList.toggle("off", group.has(name) && name !== first);
      node.querySelector("text").textContent = name === first ? `${group.size} nodes` : name;
    }
    for (const edge of edges) {
      const [a, b] = [end(edge.dataset.from), end(edge.dataset.to)];
      edge.classList.toggle("off", a === b);
      if (!group.has(edge.dataset.from) && !group.has(edge.dataset.to)) { edge.setAttribute("d", ways.get(edge)); continue; }
      const middle = (name) => { const box = boxes.get(name); return [box.x.baseVal.value + box.width.baseVal.value / 2, box.y.baseVal.value]; };
      const [x0, y0] = middle(a), [x1, y1] = middle(b), low = y1 + boxes.get(b).height.baseVal.value, bend = (y0 - low) / 2;
      edge.setAttribute("d", `M${x0} ${y0}C${x0} ${y0 - bend} ${x1} ${low + bend} ${x1} ${low}`);
    }
  }
  function draw() {
    const linked = (e) => pins.has(e.dataset.from) || pins.has(e.dataset.to);
    const near = new Set(edges.filter(linked).flatMap((e) => [e.dataset.from, e.dataset.to]));
    for (const edge of edges) edge.classList.toggle("faint", pins.size > 0 && !linked(edge));
    for (const node of nodes) {
      const pinned = pins.has(node.dataset.node);
      node.classList.toggle("pinned", pinned);
      node.setAttribute("aria-pressed", String(pinned));
      node.classList.toggle("faint", pins.size > 0 && !pinned && !near.has(node.dataset.node));
    }
    const heads = [...pins].filter((name) => model?.at.has(name));
    told.replaceChildren(pins.size ? `Pinned: ${[...pins].join(", ")}. ` : "", ...heads.flatMap((h) => [headLink(model.id, h, `Card of ${h}`), " "]));
    if (pins.size > 1) told.append(control("Group them", () => { group = new Set(pins); draws(); draw(); }));
    if (group.size) told.append(control(`Ungroup ${[...group].join(", ")}`, () => { group = new Set(); draws(); draw(); }));
  }
}
follow(); // the head that the address names
