// Draws the colours and the matrix of a head. Canvases are drawn as for a white page; the
// style sheet turns their lightness round on a dark one.
const INK = "#1b1f23", SOFT = "#5b6570", MARK = "#c2410c";

let spread = "root";
function share(weight) {
  return Math.min(1, spread === "root" ? Math.sqrt(weight) : weight);
}
function colour(weight) {
  return page.palette[Math.round(share(weight) * (page.palette.length - 1))];
}
function signedColour(part) { // from -1 to 1
  const n = page.signed.length;
  return page.signed[Math.round(((within(part, -1, 1) + 1) / 2) * (n - 1))];
}
const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.ceil(width * ratio);
  canvas.height = Math.ceil(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  return pen;
}

const visible = (token) => token.replace(/\n/g, "⏎").replace(/\t/g, "⇥") || "∅";
const short = (text, n = 14) => (text.length > n ? `${text.slice(0, n - 1)}…` : text);
function spoken(x) { // a number for people
  if (!Number.isFinite(x)) return "hidden";
  return Math.abs(x) >= 0.001 || x === 0 ? x.toFixed(4) : x.toExponential(2);
}

// A head, or a tile of one, with what is needed to name its rows and columns.
class Shown {
  constructor(stack, item, weights, tile) {
    Object.assign(this, { stack, item, weights, tile });
    [this.rows, this.columns] = item.w.n;
    this.block = tile ? 1 : item.block;
    this.queries = tile ? item.queries : stack.queries;
    this.keys = tile ? item.keys : stack.keys;
    this.first = tile ? item.first : [0, 0];
    this.step = this.block * (tile ? 1 : stack.block); // tokens per row
    this.ranges = [0, this.rows, 0, this.columns];
    this.cursor = null;
  }
  weight(row, column) { return this.weights[row * this.columns + column]; }
  token(side, i) {
    return visible((side === "query" ? this.queries : this.keys)[i * this.block] ?? "");
  }
  place(side, i) { return i * this.step + this.first[side === "query" ? 0 : 1]; }
  label(side, i) {
    const at = this.place(side, i), more = this.step > 1 ? `–${at + this.step - 1}` : "";
    return `${at}${more} ${this.token(side, i)}${this.block > 1 ? "…" : ""}`;
  }
  said(row, column) {
    const what = this.step > 1 ? "mean share" : "weight";
    return `query ${this.label("query", row)} → key ${this.label("key", column)}: ${what} `
      + spoken(this.weight(row, column)) + (page.fires?.(this, row, column) ?? "");
  }
  only(part) { // "aa", "ab", "ba", "bb" or "all"
    const second = this.stack.second;
    this.ranges = [0, this.rows, 0, this.columns];
    if (!second || part === "all") return;
    const [q, k] = second.map((at) => Math.floor(at / this.block));
    this.ranges = [...(part[0] === "a" ? [0, q] : [q, this.rows]),
      ...(part[1] === "a" ? [0, k] : [k, this.columns])];
  }
}

// Draws the weights and returns how to find a cell: { left, top, cell }.
function drawMatrix(canvas, shown) {
  const [q0, q1, k0, k1] = shown.ranges, rows = q1 - q0, columns = k1 - k0;
  const room = Math.min(620, canvas.parentElement.clientWidth || 620);
  const named = Math.max(rows, columns) <= 64;
  const label = (side, i) => (named ? short(shown.token(side, i)) : String(shown.place(side, i)));
  const widest = (side, from, to) => {
    const ruler = canvas.getContext("2d");
    ruler.font = "11px system-ui, sans-serif";
    let most = 20;
    for (let i = from; i < to; i++) most = Math.max(most, ruler.measureText(label(side, i)).width);
    return Math.min(110, most) + 8;
  };
  const left = named ? widest("query", q0, q1) : 46, top = named ? widest("key", k0, k1) : 22;
  const cell = Math.max(1, Math.min(20, Math.floor((room - left - 2) / columns), Math.floor(620 / rows)));
  const least = named ? Math.max(cell, 11) : cell;
  const pen = sized(canvas, left + columns * least + 1, top + rows * least + 1);
  const small = new OffscreenCanvas(columns, rows), inner = small.getContext("2d");
  const pixels = inner.createImageData(columns, rows), table = page.palette.map(rgb);
  for (let y = 0; y < rows; y++) for (let x = 0; x < columns; x++) {
    const at = Math.round(share(shown.weight(y + q0, x + k0)) * (table.length - 1));
    pixels.data.set([...table[at], 255], 4 * (y * columns + x));
  }
  inner.putImageData(pixels, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small, left, top, columns * least, rows * least);
  pen.font = `${named ? 11 : 10}px system-ui, sans-serif`;
  pen.fillStyle = named ? INK : SOFT;
  pen.textBaseline = "middle";
  const stepOf = (room) => (named ? 1 : [1, 2, 5, 10, 20, 50, 100, 200, 500].find((s) => s * least >= room) || 1000);
  pen.textAlign = "right";
  for (let y = 0; y < rows; y += stepOf(24)) {
    pen.fillText(label("query", y + q0), left - 4, top + (y + 0.5) * least, left - 6);
  }
  for (let x = 0; x < columns; x += stepOf(44)) {
    pen.save();
    pen.translate(left + (x + 0.5) * least, top - 4);
    if (named) { pen.rotate(-Math.PI / 2); pen.textAlign = "left"; } else pen.textAlign = "center";
    pen.fillText(label("key", x + k0), 0, named ? 0 : -5, named ? top - 6 : 60);
    pen.restore();
  }
  if (!shown.tile) outlines(pen, shown, { left, top, cell: least });
  if (shown.cursor) {
    const [y, x] = shown.cursor;
    pen.strokeStyle = MARK;
    pen.lineWidth = 2;
    pen.strokeRect(left + (x - k0) * least - 1, top + (y - q0) * least - 1, least + 2, least + 2);
  }
  return { left, top, cell: least };
}

function outlines(pen, shown, { left, top, cell }) {
  pen.strokeStyle = MARK;
  pen.lineWidth = 1.5;
  for (const tile of shown.stack.tiles) {
    if (tile.of !== shown.item.name) continue;
    const [q, k] = tile.first.map((at) => at / shown.step);
    const [h, w] = tile.w.n.map((n) => Math.max(n / shown.step, 1));
    pen.strokeRect(left + k * cell - 1, top + q * cell - 1, w * cell + 2, h * cell + 2);
  }
}
