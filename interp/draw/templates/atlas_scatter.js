// All heads over any two numbers: a picture that takes the colours, marks and search of the maps.
const PLOT = { wide: 420, high: 300, left: 52, top: 10, right: 12, foot: 40 }, NEAR = 18; // pixels
class Scatter {
  constructor(place, model, open) {
    Object.assign(this, { model, open, plain: true, at: -1 });
    const { wide, high } = PLOT, names = model.metrics.map((m) => m.name);
    this.svg = make("svg", { class: "plot live", viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, tabindex: 0, role: "application",
      "aria-roledescription": "scatter of heads", "aria-label": `Heads of ${model.name} over two numbers. Left and right arrow keys move along x, up and down along y, Enter opens a head's card.` });
    this.axes = make("g", { class: "axes", "aria-hidden": "true" });
    this.cells = make("g", { class: "cells", "aria-hidden": "true" });
    this.error = make("path", { class: "between" });
    this.marks = make("path", { class: "hit" });
    this.ring = make("path", { class: "open" });
    this.cursor = make("path", { class: "cursor" });
    this.svg.append(this.axes, this.cells, this.error, this.marks, this.ring, this.cursor);
    this.output = make("output", { "aria-live": "polite" });
    const has = (name, other) => (names.includes(name) ? name : names[Math.min(other, names.length - 1)]);
    const choice = (axis, first) => {
      const select = make("select", { "aria-label": `${axis} axis`, onchange: () => { this.read(); repaint(); } }, ...names.map((n) => make("option", {}, n)));
      select.value = first;
      return select;
    };
    this.x = choice("x", has("explained_position", 0));
    this.y = choice("y", has("explained_list", 1));
    place.append(make("summary", {}, "Heads over two numbers"),
      make("figure", {}, make("p", { class: "tools" }, make("label", {}, "x ", this.x), make("label", {}, "y ", this.y)), this.svg, this.output));
    for (const kind of ["pointermove", "pointerdown"]) this.svg.addEventListener(kind, (event) => { const i = this.under(event); if (i >= 0) this.show(i); });
    this.svg.addEventListener("click", (event) => { const i = event.detail ? this.under(event) : this.at; if (i >= 0) this.open(model.labels[i], this.svg); });
    this.svg.addEventListener("focus", () => this.show(this.at < 0 ? this.order[0][0] ?? -1 : this.at));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.read();
  }
  read() {
    const { left, top, right, foot, wide, high } = PLOT, { model } = this;
    const [a, b] = [this.x, this.y].map((select) => {
      const metric = model.metrics[select.selectedIndex], values = column(metric, "score", model.size);
      let low = Infinity, most = -Infinity;
      for (const v of values) if (!Number.isNaN(v)) { low = Math.min(low, v); most = Math.max(most, v); }
      if (most < low) low = most = 0;
      if (low > 0 && low < 0.3 * most) low = 0;
      const room = 0.04 * (most - low || Math.abs(most) || 1);
      return { metric, values, low: low === 0 ? 0 : low - room, high: most + room };
    });
    Object.assign(this, { a, b });
    this.px = (v) => left + (wide - left - right) * within((v - a.low) / (a.high - a.low), 0, 1);
    this.py = (v) => high - foot - (high - foot - top) * within((v - b.low) / (b.high - b.low), 0, 1);
    const known = [...Array(model.size).keys()].filter((i) => !Number.isNaN(a.values[i] + b.values[i]));
    this.order = [a, b].map(({ values }) => [...known].sort((i, j) => values[i] - values[j] || i - j));
    const text = (x, y, content, more) => make("text", { x: x.toFixed(1), y: y.toFixed(1), ...more }, content);
    const named = ({ metric }) => `${metric.name}${metric.unit ? ` (${metric.unit})` : ""}`;
    const both = [Math.max(a.low, b.low), Math.min(a.high, b.high)];
    const diagonal = a.metric.unit === b.metric.unit && a !== b && both[1] > both[0] ? [make("path", { class: "equal", d: `M${this.px(both[0])} ${this.py(both[0])}L${this.px(both[1])} ${this.py(both[1])}` })] : [];
    this.axes.replaceChildren(make("path", { class: "frame", d: `M${left} ${top}V${high - foot}H${wide - right}` }), ...diagonal,
      ...ticks(a).map((v) => text(this.px(v), high - foot + 14, String(v))), ...ticks(b).map((v) => text(left - 4, this.py(v) + 4, String(v), { class: "y" })),
      text((left + wide - right) / 2, high - 8, named(a)), text(12, (top + high - foot) / 2, named(b), { transform: `rotate(-90 12 ${(top + high - foot) / 2})` }));
    this.point(this.at);
  }
  dot(i, size = 3.5) { return `M${(this.px(this.a.values[i]) - size).toFixed(1)} ${this.py(this.b.values[i]).toFixed(1)}a${size} ${size} 0 1 0 ${2 * size} 0a${size} ${size} 0 1 0 ${-2 * size} 0z`; }
  has(i) { return i >= 0 && !Number.isNaN(this.a.values[i] + this.b.values[i]); }
  under(event) {
    const box = this.svg.getBoundingClientRect(), scale = PLOT.wide / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    let best = -1, near = NEAR ** 2;
    for (const i of this.order[0]) {
      const far = (this.px(this.a.values[i]) - x) ** 2 + (this.py(this.b.values[i]) - y) ** 2;
      if (far < near) { near = far; best = i; }
    }
    return best;
  }
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = STEPS[event.key];
    if ((event.key === "Enter" || event.key === " ") && this.at >= 0) this.open(this.model.labels[this.at], this.svg);
    else if (step) {
      const order = this.order[step[0] ? 1 : 0], next = order.indexOf(this.at) + (step[0] ? -step[0] : step[1]);
      if (order.length) this.show(order[within(next, 0, order.length - 1)]);
    } else return;
    event.preventDefault();
  }
  show(i) {
    this.point(i);
    if (i < 0) return;
    const { a, b, model } = this, told = ({ metric, values }) => `${metric.name} ${digits(values[i])}${between(...interval(metric, model, i))}`;
    this.output.textContent = this.has(i) ? `${model.labels[i]}: ${told(a)}; ${told(b)}` : "";
    for (const other of maps) if (other !== this && other.model === model) other.point(i);
  }
  point(i) {
    this.at = i;
    const known = this.has(i);
    this.cursor.setAttribute("d", known ? this.dot(i, 6) : "");
    if (!known) return this.error.setAttribute("d", "");
    const [x, y] = [this.px(this.a.values[i]), this.py(this.b.values[i])], ends = [this.a, this.b].map(({ metric }) => interval(metric, this.model, i));
    const lines = [[ends[0], ([u, v]) => `M${this.px(u)} ${y}H${this.px(v)}`], [ends[1], ([u, v]) => `M${x} ${this.py(u)}V${this.py(v)}`]];
    this.error.setAttribute("d", lines.map(([pair, draw]) => (pair.some(Number.isNaN) ? "" : draw(pair))).join(""));
  }
  paint(classOf) {
    const ways = new Map(), dim = look.role !== null;
    for (const i of this.order[0]) {
      const name = classOf(i) + (dim && atlas.roles[this.model.roles[i]]?.[0] !== look.role ? " dim" : "");
      ways.set(name, (ways.get(name) ?? "") + this.dot(i));
    }
    this.cells.replaceChildren(...[...ways].map(([name, d]) => make("path", { class: name, d })));
  }
  restore() { this.paint((i) => roleOf(this.model, i)?.[3] ?? "none"); }
  ringAt(labels, path = this.ring) {
    path.setAttribute("d", labels.map((label) => this.model.at.get(label)).filter((i) => i !== undefined && this.has(i)).map((i) => this.dot(i, 6)).join(""));
  }
}
function ticks({ low, high }) {
  const raw = (high - low) / 6, power = 10 ** Math.floor(Math.log10(raw)), step = power * [1, 2, 5, 10].find((n) => n * power >= raw);
  const first = Math.ceil(low / step - 1e-9);
  return [...Array(Math.max(0, Math.floor(high / step + 1e-9) - first + 1)).keys()].map((k) => +((first + k) * step).toPrecision(6));
}
for (const place of document.querySelectorAll("details.scatter")) {
  const model = modelOf.get(place.dataset.model);
  if (model.metrics.length < 2) continue;
  place.hidden = false;
  const drawn = new Scatter(place, model, (label, from) => openHead(model.id, label, from));
  maps.push(drawn);
  drawn.restore();
}
