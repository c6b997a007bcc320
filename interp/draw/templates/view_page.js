// Opens heads from their thumbnails, and keeps the panel of the open one.
const PARTS = { all: "all", aa: "A → A", ab: "A → B", ba: "B → A", bb: "B → B" };
const panel = make("div", { class: "panel", hidden: true });
let turns = 0;
let opened = null; // { stack, head, tile, shown, redraw }
let reading = null; // the running text, where the page has one

// Puts the running text of a page in a place.
function readIn(place) {
  reading = page.texts?.length ? new RunningText(page.texts) : null;
  place.replaceChildren(...(reading ? [reading.body] : []));
  if (!reading || root !== document) return;
  const room = () => { document.documentElement.style.scrollPaddingTop = `${place.isConnected && reading ? reading.body.offsetHeight + 8 : 0}px`; };
  new ResizeObserver(room).observe(reading.body); // what is scrolled to must not lie below the text
}

async function open(s, h, tile = null, focus = true) {
  const stack = page.stacks[s], item = tile === null ? stack.heads[h] : stack.tiles[tile];
  const section = root.getElementById(`s${s}`);
  section.querySelector(".opened").append(panel);
  panel.hidden = false;
  if (typeof DecompressionStream === "undefined") {
    panel.replaceChildren(make("p", {}, "This browser cannot unpack the numbers; use one of 2023 or later. The pictures and tables need no script."));
    return;
  }
  const turn = ++turns;
  if (page.complete) await page.complete(s, item); // asks for weights that are not in the page
  const weights = await weightsOf(item);
  if (turn !== turns) return; // another head was asked for meanwhile
  const shown = new Shown(stack, item, weights, tile !== null);
  opened = { s, h, tile, shown };
  mark(tile === null ? `${s},${h}` : null);
  if (tile === null) page.wentTo?.(s, item.name);
  fill(shown, section, `${stack.name} ${item.name}`);
  if (focus) {
    panel.querySelector("h3").focus({ preventScroll: true });
    panel.scrollIntoView({ block: "nearest", behavior: "auto" });
  }
}

function mark(at) {
  for (const rect of root.querySelectorAll(".thumbs rect.pick")) rect.classList.toggle("on", rect.dataset.at === at);
}

function fill(shown, section, name) {
  const output = make("output", { "aria-live": "polite" }, "Point at a cell for its weight; click, or press Enter, for the pair by dimension.");
  const pair = make("div", { class: "pair" });
  const image = shown.stack.picture && shown.step === 1 ? section.querySelector(".picture img") : null;
  const onpair = async (q, k) => {
    shown.cursor = [q, k];
    draw();
    if (reading?.shown === shown) reading.markPair(q, k);
    await showPair(pair, shown, q, k);
    headsOnPair(pair, shown, q, k);
    page.explained?.(pair, shown, q, k);
    pair.querySelector("h4").focus({ preventScroll: true });
    pair.scrollIntoView({ block: "nearest" });
  };
  if (shown.item.zoom && !shown.tile) {
    intoZoom(shown, name);
    return;
  }
  reading?.attach(shown.tile || !shown.stack.reading ? null : shown, onpair);
  const side = image ? new OverImage(shown, image, onpair) : new Lines(shown, onpair);
  let place = null;
  const draw = () => { place = drawMatrix(matrix, shown); };
  const cellAt = (event) => {
    const [q0, q1, k0, k1] = shown.ranges;
    const y = Math.floor((event.offsetY - place.top) / place.cell) + q0;
    const x = Math.floor((event.offsetX - place.left) / place.cell) + k0;
    return y >= q0 && y < q1 && x >= k0 && x < k1 ? [y, x] : null;
  };
  const say = (cell) => {
    output.textContent = shown.said(...cell);
    if (reading?.shown === shown) reading.markPair(...cell);
  };
  const tell = () => say(shown.cursor);
  const onmousemove = (event) => {
    const cell = cellAt(event);
    if (cell) say(cell);
  };
  const onclick = (event) => {
    const cell = cellAt(event);
    if (cell) { shown.cursor = cell; tell(); onpair(...cell); }
  };
  const onkeydown = (event) => {
    const move = STEPS[event.key], [q0, q1, k0, k1] = shown.ranges;
    if (move) {
      const [y, x] = shown.cursor ? [shown.cursor[0] + move[0], shown.cursor[1] + move[1]] : [q0, k0];
      shown.cursor = [within(y, q0, q1 - 1), within(x, k0, k1 - 1)];
      tell();
      draw();
      event.preventDefault();
    } else if (event.key === "Enter" && shown.cursor) onpair(...shown.cursor);
  };
  const matrix = make("canvas", { class: "heat", tabindex: 0, role: "img", onmousemove, onclick, onkeydown, "aria-label":
    "matrix of weights, queries downwards, keys to the right; arrow keys move, Enter opens the pair" });
  panel.replaceChildren(
    make("h3", { tabindex: -1 }, name),
    toolbar(shown, side, draw),
    make("div", { class: "two" },
      make("figure", {}, make("figcaption", {}, "Matrix, queries down, keys across"), make("div", { class: "scroll" }, matrix), output),
      make("figure", {}, make("figcaption", {}, image ? "Over the image" : "Lines, query to key"),
        make("div", { class: image ? "" : "scroll tall" }, side.body), side.said)),
    pair,
  );
  draw();
  side.draw();
  opened.redraw = () => { draw(); side.draw(); };
  opened.onpair = onpair;
  opened.at = (q, k) => onpair(...[q - shown.first[0], k - shown.first[1]].map((at) => Math.floor(at / shown.step)));
}

