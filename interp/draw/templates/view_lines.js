// One head as lines from queries (left) to keys (right), and, over an image, as coloured patches.
const ROW = 20, GAP = 150, NEAR = 4;

class Lines {
  constructor(shown, onpair) {
    Object.assign(this, { shown, onpair, pinned: null, over: null, least: 0.05 });
    this.canvas = make("canvas", { class: "heat", role: "img", "aria-label": "lines between tokens; the lists beside them reach every line with the keyboard",
      onclick: (event) => this.edge(event) });
    this.columns = {};
    for (const side of ["query", "key"]) {
      const on = (act) => (event) => {
        const button = event.target.closest("button");
        if (button) act.call(this, side, Number(button.dataset.at));
      };
      this.columns[side] = make("ol", { class: side, "aria-label": side === "query" ? "queries" : "keys",
        onmouseover: on(this.point), onfocusin: on(this.point), onclick: on(this.choose),
        onmouseleave: () => this.leave(), onkeydown: (event) => this.keys(side, event) });
    }
    this.said = make("output", { "aria-live": "polite" });
    this.body = make("div", { class: "lines" }, this.columns.query, this.canvas, this.columns.key);
    this.fill();
  }
  fill() {
    const [q0, q1, k0, k1] = this.shown.ranges;
    this.pinned = this.over = null;
    for (const [side, from, to] of [["query", q0, q1], ["key", k0, k1]]) {
      this.columns[side].replaceChildren();
      for (let i = from; i < to; i++) {
        const name = this.shown.label(side, i), text = short(this.shown.token(side, i), 18);
        const about = { "data-at": i, title: name, "aria-label": `${side} ${text.endsWith("…") ? `${this.shown.place(side, i)} ${text}` : name}`, tabindex: i === from ? 0 : -1 };
        this.columns[side].append(make("li", {}, control(text, null, about)));
      }
    }
    this.draw();
  }
  point(side, i) { this.over = [side, i]; this.draw(); }
  leave() { this.over = null; this.draw(); }
  choose(side, i) {
    if (this.pinned && this.pinned[0] !== side) {
      const [query, key] = side === "key" ? [this.pinned[1], i] : [i, this.pinned[1]];
      this.onpair(query, key);
    } else {
      this.pinned = this.pinned && this.pinned[1] === i ? null : [side, i];
    }
    this.draw();
  }
  edge(event) { // the line under the pointer, of those near it the one with the largest weight
    const [q0, q1, k0, k1] = this.shown.ranges, focus = this.pinned, part = event.offsetX / GAP;
    let best = null, most = 0;
    for (let q = q0; q < q1; q++) for (let k = k0; k < k1; k++) {
      const weight = this.shown.weight(q, k), y = (q - q0 + 0.5 + (k - k0 - q + q0) * part) * ROW;
      if (weight < this.least || weight <= most || Math.abs(y - event.offsetY) > NEAR) continue;
      if (focus && focus[1] !== (focus[0] === "query" ? q : k)) continue;
      [best, most] = [[q, k], weight];
    }
    if (best) this.onpair(...best);
  }
  keys(side, event) {
    if (event.key === "Escape") { this.pinned = this.over = null; this.draw(); return; }
    const [down, across] = STEPS[event.key] || [0, 0];
    const buttons = [...this.columns[side].querySelectorAll("button")];
    let next = buttons[buttons.indexOf(root.activeElement) + down];
    if (across && (across > 0) === (side === "query")) {
      next = this.columns[side === "query" ? "key" : "query"].querySelector('[tabindex="0"]');
    } else if (!down || !next) return;
    else {
      for (const button of buttons) button.tabIndex = -1;
      next.tabIndex = 0;
    }
    next.focus();
    event.preventDefault();
  }
  draw() {
    const [q0, q1, k0, k1] = this.shown.ranges, focus = this.over || this.pinned;
    const pen = sized(this.canvas, GAP, ROW * Math.max(q1 - q0, k1 - k0) + 1);
    let drawn = 0, all = 0;
    pen.strokeStyle = page.palette[Math.round(page.palette.length * 0.75)];
    pen.lineWidth = 2;
    for (let q = q0; q < q1; q++) for (let k = k0; k < k1; k++) {
      const weight = this.shown.weight(q, k);
      all += weight > 0;
      if (weight < this.least || weight === 0) continue;
      if (focus && focus[1] !== (focus[0] === "query" ? q : k)) continue;
      pen.globalAlpha = Math.max(0.04, share(weight));
      pen.beginPath();
      pen.moveTo(0, (q - q0 + 0.5) * ROW);
      pen.lineTo(GAP, (k - k0 + 0.5) * ROW);
      pen.stroke();
      drawn++;
    }
    this.mark(focus);
    const pin = this.pinned ? `; ${this.pinned[0]} pinned, choose a ${this.pinned[0] === "query" ? "key" : "query"}` : "";
    this.said.textContent = focus
      ? `${focus[0]} ${this.shown.label(focus[0], focus[1])}: ${drawn} ${drawn === 1 ? "line" : "lines"}${pin}`
      : `${drawn.toLocaleString()} of ${all.toLocaleString()} weights drawn`;
  }
  mark(focus) { // the weights of one token, written beside the tokens of the other side
    for (const side of ["query", "key"]) for (const button of this.columns[side].querySelectorAll("button")) {
      const i = Number(button.dataset.at), other = focus && focus[0] !== side;
      const weight = other ? this.shown.weight(...(side === "key" ? [focus[1], i] : [i, focus[1]])) : 0;
      button.classList.toggle("on", Boolean(focus) && focus[0] === side && focus[1] === i);
      button.dataset.weight = other && weight >= this.least && weight > 0 ? weight.toFixed(2) : "";
    }
  }
}

