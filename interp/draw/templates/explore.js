// A prompt, all heads on it, and the logits with and without some of them.
const WIDE = 42, HIGH = 24, TOUCH = "(max-width: 40rem), (pointer: coarse)", FINGER = 44, place = root.getElementById("live") ?? placed();
const state = { prompt: null, given: null, edits: [], turn: 0, running: null, zoom: null, after: null };

// The part of the atlas for prompts: on its first screen, or below the maps where none can be run.
function placed() {
  const part = make("section", { id: "live" }, make("h2", {}, `Try a prompt${page.about ? ` on ${page.about.name}` : ""}`));
  const main = root.querySelector("main");
  if (page.why) (main.querySelector(".models") ?? main.lastElementChild).after(part);
  else main.prepend(part, ...root.querySelectorAll("header > nav, header > .tools, header > .tools ~ :not(.warning)"));
  return part;
}

function drawn(tag, attributes, ...children) { // elements of a picture that `make` does not know
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const text = make("textarea", { id: "live-text", rows: 3, spellcheck: "false", required: true });
const run = make("button", { type: "submit" }, "Run");
const status = make("output", { "aria-live": "polite", class: "status" });
const maps = make("div", { class: "stacks" }), logits = make("div", { class: "logits" });
const told = make("p", { class: "note ablated", role: "status" });
const passages = make("div", { class: "contents" });

const headOf = (s, h) => page.stacks[s].key + page.stacks[s].heads[h].name;

const typed = () => (page.about.text ? { text: text.value } : { ids: text.value.split(/[\s,]+/).filter(Boolean).map(Number) });
function start(event) {
  event.preventDefault();
  return asks(typed());
}
// Runs a prompt; a step of the history that is gone back to brings its edits along.
function asks(given, back = null) { return (state.running = runs(given, back)); }
// What is asked of a head while a prompt runs is asked of that prompt: the server has no other.
async function settled() {
  for (let run = null; run !== state.running;) { run = state.running; await run; }
}
async function runs(given, back) {
  const turn = ++state.turn, begun = performance.now();
  writing.abort();
  status.textContent = "Running …";
  const ticks = page.linked ? setInterval(() => reported(turn), 1000) : 0; // a kernel answers one call at a time
  try {
    const found = await call("prompt", given);
    if (turn !== state.turn) return;
    state.given = given;
    show(found, back);
    status.textContent = `${found.tokens.length.toLocaleString()} tokens in ${((performance.now() - begun) / 1000).toFixed(2)} s. ${found.notes.join(" ")}`;
    linked();
  } catch (error) {
    if (turn === state.turn && !error.replaced) status.textContent = error.message;
  } finally {
    clearInterval(ticks);
  }
}

async function reported(turn) {
  const { done, of } = await call("progress").catch(() => ({}));
  if (of && turn === state.turn && status.textContent.startsWith("Running")) status.textContent = `Running … ${done} of ${of} layers`;
}

function show(found, back = null) {
  close();
  state.prompt = found;
  state.zoom = null;
  state.after = null;
  page.stacks = found.stacks.map((stack) => ({ ...stack, key: found.stacks.length > 1 ? `${stack.name}.` : "", block: 1, tiles: [] }));
  page.complete = complete;
  page.texts = found.texts;
  readIn(passages);
  position.max = found.tokens.length - 1;
  position.value = found.tokens.length - 1;
  edited.hidden = false;
  maps.replaceChildren(...page.stacks.map(section));
  compared(found.predictions);
  continuation.replaceChildren();
  forgetRules();
  if (back) putBack(back);
  else {
    if (past.steps.length === 1 && past.steps[0].example) past.at = -1; // the reader's first prompt takes its place
    record(`Prompt: ${short(text.value, 40)}`, found === page.first && page.linked);
  }
  chip();
  if (active().length || back) ablate();
  if (page.about.rules.length) readRules(); // else when a head is opened: an ablation need not wait
}

function section(stack, s) {
  const { layers, across } = stack, left = WIDE, top = HIGH, touch = matchMedia(TOUCH).matches;
  const cell = stack.heads.length === 1 ? 160 : touch ? 92 : across <= 16 ? 64 : across <= 32 ? 44 : 28;
  const [wide, high] = [cell * across, cell * layers.length];
  const gaps = [...Array(across + 1).keys()].map((x) => `M${left + cell * x} ${top}v${high}`)
    .concat([...Array(layers.length + 1).keys()].map((y) => `M${left} ${top + cell * y}h${wide}`));
  const names = [...Array(across).keys()].map((h) => drawn("text", { x: left + (h + 0.5) * cell, y: top - 5 }, `H${h}`))
    .concat(layers.map((layer, y) => drawn("text", { class: "y", x: left - 5, y: top + (y + 0.5) * cell + 4 }, `L${layer}`)));
  const map = drawn("svg", { viewBox: `0 0 ${left + wide + 1} ${top + high + 1}`, width: left + wide + 1, height: top + high + 1, class: touch ? "map thumbs touch" : "map thumbs",
    role: "group", "aria-label": `${stack.name}: ${stack.heads.length} heads, a thumbnail of each one's attention` },
  drawn("g", { "aria-hidden": "true" }, ...names),
  drawn("image", { class: "heat", x: left, y: top, width: wide, height: high, preserveAspectRatio: "none", href: stack.picture_of_heads }),
  drawn("path", { class: "gaps", d: gaps.join("") }));
  Object.assign(map.dataset, { stack: s, cell, left, top,
    heads: stack.heads.map((h) => `${h.name}:${layers.indexOf(h.layer)}:${h.head}`).join(" ") });
  pickable(map, openHead);
  for (const rect of map.querySelectorAll("rect.pick")) corner(rect, touch ? FINGER : within(0.45 * cell, 0, 24));
  const title = page.stacks.length > 1 ? [make("h3", {}, stack.name)] : [];
  return make("section", { class: "stack", id: `s${s}` }, ...title, make("div", { class: "scroll" }, map), make("div", { class: "opened" }));
}

// The corner of a head's picture that ablates it in one click; Delete does so for the keyboard. It
// ends before the middle of the picture, and what is drawn is smaller than what can be hit.
function corner(rect, hit) {
  const [s, h] = rect.dataset.at.split(",").map(Number), size = within(hit / 2, Math.min(hit, 16), 24);
  const right = Number(rect.getAttribute("x")) + Number(rect.getAttribute("width")), [x, y] = [right - size, Number(rect.getAttribute("y"))];
  const mark = drawn("g", { class: "cut", "aria-hidden": "true" }, drawn("rect", { class: "hit", x: right - hit, y, width: hit, height: hit }),
    drawn("rect", { x, y, width: size, height: size }), drawn("text", { x: x + size / 2, y: y + size / 2 + 4 }, "×"), drawn("title", {}, `ablate ${page.stacks[s].heads[h].name}, or bring it back`));
  mark.addEventListener("click", () => toggle(s, h));
  rect.after(mark);
  rect.setAttribute("aria-keyshortcuts", "Enter Delete");
  rect.addEventListener("keydown", (event) => { if (["Delete", "Backspace"].includes(event.key)) { event.preventDefault(); toggle(s, h); } });
}

async function openHead(s, h, focus = true) {
  await settled();
  const stack = page.stacks[s], item = stack.heads[h];
  try {
    if (state.prompt.block === 1) { readRules(); await open(s, h, null, focus); }
    else zoomed(s, h, focus);
  } catch (error) {
    status.textContent = error.message;
    return;
  }
  const bar = panel.querySelector(".controls"), name = headOf(s, h);
  if (!bar || bar.querySelector(".ablate")) return;
  bar.prepend(control(isOut(name) ? `Bring ${item.name} back` : `Ablate ${item.name}`, () => toggle(s, h), { class: "ablate", "data-head": name }));
}

function zoomed(s, h, focus) {
  const stack = page.stacks[s], item = stack.heads[h];
  root.getElementById(`s${s}`).querySelector(".opened").append(panel);
  panel.hidden = false;
  opened = { s, h, tile: null, shown: null };
  mark(`${s},${h}`);
  const heading = make("h3", { tabindex: -1 }, `${stack.name} ${item.name}`);
  const bar = make("p", { class: "controls" }, control("Close", close, { class: "close" })), n = stack.heads.length;
  if (n > 1) bar.prepend(control("‹ head before", () => openHead(s, (h + n - 1) % n)), control("next head ›", () => openHead(s, (h + 1) % n)));
  panel.replaceChildren(heading, bar);
  const prompt = state.prompt.prompt;
  state.zoom = new Zoom(stack, item, state.prompt, async (tile) => {
    const found = await call("tile", { prompt, head: stack.key + item.name, ...tile });
    const bytes = Uint8Array.from(atob(found.float32), (c) => c.charCodeAt(0));
    return { ...found, values: new Float32Array(bytes.buffer) };
  });
  panel.append(state.zoom.body);
  state.zoom.whole();
  opened.redraw = () => state.zoom.draw();
  if (focus) {
    heading.focus({ preventScroll: true });
    panel.scrollIntoView({ block: "nearest", behavior: "auto" });
  }
}

// Asks for the weights of a head of a short prompt; the head keeps them.
async function complete(s, item) {
  if (item.w) return;
  Object.assign(item, await call("pattern", { prompt: state.prompt.prompt, head: page.stacks[s].key + item.name, ...afterEdits() }));
}

// The heads with the largest weight on a pair of a short prompt.
page.openHead = (s, h) => openHead(s, h, false);
page.strongest = async (s, shown, query, key) => {
  const found = await call("heads", { prompt: state.prompt.prompt, head: headOf(s, opened.h), query, key, ...afterEdits() });
  return found.heads.map(([name, weight]) => [shown.stack.heads.findIndex((head) => head.name === name), weight]);
};
page.askedPair = async (query, key) => { // no head is open: the strongest one opens on the pair
  await settled();
  try {
    const found = await call("heads", { prompt: state.prompt.prompt, head: headOf(0, 0), query, key, ...afterEdits() });
    const h = page.stacks[0].heads.findIndex((head) => head.name === found.heads[0][0]);
    await openHead(0, h);
    await opened.onpair?.(query, key);
  } catch (error) { status.textContent = error.message; }
};
const afterEdits = () => (state.after === null ? {} : { after: state.after });

// A deep link such as #tiny/L5H4 opens the head here too.
function linked() {
  if (!page.linked || !state.prompt) return;
  let name = window.location.hash.split("/").at(-1).replace("#", "");
  try { name = decodeURIComponent(name); } catch { return; }
  if (!openNamed(name, false) && /^(\w+\.)?L\d+H\d+$/.test(name)) status.textContent += ` The address asks for ${name}, a head that this model does not have.`;
}
// A card of the atlas shows its head on the prompt too.
async function onPrompt({ detail: { label, article } }) {
  const found = state.prompt && placeOf(label);
  if (!found || state.prompt.block !== 1) return;
  const [s, h] = found, stack = page.stacks[s], item = stack.heads[h];
  const box = make("section", {}, make("h3", {}, "On the prompt"), control("Open its matrix", () => openHead(s, h)));
  article.querySelector("p")?.after(box);
  try {
    await complete(s, item);
    const words = new RunningText(page.texts), weights = await weightsOf(item);
    words.attach(new Shown(stack, item, weights, false), (query, key) => openHead(s, h).then(() => opened.onpair?.(query, key)));
    box.append(words.body);
  } catch (error) { box.append(make("p", { class: "note" }, error.message)); }
}

function begin() {
  if (page.why) {
    place.append(make("p", { class: "note" }, page.why));
    return;
  }
  kinds.append(...kindOptions());
  about.textContent = page.about.interventions[kinds.value];
  const hint = page.about.text ? "Prompt" : "Token ids, separated by spaces";
  const form = make("form", { onsubmit: start, onkeydown: (e) => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) start(e); } },
    make("label", { for: "live-text" }, `${hint} `), text, make("p", { class: "controls" }, run, make("span", { class: "note" }, "or Ctrl+Enter")));
  place.append(form, status, passages, make("div", { class: "explored" }, make("div", {}, told, maps), make("div", {}, edited, logits, continuation, ownRules)));
  window.addEventListener("hashchange", linked);
  if (page.linked) document.addEventListener("atlas-card", onPrompt);
  if (page.first) {
    text.value = page.text;
    state.given = typed();
    show(page.first);
    if (page.linked) status.textContent = `An example of ${page.first.tokens.length} tokens; write a prompt of your own above. ${page.first.notes.join(" ")}`;
    linked();
  }
}
