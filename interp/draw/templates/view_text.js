// The running text of the open head: shaded where a token looks, underlined where it is looked at.
const LISTED = 4, LEAST = 0.01;

class RunningText {
  constructor(texts) {
    this.texts = texts;
    this.mode = "text";
    this.shown = this.over = null;
    this.chosen = []; // units; where there are several, their weights are summed
    this.weights = null; // of the units: looks(u) and seen(u)
    this.said = make("output", { "aria-live": "polite", class: "links" });
    this.choice = make("select", { onchange: () => { this.mode = this.choice.value; this.fill(); } },
      ...[["text", "text"], ["words", "words"], ["tokens", "tokens"]].map(([value, name]) => make("option", { value }, name)));
    this.several = make("input", { type: "checkbox" });
    this.lines = make("div", { class: "passages" });
    this.key = make("span", { class: "note" });
    this.body = make("div", { class: "reading" },
      this.lines, make("p", { class: "controls" }, labelled("Read as", this.choice), make("label", {}, this.several, " Add up the tokens I choose"), this.key), this.said);
    this.lines.addEventListener("mouseover", (e) => this.point(e));
    this.lines.addEventListener("focusin", (e) => this.point(e));
    this.lines.addEventListener("mouseleave", () => this.leave());
    this.lines.addEventListener("mousedown", (e) => { if (e.shiftKey) e.preventDefault(); }); // else it selects text
    this.lines.addEventListener("click", (e) => { const u = this.unitOf(e); if (u) this.choose(u, this.adds(e)); });
    this.lines.addEventListener("keydown", (e) => this.keydown(e));
    this.fill();
  }
  // Which head the text is about; without one, nothing is shaded.
  attach(shown, onpair) {
    const same = this.shown && shown && this.shown.stack === shown.stack && this.shown.block === shown.block;
    Object.assign(this, { shown, onpair, over: null });
    if (same && this.places) this.draw(); else this.fill();
  }
  sides() { // the text of the queries and that of the keys, which is often the same
    const [q, k] = this.shown?.stack.reading ?? [0, 0];
    return q === k ? [[q, "both"]] : [[q, "query"], [k, "key"]];
  }
  fill() {
    this.places = [];
    this.over = null;
    this.chosen = [];
    this.lines.replaceChildren(...this.sides().map(([at, side], i, all) => {
      const units = this.units(this.texts[at]);
      const spans = units.map((unit) => this.span(unit, side));
      const line = make("p", { class: `passage as-${this.mode}`, dir: "auto", role: "group", "aria-label":
        `${side === "both" ? "text" : side === "query" ? "queries" : "keys"}, one button per ${this.mode === "words" ? "word" : "token"}; arrow keys move, Enter keeps one, with Shift one more` }, ...spans);
      if (spans.length) spans[0].setAttribute("tabindex", 0);
      return all.length > 1 ? make("div", {}, make("b", {}, side === "query" ? "Queries" : "Keys"), line) : line;
    }));
    this.draw();
  }
  units(text) { // runs of tokens: [first, number, text]
    const found = [], block = this.shown?.block ?? 1; // tokens of a row of a head that is kept in less detail
    let at = 0;
    for (const [n, words, begins] of text.pieces) {
      if (block > 1 && found.length && Math.floor(found.at(-1)[0] / block) === Math.floor(at / block)) {
        found.at(-1)[1] += n;
        found.at(-1)[2] += words;
      } else if (block === 1 && this.mode === "tokens" && this.shown && n > 1) {
        const names = this.shown.stack.queries.length > at ? this.shown.stack.queries : this.shown.stack.keys;
        for (let i = 0; i < n; i++) found.push([at + i, 1, names[at + i]]);
      } else if (block === 1 && this.mode === "words" && !begins && found.length) {
        found.at(-1)[1] += n;
        found.at(-1)[2] += words;
      } else found.push([at, n, words]);
      at += n;
    }
    return found;
  }
  span([first, n, text], side) {
    const at = this.places.length, step = this.shown?.stack.block ?? 1, last = (first + n) * step - 1;
    const name = `${first * step}${last > first * step ? ` to ${last}` : ""} ${visible(text.trim() || text)}`;
    const shown = this.mode === "tokens" ? visible(text) : text;
    const span = make("span", { role: "button", tabindex: -1, "data-unit": at, "aria-label": step > 1 ? null : name, title: short(name, 80) }, shown);
    this.places.push({ at, first, n, text, side, span });
    return span;
  }
  unitOf(event) { const span = event.target.closest("[data-unit]"); return span ? this.places[Number(span.dataset.unit)] : null; }
  point(event) { const unit = this.unitOf(event); if (unit && unit !== this.over) { this.over = unit; this.draw(); } }
  leave() { if (this.over) { this.over = null; this.draw(); } }
  adds(event) { return this.several.checked || event.shiftKey || event.ctrlKey || event.metaKey; }
  choose(unit, more = false) {
    const from = !more && this.chosen.length === 1 ? this.chosen[0] : null;
    if (from && from !== unit && !this.shown && page.askedPair) {
      const [key, query] = [from, unit].map((one) => one.first + one.n - 1).sort((a, b) => a - b);
      page.askedPair(query, key);
      return;
    }
    if (from && from !== unit) {
      const pair = this.pair(from, unit) ?? this.pair(unit, from);
      if (pair && this.onpair) { this.onpair(...pair); return; }
    }
    const rest = this.chosen.filter((one) => one !== unit), had = rest.length < this.chosen.length;
    this.chosen = more ? [...rest, ...(had ? [] : [unit])] : from === unit ? [] : [unit];
    this.draw();
  }
  // The query of one unit and the key of the other with the largest weight, if there is any.
  pair(from, to) {
    if (!this.shown || from.side === "key" || to.side === "query") return null;
    let best = null, most = 0;
    for (const q of this.rows(from)) for (const k of this.rows(to)) {
      const weight = this.shown.weight(q, k);
      if (weight > most) [best, most] = [[q, k], weight];
    }
    return best;
  }
  rows({ first, n }) { // rows of the matrix of a unit
    const block = this.shown.block, from = Math.floor(first / block), to = Math.floor((first + n - 1) / block);
    return Array.from({ length: to - from + 1 }, (_, i) => from + i);
  }
  // The mean over the queries of one unit of their weight on the keys of another.
  weight(from, to) {
    const rows = this.rows(from), keys = this.rows(to);
    let sum = 0;
    for (const q of rows) for (const k of keys) sum += this.shown.weight(q, k);
    return sum / rows.length;
  }
  keydown(event) {
    const unit = this.unitOf(event), move = STEPS[event.key];
    if (!unit) return;
    if (event.key === "Enter" || event.key === " ") this.choose(unit, this.adds(event));
    else if (event.key === "Escape" && this.chosen.length) { this.chosen = []; this.draw(); event.stopPropagation(); }
    else if (move) this.go(unit, ...move);
    else return;
    event.preventDefault();
  }
  go(unit, down, across) {
    const turned = getComputedStyle(unit.span.parentElement).direction === "rtl" ? -1 : 1;
    let next = this.places[unit.at + across * turned];
    if (down) { // the nearest unit of the next line
      const box = unit.span.getBoundingClientRect(), middle = box.left + box.width / 2;
      const lines = this.places.map((p) => [p, p.span.getBoundingClientRect()]).filter(([, b]) => (b.top - box.top) * down > box.height / 2);
      const near = Math.min(...lines.map(([, b]) => Math.abs(b.top - box.top)));
      const away = ([, b]) => Math.abs(b.left + b.width / 2 - middle);
      next = lines.filter(([, b]) => Math.abs(b.top - box.top) <= near + 1).sort((a, b) => away(a) - away(b))[0]?.[0];
    }
    if (!next) return;
    for (const { span } of this.places) span.tabIndex = -1;
    next.span.tabIndex = 0;
    next.span.focus();
  }
  draw() {
    const several = this.chosen.length > 1, units = !several && this.over ? [this.over] : this.chosen, told = [];
    this.key.textContent = !this.shown ? "" : several ? "Shaded: the share of their attention. Underlined: what looks at them."
      : units.length ? "Shaded: what it looks at. Underlined: what looks at it."
        : "Point at a token, or move to it with Tab and the arrow keys; a click keeps it, a second one on another token opens the pair. With Shift, or with the box ticked, clicks add up.";
    const looks = [], seen = [], asking = this.shown ? units.filter((u) => u.side !== "key") : [], asked = this.shown ? units.filter((u) => u.side !== "query") : [];
    let given = 0;
    for (const other of this.places) {
      const to = other.side === "query" ? 0 : asking.reduce((sum, unit) => sum + this.weight(unit, other), 0);
      const from = other.side === "key" || units.includes(other) ? 0 : asked.reduce((sum, unit) => sum + this.weight(other, unit), 0);
      given += to;
      if (to >= LEAST) looks.push([to, other]);
      if (from >= LEAST) seen.push([from, other]);
      const names = [to >= LEAST ? `q${Math.round(share(to / asking.length) * 32)}` : "", from >= LEAST ? `by${Math.ceil(Math.sqrt(Math.min(1, from)) * 4)}` : "", units.includes(other) ? "at" : "", this.chosen.includes(other) ? "kept" : ""];
      other.span.className = names.filter(Boolean).join(" ");
      other.span.setAttribute("aria-pressed", String(this.chosen.includes(other)));
    }
    if (units.length && this.shown) {
      const quoted = (o) => `“${visible(short(o.text.trim() || o.text, 24))}”`, n = units.reduce((sum, u) => sum + u.n, 0) * this.shown.stack.block;
      const list = (found) => found.sort(([a], [b]) => b - a).slice(0, LISTED).map(([w, o]) => `${quoted(o)} ${w.toFixed(2)}`).join(", ");
      const those = (some, side) => (some.length < units.length ? `Those of the ${side}` : "They"); // of two texts, one is the queries
      const name = several ? those(asking, "queries") : quoted(units[0]), s = several ? "" : "s", mean = n > units.length ? `, means over ${several ? "the tokens of each" : "its tokens"}` : "";
      if (several) told.push(`Sum over ${units.length} chosen ${this.shown.step > 1 ? "blocks" : this.mode === "words" ? "words" : "tokens"}${mean && ` (${n} tokens)`}: ${units.slice(0, LISTED).map(quoted).join(", ")}${units.length > LISTED ? " and more" : ""}.`);
      if (asking.length) told.push(`${name} look${s} at ${list(looks) || "nothing above 0.01"}${several ? `, of ${given.toFixed(2)} in all` : ""}${mean}.`);
      if (asked.length) told.push(`${seen.length ? `${several ? `${those(asked, "keys")} are` : "It is"} looked at by ${list(seen)}` : `No other token looks at ${several ? "them" : "it"} above 0.01`}.`);
    }
    this.said.textContent = this.shown ? `${this.shown.item.name}. ${told.join(" ")}` : `Open a head to see what each token attends to${page.askedPair ? ", or click two tokens for the head that attends most from the later to the earlier" : ""}.`;
  }
  // Marks the query and the key of a cell of the matrix.
  markPair(row, column) {
    for (const unit of this.places) {
      const has = (side, at) => unit.side !== side && this.rows(unit).includes(at);
      unit.span.classList.toggle("at", has("key", row));
      unit.span.classList.toggle("kept", has("query", column));
    }
  }
}
