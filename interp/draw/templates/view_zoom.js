// The map of one head over a long prompt, from all of it down to single tokens, in tiles.
const MARGIN = 64, FINEST = 8, KEPT_TILES = 600, AT_ONCE = 4;

class Zoom {
  // ask: returns a tile, given its block, row and column: { query, key, shape, values }
  constructor(stack, item, prompt, ask) {
    Object.assign(this, { stack, item, prompt, ask, tiles: new Map(), asked: new Set(), cursor: null, failed: "" });
    this.least = Math.min(FINEST, Math.max(...stack.tokens));
    this.canvas = make("canvas", { class: "heat", tabindex: 0, role: "img",
      onpointerdown: (e) => this.down(e), onpointermove: (e) => this.move(e), onpointerup: () => { this.from = null; },
      onpointercancel: () => { this.from = null; }, ondblclick: (e) => this.zoom(0.5, this.place(e)),
      onwheel: (e) => this.wheel(e), onkeydown: (e) => this.key(e), "aria-label":
      "map of weights, queries downwards, keys to the right; arrow keys move, plus and minus zoom, Home shows all of it" });
    this.said = make("output", { "aria-live": "polite" });
    this.level = make("p", { class: "note level" });
    this.body = make("figure", { class: "zoom" },
      make("p", { class: "note" }, "Queries down, keys across. Drag to move; double-click, + and − zoom; so does the wheel once the map has the focus."),
      this.buttons(), this.canvas, this.level, this.said);
    this.whole();
  }
  buttons() {
    const [q, k] = ["query", "key"].map((name) => make("input", { type: "number", min: 0, "aria-label": name, placeholder: name }));
    const go = () => this.goTo(...[q, k].map((input) => Number(input.value) || 0));
    return make("p", { class: "controls" },
      control("+", () => this.zoom(0.5), { "aria-label": "zoom in" }), control("−", () => this.zoom(2), { "aria-label": "zoom out" }),
      control("All of it", () => this.whole()), q, k, control("Go to", go));
  }
  goTo(row, column) {
    this.cursor = [row, column];
    this.show(row - 16, column - 16, 32);
    this.tell();
  }
  whole() { this.show(0, 0, Math.max(...this.stack.tokens)); }
  show(q, k, span) { // tokens: the first query, the first key, and how many of each
    const [nq, nk] = this.stack.tokens, most = Math.max(nq, nk);
    this.span = within(span, this.least, most);
    this.q = within(q, 0, Math.max(0, nq - this.span));
    this.k = within(k, 0, Math.max(0, nk - this.span));
    this.draw();
    clearTimeout(this.later);
    this.later = setTimeout(() => this.fetch(), 60);
  }
  zoom(factor, at = [this.q + this.span / 2, this.k + this.span / 2]) {
    const span = within(this.span * factor, this.least, Math.max(...this.stack.tokens)), part = span / this.span;
    this.show(at[0] - (at[0] - this.q) * part, at[1] - (at[1] - this.k) * part, span);
  }
  side() { return Math.max(200, Math.min(560, (this.canvas.parentElement?.clientWidth || 600) - MARGIN - 4)); }
  block() { // the finest one whose points are at least two pixels wide
    const { blocks } = this.prompt;
    return [...blocks].reverse().find((b) => (this.side() * b) / this.span >= 2) ?? blocks[0];
  }
  place(event) { // the token under the pointer, with a fraction
    const scale = this.span / this.side();
    return [this.q + (event.offsetY - MARGIN) * scale, this.k + (event.offsetX - MARGIN) * scale];
  }
  down(event) {
    this.from = [event.offsetX, event.offsetY, this.q, this.k];
    this.canvas.setPointerCapture(event.pointerId);
    this.point(event);
  }
  move(event) {
    this.point(event);
    if (!this.from) return;
    const [x, y, q, k] = this.from, scale = this.span / this.side();
    if (Math.hypot(event.offsetX - x, event.offsetY - y) < 4) return;
    this.show(q - (event.offsetY - y) * scale, k - (event.offsetX - x) * scale, this.span);
  }
  point(event) {
    const [row, column] = this.place(event).map(Math.floor), [nq, nk] = this.stack.tokens;
    if (event.offsetX < MARGIN || event.offsetY < MARGIN || row >= nq || column >= nk) return;
    this.cursor = [row, column];
    this.tell();
  }
  wheel(event) {
    if (!event.ctrlKey && root.activeElement !== this.canvas) return;
    event.preventDefault();
    this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.place(event));
  }
  key(event) {
    const move = STEPS[event.key], step = Math.max(1, this.span / 8);
    if (move) this.show(this.q + move[0] * step, this.k + move[1] * step, this.span);
    else if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (event.key === "Home") this.whole();
    else return;
    event.preventDefault();
  }
  around(block) { // tiles that the view needs, those in its middle first
    const size = this.prompt.tile * block, found = [], [nq, nk] = this.stack.tokens;
    const last = (first, n) => Math.floor((Math.min(first + this.span, n) - 1e-6) / size);
    for (let row = Math.floor(this.q / size); row <= last(this.q, nq); row++) {
      for (let column = Math.floor(this.k / size); column <= last(this.k, nk); column++) {
        const away = Math.hypot((row + 0.5) * size - this.q - this.span / 2, (column + 0.5) * size - this.k - this.span / 2);
        found.push({ block, row, column, away, name: `${block},${row},${column}` });
      }
    }
    return found.sort((a, b) => a.away - b.away);
  }
  async fetch() {
    const turn = (Zoom.turn = Math.max(Date.now(), Zoom.turn + 1)), missing = this.around(this.block()).filter((t) => !this.tiles.has(t.name));
    this.turn = turn;
    this.failed = "";
    const one = async () => {
      for (let tile = missing.shift(); tile && this.turn === turn; tile = missing.shift()) {
        const { block, row, column, name } = tile;
        try {
          const found = await this.ask({ block, row, column, turn });
          this.keep(name, found);
        } catch (error) {
          if (!error.replaced) this.failed = error.message;
        }
        this.draw();
        if (this.cursor) this.tell();
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, one));
    this.draw();
  }
  keep(name, found) {
    const { values } = found, [rows, columns] = found.shape;
    const picture = new OffscreenCanvas(columns, rows), pen = picture.getContext("2d");
    const pixels = pen.createImageData(columns, rows), colours = page.palette.map(rgb);
    values.forEach((x, i) => pixels.data.set([...colours[Math.round(share(x) * (colours.length - 1))], 255], 4 * i));
    pen.putImageData(pixels, 0, 0);
    this.tiles.set(name, { ...found, picture });
    if (this.tiles.size > KEPT_TILES) this.tiles.delete(this.tiles.keys().next().value);
  }
  recolour() {
    for (const [name, tile] of [...this.tiles]) this.keep(name, tile);
    this.draw();
  }
  draw() {
    const side = this.side(), scale = side / this.span, block = this.block(), [nq, nk] = this.stack.tokens;
    const pen = sized(this.canvas, MARGIN + side + 1, MARGIN + side + 1);
    pen.save();
    pen.beginPath();
    pen.rect(MARGIN, MARGIN, Math.min(side, (nk - this.k) * scale), Math.min(side, (nq - this.q) * scale));
    pen.fillStyle = page.palette[0];
    pen.fill();
    pen.clip();
    pen.imageSmoothingEnabled = false;
    for (const level of this.prompt.blocks.filter((b) => b >= block)) { // coarse ones below finer ones
      for (const { name } of this.around(level)) {
        const tile = this.tiles.get(name);
        if (!tile) continue;
        const [rows, columns] = tile.shape;
        pen.drawImage(tile.picture, MARGIN + (tile.key - this.k) * scale, MARGIN + (tile.query - this.q) * scale,
          columns * level * scale, rows * level * scale);
      }
    }
    pen.restore();
    this.axes(pen, side, scale);
    const missing = this.around(block).filter((t) => !this.tiles.has(t.name)).length;
    const what = block === 1 ? "Each point is one weight" : `Each point is the largest weight between ${block} queries and ${block} keys`;
    this.level.textContent = `Queries ${Math.floor(this.q)} to ${Math.ceil(Math.min(this.q + this.span, nq)) - 1}, keys ${Math.floor(this.k)} to `
      + `${Math.ceil(Math.min(this.k + this.span, nk)) - 1}. ${what}.${this.failed ? ` ${this.failed}` : missing ? " Computing …" : ""}`;
    this.level.dataset.block = block;
    this.level.dataset.missing = missing;
  }
  axes(pen, side, scale) {
    const named = scale >= 11, step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5].find((s) => s * scale >= (named ? 11 : 40)) || 2e5;
    pen.font = "10px system-ui, sans-serif";
    pen.fillStyle = INK;
    pen.textBaseline = "middle";
    for (const [at, n, across] of [[this.q, this.stack.tokens[0], false], [this.k, this.stack.tokens[1], true]]) {
      const texts = across ? this.stack.keys : this.stack.queries;
      for (let i = Math.ceil(at / step) * step; i < Math.min(at + this.span, n); i += step) {
        const middle = MARGIN + (i - at + 0.5) * scale;
        if (middle > MARGIN + side) continue;
        pen.save();
        if (across) { pen.translate(middle, MARGIN - 4); pen.rotate(-Math.PI / 2); } else pen.translate(MARGIN - 4, middle);
        pen.textAlign = across ? "left" : "right";
        pen.fillText(named ? short(visible(texts[i]), 10) : String(i), 0, 0, MARGIN - 8);
        pen.restore();
      }
    }
  }
  tell() {
    const [row, column] = this.cursor, block = this.block(), { tile } = this.prompt;
    const level = this.prompt.blocks.find((b) => b <= block && this.at(b, row, column, tile) !== null)
      ?? [...this.prompt.blocks].reverse().find((b) => b >= block && this.at(b, row, column, tile) !== null);
    const label = (side, i) => {
      const texts = this.stack[side === "query" ? "queries" : "keys"], from = Math.floor(i / (level || 1)) * (level || 1);
      const to = Math.min(from + (level || 1), texts.length) - 1;
      return to > from ? `${from}–${to} ${visible(texts[from])}…` : `${from} ${visible(texts[from])}`;
    };
    const value = level === undefined ? "not computed yet" : `${level > 1 ? "largest weight" : "weight"} ${spoken(this.at(level, row, column, tile))}`;
    this.said.textContent = `query ${label("query", row)} → key ${label("key", column)}: ${value}`;
  }
  at(block, row, column, size) {
    const [y, x] = [row, column].map((i) => Math.floor(i / block)), [r, c] = [y, x].map((i) => Math.floor(i / size));
    const tile = this.tiles.get(`${block},${r},${c}`);
    return tile ? tile.values[(y - r * size) * tile.shape[1] + x - c * size] : null;
  }
}
Zoom.turn = 0;
