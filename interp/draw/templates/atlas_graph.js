// Circuits: a click on a node pins it and its edges; pinned nodes can be drawn as one group.
for (const svg of document.querySelectorAll("svg.graph")) {
  const nodes = [...svg.querySelectorAll(".node")], edges = [...svg.querySelectorAll(".edge")], pins = new Set();
  const model = atlas.models.find((m) => document.getElementById(svg.dataset.graph)?.closest(`[data-model="${CSS.escape(m.id)}"]`));
  for (const node of nodes) {
    const name = node.dataset.node, press = () => { if (!pins.delete(name)) pins.add(name); draw(); };
    for (const [key, value] of Object.entries({ tabindex: 0, role: "button", "aria-pressed": "false", "aria-label": node.querySelector("title").textContent })) node.setAttribute(key, value);
    node.addEventListener("click", press);
    node.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); press(); } });
  }
  svg.setAttribute("role", "group");
  const told = make("p", { class: "note", role: "status" });
  svg.after(told);
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
  }
}
follow(); // the head that the address names