// The heads with the largest weight on a pair, each of which a click opens there.
async function headsOnPair(place, shown, query, key) {
  if (shown.tile || shown.stack.heads.length < 2) return;
  const s = opened.s, box = make("p", { class: "others" });
  place.querySelector("h4").after(box);
  const found = await (page.strongest ?? strongest)(s, shown, query, key).catch(() => []);
  if (!found.length || !box.isConnected) { box.remove(); return; }
  const go = async (h) => { await (page.openHead ?? open)(s, h, null); await opened.onpair?.(query, key); };
  box.append("Heads with the most attention on this pair: ", ...found.slice(0, MOST_HEADS).map(([h, weight]) =>
    control(`${shown.stack.heads[h].name} ${weight.toFixed(2)}`, () => go(h), { "aria-pressed": String(shown.stack.heads[h] === shown.item) })));
}
const MOST_HEADS = 8, MOST_WEIGHTS = 5e7;
async function strongest(s, shown, query, key) {
  const same = shown.stack.heads.map((item, h) => [item, h]).filter(([item]) => item.block === shown.block);
  if (same.length * shown.rows * shown.columns > MOST_WEIGHTS) return [];
  const weights = await Promise.all(same.map(async ([item, h]) => [h, (await weightsOf(item))[query * shown.columns + key]]));
  return weights.sort(([, a], [, b]) => b - a);
}

// A head over a long prompt, zoomed in the page; two blocks of the text open their part of the map.
function intoZoom(shown, name) {
  const zoom = page.zoomed(shown), { step } = shown;
  const onpair = (q, k) => { zoom.show(q * step - step / 2, k * step - step / 2, 2 * step); zoom.body.scrollIntoView({ block: "nearest" }); };
  reading?.attach(shown.stack.reading ? shown : null, onpair);
  panel.replaceChildren(make("h3", { tabindex: -1 }, name), toolbar(shown, null, () => zoom.recolour()), zoom.body);
  zoom.whole();
  opened.at = (q, k) => zoom.goTo(q, k);
  opened.redraw = () => zoom.draw();
}

function toolbar(shown, side, draw) {
  const { s, h, tile } = opened, heads = page.stacks[s].heads.length;
  const bar = make("p", { class: "controls" });
  if (tile === null && heads > 1) {
    bar.append(
      control("‹ head before", () => open(s, (h + heads - 1) % heads)),
      control("next head ›", () => open(s, (h + 1) % heads)));
  }
  const colours = make("select", { onchange: () => { spread = colours.value; draw(); side?.draw(); } },
    make("option", { value: "root", selected: spread === "root" }, "√ weight"),
    make("option", { value: "even", selected: spread === "even" }, "weight"));
  bar.append(labelled("Colour", colours));
  if (side instanceof Lines) {
    const least = make("input", { type: "range", min: 0, max: 1, step: 0.01, value: side.least, oninput: () => {
      side.least = Number(least.value);
      value.textContent = side.least.toFixed(2);
      side.draw();
    } });
    const value = make("span", { class: "number" }, side.least.toFixed(2));
    bar.append(make("label", {}, "Lines from ", least, " ", value));
  }
  if (shown.stack.second && tile === null) {
    const parts = make("select", { class: "parts", onchange: () => {
      shown.only(parts.value);
      shown.cursor = null;
      side.fill();
      draw();
    } }, ...Object.entries(PARTS).map(([value, text]) => make("option", { value }, text)));
    bar.append(labelled("Sentences", parts));
  }
  bar.append(control("Close", close, { class: "close" }));
  return bar;
}

function close() {
  panel.hidden = true;
  panel.replaceChildren();
  reading?.attach(null);
  page.wentTo?.(0, "");
  turns++;
  const rect = opened && root.querySelector(`.thumbs rect.pick[data-at="${opened.s},${opened.h}"]`);
  opened = null;
  if (rect) rect.focus();
}

// A place to click and to focus over every thumbnail of a map; one of them is in the tab order.
function pickable(map, pick) {
  const { stack, cell, left, top, heads } = map.dataset, size = Number(cell), places = new Map();
  heads.split(" ").forEach((text, h) => {
    const [name, y, x] = text.split(":");
    const onkeydown = (event) => {
      const move = STEPS[event.key], next = move && places.get(`${Number(y) + move[0]},${Number(x) + move[1]}`);
      if (event.key === "Enter" || event.key === " ") pick(Number(stack), h);
      else if (!move) return;
      event.preventDefault();
      if (!next) return;
      for (const other of places.values()) other.setAttribute("tabindex", -1);
      next.setAttribute("tabindex", 0);
      next.focus();
    };
    const rect = make("rect", { class: "pick", x: Number(left) + x * size, y: Number(top) + y * size, width: size,
      height: size, tabindex: h ? -1 : 0, role: "button", "aria-label": `open ${name}`, "data-at": `${stack},${h}`,
      onclick: () => pick(Number(stack), h), onkeydown }, make("title", {}, name));
    places.set(`${y},${x}`, rect);
    map.append(rect);
  });
}
panel.addEventListener("keydown", (event) => { if (event.key === "Escape" && !event.target.closest(".lines")) close(); });
let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (opened && opened.redraw && window.innerWidth !== width) opened.redraw();
  width = window.innerWidth;
});
