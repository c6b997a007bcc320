// Differences of two models: a map per metric; a click opens the head of both models side by side.
for (const section of document.querySelectorAll("section.compare")) {
  const found = atlas.comparisons.find((x) => x.id === section.id), [a, b] = [modelOf.get(found.a), modelOf.get(found.b)];
  const title = section.querySelector(".shown"), drawn = [];
  let part = found.metrics[0];
  for (const svg of section.querySelectorAll("svg.map")) {
    const map = new HeadMap(svg, a, Number(svg.dataset.stack), (label, from) => {
      shown.from = from;
      if (b.at.has(label)) openHead(b.id, label, from, { model: a.id, label });
      else openHead(a.id, label, from);
    });
    map.told = (i) => {
      const value = (name) => column(part, name, a.size)[i];
      const d = value("difference"), p = value("p");
      return `${a.labels[i]}: ${part.metric} ${Number.isNaN(d) ? "no difference measured" : `${digits(d, true)}${between(value("low"), value("high"), true)} ${part.unit}`}${Number.isNaN(p) ? "" : `, p ${p.toPrecision(2)}`}`;
    };
    drawn.push(map);
  }
  for (const link of section.querySelectorAll(".changed a.head")) link.addEventListener("click", (event) => {
    const [head] = headsIn(link.getAttribute("href"));
    if (event.ctrlKey || event.metaKey || event.shiftKey || !b.at.has(head.label)) return;
    event.preventDefault();
    event.stopPropagation(); // of one head alone
    openHead(b.id, head.label, link, { model: a.id, label: head.label });
  });
  if (!drawn.length) continue;
  const bar = make("div", { class: "scale" });
  const choice = make("select", { onchange: () => { part = found.metrics[choice.selectedIndex]; draw(); }, "aria-label": "metric of the differences" },
    ...found.metrics.map((m) => make("option", {}, m.metric)));
  title.replaceChildren(choice, ` ${b.name} minus ${a.name} `, rowButtons(`${b.name} minus ${a.name}`, () => [["head", "metric", "difference", "low", "high", "p"],
    ...found.metrics.flatMap((m) => a.labels.map((label, i) => [label, m.metric, ...["difference", "low", "high", "p"].map((k) => column(m, k, a.size)[i])]))]));
  drawn.at(-1).svg.after(bar);
  draw();
  function draw() {
    const values = column(part, "difference", a.size);
    let size = 0;
    for (const v of values) if (!Number.isNaN(v)) size = Math.max(size, Math.abs(v));
    const scale = { low: -(size || 1), high: size || 1, signed: true };
    for (const map of drawn) map.paint((i) => bin(values[i], scale));
    bar.replaceChildren(digits(scale.low, true), make("i", { class: "bar bar-d" }), `${digits(scale.high, true)} ${part.unit}`);
  }
}
