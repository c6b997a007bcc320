// Maps of heads: coloured by role or by a metric, and reached by mouse, finger and keyboard.
const LEFT = 44, TOP = 34; // as in panel.py
const look = { by: "role", role: null, hits: null };
const maps = [];

class HeadMap {
  constructor(svg, model, stack, open) {
    Object.assign(this, { svg, model, stack, open, at: [0, 0], cell: Number(svg.dataset.cell) });
    this.rows = Number(svg.dataset.layers);
    this.columns = Number(svg.dataset.heads);
    this.cells = svg.querySelector("g.cells");
    this.first = [...this.cells.childNodes];
    this.output = svg.parentElement.querySelector("output");
    this.cursor = make("path", { class: "cursor" });
    this.ring = make("path", { class: "open" });
    this.marks = make("path", { class: "hit" });
    svg.append(this.marks, this.ring);
    svg.classList.add("live");
    const name = svg.getAttribute("aria-label");
    for (const [key, value] of Object.entries({
      tabindex: 0, role: "application", "aria-roledescription": "map of heads",
      "aria-label": `${name}. Arrow keys move from head to head, Enter opens a head's card.`,
    })) svg.setAttribute(key, value);
    // A finger comes down without having moved over the map before, unlike a mouse.
    for (const kind of ["pointermove", "pointerdown"])
      svg.addEventListener(kind, (event) => { const at = this.under(event); if (at) this.show(at); });
    svg.addEventListener("focus", () => this.show(this.at));
    svg.addEventListener("click", (event) => {
      const at = event.detail ? this.under(event) : this.at; // a screen reader has no pointer
      if (at) this.choose(at);
    });
    svg.addEventListener("keydown", (event) => this.key(event));
  }
  index([layer, head]) { return this.model.grids[this.stack][layer * this.columns + head] ?? -1; }
  under(event) {
    const box = this.svg.getBoundingClientRect(), scale = this.svg.viewBox.baseVal.width / box.width;
    const head = Math.floor(((event.clientX - box.left) * scale - LEFT) / this.cell);
    const layer = Math.floor(((event.clientY - box.top) * scale - TOP) / this.cell);
    return head >= 0 && head < this.columns && layer >= 0 && layer < this.rows ? [layer, head] : null;
  }
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = STEPS[event.key], [layer, head] = this.at;
    const ends = { Home: [layer, 0], End: [layer, this.columns - 1], PageUp: [0, head], PageDown: [this.rows - 1, head] };
    if (event.key === "Enter" || event.key === " ") this.choose(this.at);
    else if (step || ends[event.key]) {
      const [y, x] = step ? [layer + step[0], head + step[1]] : ends[event.key];
      this.show([within(y, 0, this.rows - 1), within(x, 0, this.columns - 1)]);
    } else return;
    event.preventDefault();
  }
  choose(at) {
    const i = this.index(at);
    if (i >= 0) this.open(this.model.labels[i], this.svg);
  }
  square([layer, head], out = 0) {
    const size = this.cell - 1 + 2 * out;
    return `M${LEFT + head * this.cell - out} ${TOP + layer * this.cell - out}h${size}v${size}h${-size}z`;
  }
  show(at) {
    this.at = at;
    this.svg.append(this.cursor);
    this.cursor.setAttribute("d", this.square(at, 0.5));
    const i = this.index(at);
    this.output.textContent = i < 0 ? "" : this.told(i);
    for (const other of maps) if (other !== this && other.model === this.model) other.point(i);
  }
  // Another picture of the same heads shows this one.
  point(i) {
    if (i < 0 || this.model.places[3 * i] !== this.stack) return this.cursor.remove();
    this.svg.append(this.cursor);
    this.cursor.setAttribute("d", this.square(placed(this.model, i).slice(1), 0.5));
  }
  told(i) { return headText(this.model, i); }
  // One path per class: 10,000 heads are a few dozen elements.
  paint(classOf) {
    const ways = new Map(), dim = look.role !== null;
    this.each((i, at) => {
      const name = classOf(i) + (dim && atlas.roles[this.model.roles[i]]?.[0] !== look.role ? " dim" : "");
      ways.set(name, (ways.get(name) ?? "") + this.square(at));
    });
    this.cells.replaceChildren(...[...ways].map(([name, d]) => make("path", { class: name, d })));
  }
  each(visit) {
    const { model, stack } = this;
    for (let i = 0; i < model.size; i++)
      if (model.places[3 * i] === stack) visit(i, [model.places[3 * i + 1], model.places[3 * i + 2]]);
  }
  restore() {
    this.cells.replaceChildren(...this.first);
  }
  ringAt(labels, path = this.ring) {
    const places = labels.map((label) => this.model.at.get(label)).filter((i) => i !== undefined && this.model.places[3 * i] === this.stack);
    path.setAttribute("d", places.map((i) => this.square(placed(this.model, i).slice(1), 1)).join(""));
  }
}
function headText(model, i) {
  const label = model.labels[i], role = roleOf(model, i), card = model.cards[label];
  const why = card?.profile?.sentence || card?.evidence?.[0]?.text;
  const start = `${label}: ${role ? role[1] : "not judged"}`;
  if (look.by === "role") return start + (why ? ` · ${why}` : "");
  const found = shownColumn(model);
  if (!found) return start;
  const text = `${label}: ${found.name} ${digits(found.values[i], found.signed) || "no score"}`;
  return `${text} ${found.unit}${found.nulls && digits(found.nulls[i]) ? `; null ${digits(found.nulls[i])}` : ""}`;
}
// The numbers that the maps show: a metric, or the effect of removing each head.
function shownColumn(model) {
  const [kind, name] = look.by.split(/:(.*)/s);
  if (kind === "metric") {
    const metric = model.metrics.find((m) => m.name === name);
    if (!metric) return null;
    return { ...metric, values: column(metric, "score", model.size), nulls: column(metric, "null_score", model.size) };
  }
  const effects = model.labels.map((label) => model.cards[label]?.effects?.find((e) => effectName(e) === name));
  const unit = effects.find(Boolean)?.unit;
  if (unit === undefined) return null;
  return { name, unit, low: null, high: null, signed: true, values: effects.map((e) => e?.value ?? NaN) };
}
function effectName(effect) { return `${effect.task}, ${effect.intervention}`; }
function repaint() {
  for (const map of maps) {
    const found = look.by === "role" ? null : shownColumn(map.model);
    map.scale?.remove();
    if (look.by === "role" && look.role === null) map.restore();
    else if (look.by === "role") map.paint((i) => roleOf(map.model, i)?.[3] ?? "none");
    else if (!found) map.paint(() => "none");
    else {
      const scale = scaleOf(found.values, found.low, found.high);
      map.paint((i) => bin(found.values[i], scale));
      if (map.plain) continue; // the map beside it has the scale
      map.scale = make("div", { class: "scale" }, digits(scale.low), make("i", { class: `bar bar-${scale.signed ? "d" : "q"}` }), `${digits(scale.high)} ${found.unit}`);
      map.svg.after(map.scale);
    }
  }
  for (const line of document.querySelectorAll(".said li")) line.hidden = look.role !== null && line.dataset.role !== look.role;
}
for (const svg of document.querySelectorAll("svg.map[data-model]")) {
  const model = modelOf.get(svg.dataset.model);
  maps.push(new HeadMap(svg, model, Number(svg.dataset.stack), (label, from) => openHead(model.id, label, from)));
}
// The legend filters: one role at a time.
for (const item of document.querySelectorAll(".legend li")) {
  const button = control("", () => {
    look.role = look.role === item.dataset.role ? null : item.dataset.role;
    for (const other of document.querySelectorAll(".legend button"))
      other.setAttribute("aria-pressed", String(other.parentElement.dataset.role === look.role));
    repaint();
  }, { "aria-pressed": "false" });
  button.append(...item.childNodes);
  item.append(button);
}