// The patches that one query attends to, coloured over the image.
class OverImage {
  constructor(shown, image, onpair) {
    Object.assign(this, { shown, image, onpair, query: shown.stack.picture.skip });
    const { skip } = shown.stack.picture;
    this.canvas = make("canvas", { tabindex: 0, role: "img", onclick: (e) => this.show(this.patch(e)), onkeydown: (e) => this.keys(e),
      "aria-label": "image: arrow keys choose the patch whose attention is shown, Enter opens its largest weight" });
    this.said = make("output", { "aria-live": "polite" });
    this.others = make("p", { class: "controls" });
    for (let i = 0; i < skip; i++) {
      this.others.append(control(`query ${shown.token("query", i)}`, () => this.show(i)));
    }
    this.body = make("div", { class: "over" }, this.canvas, this.others);
  }
  geometry() {
    const { grid: [down, across], size, skip } = this.shown.stack.picture;
    const width = within(size[1], 224, 384);
    return { down, across, skip, width, height: (width * size[0]) / size[1] };
  }
  patch(event) {
    const { down, across, skip, width, height } = this.geometry();
    const row = within(Math.floor((event.offsetY / height) * down), 0, down - 1);
    const column = within(Math.floor((event.offsetX / width) * across), 0, across - 1);
    return skip + row * across + column;
  }
  keys(event) {
    const { across, skip } = this.geometry(), move = STEPS[event.key];
    if (move) {
      const next = this.query + move[0] * across + move[1];
      if (next >= skip && next < this.shown.rows) this.show(next);
      event.preventDefault();
    } else if (event.key === "Enter") this.onpair(this.query, this.largest());
  }
  largest() {
    const weights = [...Array(this.shown.columns).keys()].map((k) => this.shown.weight(this.query, k));
    return weights.indexOf(Math.max(...weights));
  }
  show(query) { this.query = query; this.draw(); }
  draw() {
    const { down, across, skip, width, height } = this.geometry();
    const pen = sized(this.canvas, width, height), [w, h] = [width / across, height / down];
    pen.imageSmoothingEnabled = false;
    pen.filter = "grayscale(1)"; // so that colour means weight, on dark images and on light ones
    pen.drawImage(this.image, 0, 0, width, height);
    pen.filter = "none";
    const box = (at) => [(at % across) * w, Math.floor(at / across) * h, w, h];
    const patches = [...Array(this.shown.columns - skip).keys()].map((at) => this.shown.weight(this.query, at + skip));
    const top = Math.max(0, ...patches), placed = patches.reduce((sum, weight) => sum + weight, 0);
    patches.forEach((weight, at) => {
      pen.fillStyle = `rgb(230 159 0 / ${0.8 * Math.sqrt(weight / (top || 1))})`;
      pen.fillRect(...box(at));
    });
    if (this.query >= skip) {
      const [x, y] = box(this.query - skip);
      for (const [line, ink] of [[5, "#ffffff"], [2.5, "#0072b2"]]) {
        pen.lineWidth = line;
        pen.strokeStyle = ink;
        pen.strokeRect(x + 2.5, y + 2.5, w - 5, h - 5);
      }
    }
    const best = this.largest();
    this.said.textContent = `query ${this.shown.label("query", this.query)}: largest weight `
      + `${spoken(this.shown.weight(this.query, best))} on ${this.shown.label("key", best)}; `
      + `${spoken(placed)} on patches. The most orange patch has ${spoken(top)}.`;
  }
}
