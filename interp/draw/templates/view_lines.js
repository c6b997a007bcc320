// One head as lines from queries (left) to keys (right), and, over an image, as coloured patches.
const ROW = 20, GAP = 150;

class Lines {
  constructor(shown, onpair) {
    Object.assign(this, { shown, onpair, pinned: null, over: null, least: 0.05 });
    this.canvas = make("canvas", { class: "heat", role: "img", "aria-label": "lines between tokens" });
    this.columns = { query: make("ol"), key: make("ol") };
    for (const side of ["query", "key"]) {
      const list = this.columns[side];
      list.className = side;
      list.setAttribute("aria-label", side === "query" ? "queries" : "keys");
      const on = (event, act) => list.addEventListener(event, (e) => {
        const button = e.target.closest("button");
        if (button) act.call(this, side, Number(button.dataset.at));
      });
      on("mouseover", this.point);
      on("focusin", this.point);
      on("click", this.choose);
      list.addEventListener("mouseleave", () => this.leave());
      list.addEventListener("keydown", (e) => this.keys(side, e));
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
        const name = this.shown.label(side, i), text = this.shown.token(side, i);
        const about = { "data-at": i, title: name, "aria-label": `${side} ${name}`, tabindex: i === from ? 0 : -1 };
        this.columns[side].append(make("li", {}, control(short(text, 18), null, about)));
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
  keys(side, event) {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") { this.pinned = this.over = null; this.draw(); return; }
    const other = this.columns[side === "query" ? "key" : "query"];
    if ((event.key === "ArrowRight" && side === "query") || (event.key === "ArrowLeft" && side === "key")) {
      other.querySelector('[tabindex="0"]').focus();
      event.preventDefault();
      return;
    }
    if (!move) return;
    const buttons = [...this.columns[side].querySelectorAll("button")];
    const next = buttons[buttons.indexOf(document.activeElement) + move];
    if (!next) return;
    for (const button of buttons) button.tabIndex = -1;
    next.tabIndex = 0;
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
    this.canvas = make("canvas", { tabindex: 0, role: "img", "aria-label":
      "image: arrow keys choose the patch whose attention is shown, Enter opens its largest weight" });
    this.said = make("output", { "aria-live": "polite" });
    this.others = make("p", { class: "controls" });
    const { skip } = shown.stack.picture;
    for (let i = 0; i < skip; i++) {
      this.others.append(control(`query ${shown.token("query", i)}`, () => this.show(i)));
    }
    this.canvas.addEventListener("click", (e) => this.show(this.patch(e)));
    this.canvas.addEventListener("keydown", (e) => this.keys(e));
    this.body = make("div", { class: "over" }, this.canvas, this.others);
  }
  geometry() {
    const { grid, size } = this.shown.stack.picture;
    const width = Math.min(384, Math.max(224, size[1]));
    return { down: grid[0], across: grid[1], width, height: (width * size[0]) / size[1] };
  }
  patch(event) {
    const { down, across, width, height } = this.geometry();
    const row = Math.min(down - 1, Math.floor((event.offsetY / height) * down));
    const column = Math.min(across - 1, Math.floor((event.offsetX / width) * across));
    return this.shown.stack.picture.skip + Math.max(0, row) * across + Math.max(0, column);
  }
  keys(event) {
    const { across } = this.geometry(), { skip } = this.shown.stack.picture;
    const move = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[event.key];
    if (move) {
      const next = this.query + move;
      if (next >= skip && next < this.shown.rows) this.show(next);
      event.preventDefault();
    } else if (event.key === "Enter") this.onpair(this.query, this.largest());
  }
  largest() {
    let best = 0;
    for (let k = 1; k < this.shown.columns; k++) {
      if (this.shown.weight(this.query, k) > this.shown.weight(this.query, best)) best = k;
    }
    return best;
  }
  show(query) { this.query = query; this.draw(); }
  draw() {
    const { down, across, width, height } = this.geometry(), { skip } = this.shown.stack.picture;
    const pen = sized(this.canvas, width, height), [w, h] = [width / across, height / down];
    pen.imageSmoothingEnabled = false;
    pen.filter = "grayscale(1)"; // so that colour means weight, on dark images and on light ones
    pen.drawImage(this.image, 0, 0, width, height);
    pen.filter = "none";
    let top = 0, placed = 0;
    for (let i = skip; i < this.shown.columns; i++) top = Math.max(top, this.shown.weight(this.query, i));
    for (let i = skip; i < this.shown.columns; i++) {
      const weight = this.shown.weight(this.query, i), at = i - skip;
      placed += weight;
      pen.fillStyle = `rgb(230 159 0 / ${0.8 * Math.sqrt(weight / (top || 1))})`;
      pen.fillRect((at % across) * w, Math.floor(at / across) * h, w, h);
    }
    if (this.query >= skip) {
      const at = this.query - skip;
      for (const [line, ink] of [[5, "#ffffff"], [2.5, "#0072b2"]]) {
        pen.lineWidth = line;
        pen.strokeStyle = ink;
        pen.strokeRect((at % across) * w + 2.5, Math.floor(at / across) * h + 2.5, w - 5, h - 5);
      }
    }
    const best = this.largest();
    this.said.textContent = `query ${this.shown.label("query", this.query)}: largest weight `
      + `${spoken(this.shown.weight(this.query, best))} on ${this.shown.label("key", best)}; `
      + `${spoken(placed)} on patches. The most orange patch has ${spoken(top)}.`;
  }
}
