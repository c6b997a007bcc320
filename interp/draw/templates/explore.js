// A prompt, all heads on it, and the logits with and without some of them.
const WIDE = 42, HIGH = 24, place = root.getElementById("live") ?? placed();
const state = { prompt: null, out: new Set(), turn: 0, zoom: null, after: null };

// The part of the atlas for prompts: on its first screen, or below the maps where none can be run.
function placed() {
  const part = make("section", { id: "live" }, make("h2", {}, `Try a prompt${page.about ? ` on ${page.about.name}` : ""}`));
  const main = root.querySelector("main");
  if (page.why) (main.querySelector(".models") ?? main.lastElementChild).after(part);
  else main.prepend(part);
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
const kinds = make("select", { onchange: () => choose() });
const about = make("span", { class: "note" });
const reference = make("textarea", { rows: 2, spellcheck: "false", onchange: () => ablate() });
const referenceOf = make("label", { hidden: true }, "Reference prompts, one per line ", reference);
const position = make("input", { type: "number", min: 0, onchange: () => ablate() });
const chips = make("span", { class: "chips" });
const ablation = make("fieldset", { hidden: true }, make("legend", {}, "Ablation"),
  make("p", { class: "note" }, "A click on a head opens it; a click on the × in its corner, or Delete, ablates it or brings it back."),
  make("p", { class: "controls" }, labelled("Replaced by", kinds), about),
  make("p", { class: "controls" }, referenceOf),
  make("p", { class: "controls" }, make("span", {}, "Ablated: "), chips, labelled("Logits at position", position)));

const headOf = (s, h) => page.stacks[s].key + page.stacks[s].heads[h].name;

async function start(event) {
  event.preventDefault();
  const turn = ++state.turn, begun = performance.now();
  const given = page.about.text ? { text: text.value } : { ids: text.value.split(/[\s,]+/).filter(Boolean).map(Number) };
  status.textContent = "Running …";
  const ticks = page.linked ? setInterval(() => reported(turn), 1000) : 0; // a kernel answers one call at a time
  try {
    const found = await call("prompt", given);
    if (turn !== state.turn) return;
    show(found);
    status.textContent = `${found.tokens.length.toLocaleString()} tokens in ${((performance.now() - begun) / 1000).toFixed(2)} s. ${found.notes.join(" ")}`;
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

function show(found) {
  close();
  state.prompt = found;
  state.zoom = null;
  state.out.clear();
  state.after = null;
  page.stacks = found.stacks.map((stack) => ({ ...stack, key: found.stacks.length > 1 ? `${stack.name}.` : "", block: 1, tiles: [] }));
  page.complete = complete;
  position.max = found.tokens.length - 1;
  position.value = found.tokens.length - 1;
  ablation.hidden = false;
  maps.replaceChildren(...page.stacks.map(section));
  chip();
  compared(found.predictions);
  forgetRules();
  if (page.about.rules.length) readRules(); // else when a head is opened: an ablation need not wait
  linked();
}

function section(stack, s) {
  const { layers, across } = stack, left = WIDE, top = HIGH;
  const cell = stack.heads.length === 1 ? 160 : across <= 16 ? 64 : across <= 32 ? 44 : 28;
  const [wide, high] = [cell * across, cell * layers.length];
  const gaps = [...Array(across + 1).keys()].map((x) => `M${left + cell * x} ${top}v${high}`)
    .concat([...Array(layers.length + 1).keys()].map((y) => `M${left} ${top + cell * y}h${wide}`));
  const names = [...Array(across).keys()].map((h) => drawn("text", { x: left + (h + 0.5) * cell, y: top - 5 }, `H${h}`))
    .concat(layers.map((layer, y) => drawn("text", { class: "y", x: left - 5, y: top + (y + 0.5) * cell + 4 }, `L${layer}`)));
  const map = drawn("svg", { viewBox: `0 0 ${left + wide + 1} ${top + high + 1}`, width: left + wide + 1, height: top + high + 1, class: "map thumbs",
    role: "group", "aria-label": `${stack.name}: ${stack.heads.length} heads, a thumbnail of each one's attention` },
  drawn("g", { "aria-hidden": "true" }, ...names),
  drawn("image", { class: "heat", x: left, y: top, width: wide, height: high, preserveAspectRatio: "none", href: stack.picture_of_heads }),
  drawn("path", { class: "gaps", d: gaps.join("") }));
  Object.assign(map.dataset, { stack: s, cell, left, top,
    heads: stack.heads.map((h) => `${h.name}:${layers.indexOf(h.layer)}:${h.head}`).join(" ") });
  pickable(map, openHead);
  for (const rect of map.querySelectorAll("rect.pick")) corner(rect);
  const title = page.stacks.length > 1 ? [make("h3", {}, stack.name)] : [];
  return make("section", { class: "stack", id: `s${s}` }, ...title, make("div", { class: "scroll" }, map), make("div", { class: "opened" }));
}

// The corner of a head's picture that ablates it in one click; Delete does so for the keyboard.
function corner(rect) {
  const [s, h] = rect.dataset.at.split(",").map(Number), size = 16;
  const [x, y] = [Number(rect.getAttribute("x")) + Number(rect.getAttribute("width")) - size, Number(rect.getAttribute("y"))];
  const mark = drawn("g", { class: "cut", "aria-hidden": "true" }, drawn("rect", { x, y, width: size, height: size }),
    drawn("text", { x: x + size / 2, y: y + 12 }, "×"), drawn("title", {}, `ablate ${page.stacks[s].heads[h].name}, or bring it back`));
  mark.addEventListener("click", () => toggle(s, h));
  rect.after(mark);
  rect.setAttribute("aria-keyshortcuts", "Enter Delete");
  rect.addEventListener("keydown", (event) => { if (["Delete", "Backspace"].includes(event.key)) { event.preventDefault(); toggle(s, h); } });
}

async function openHead(s, h, focus = true) {
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
  bar.prepend(control(state.out.has(name) ? `Bring ${item.name} back` : `Ablate ${item.name}`, () => toggle(s, h), { class: "ablate", "data-head": name }));
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
  state.zoom = new Zoom(stack, item, state.prompt);
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
  const after = state.after === null ? {} : { after: state.after };
  Object.assign(item, await call("pattern", { prompt: state.prompt.prompt, head: page.stacks[s].key + item.name, ...after }));
}

function toggle(s, h) {
  const name = headOf(s, h);
  if (!state.out.delete(name)) state.out.add(name);
  chip();
  return ablate();
}

function chip() {
  const names = [...state.out];
  chips.replaceChildren(...(names.length ? names.map((name) => control(`${name} ×`, () => { state.out.delete(name); chip(); ablate(); }, { "aria-label": `bring ${name} back` })) : ["none"]));
  if (names.length > 1) chips.append(control("Bring all back", () => { state.out.clear(); chip(); ablate(); }));
  for (const rect of root.querySelectorAll(".thumbs rect.pick")) {
    const out = state.out.has(headOf(...rect.dataset.at.split(",").map(Number)));
    rect.classList.toggle("out", out);
    rect.setAttribute("aria-label", `open ${page.stacks[rect.dataset.at.split(",")[0]].heads[rect.dataset.at.split(",")[1]].name}${out ? ", ablated" : ""}`);
  }
  for (const button of panel.querySelectorAll(".ablate")) {
    const name = button.dataset.head.split(".").at(-1);
    button.textContent = state.out.has(button.dataset.head) ? `Bring ${name} back` : `Ablate ${name}`;
  }
}

function choose() {
  about.textContent = page.about.interventions[kinds.value];
  referenceOf.hidden = !["mean-dataset", "resample"].includes(kinds.value);
  ablate();
}

let asked = 0;
async function ablate() {
  if (!state.prompt) return;
  const turn = ++asked, { prompt } = state.prompt, given = { prompt, heads: [...state.out], intervention: kinds.value };
  if (position.value !== "") given.position = Number(position.value);
  if (!referenceOf.hidden && state.out.size) {
    if (!reference.value.trim()) {
      logits.replaceChildren(make("p", { class: "note" }, `${kinds.value} needs reference prompts; write them above.`));
      return;
    }
    given.reference = reference.value;
  }
  logits.setAttribute("aria-busy", "true");
  try {
    const found = await call("ablate", given);
    if (turn !== asked || prompt !== state.prompt.prompt) return;
    compared(found);
    await redrawn(found);
  } catch (error) {
    if (turn === asked && !error.replaced) logits.replaceChildren(make("p", { class: "warning" }, error.message));
  } finally {
    if (turn === asked) logits.removeAttribute("aria-busy");
  }
}

// All heads as they attend with the ablated heads, and the head that is open; a long prompt keeps its maps.
async function redrawn({ after = null, pictures }) {
  if (state.prompt.block !== 1 || after === state.after) return;
  state.after = after;
  page.stacks.forEach((stack, s) => {
    for (const item of stack.heads) delete item.w;
    root.querySelector(`#s${s} image.heat`).setAttribute("href", pictures?.[s] ?? stack.picture_of_heads);
  });
  const shown = pictures ? "The patterns are those with the ablated heads." : "";
  told.textContent = state.out.size ? shown : "";
  if (opened && opened.tile === null) await openHead(opened.s, opened.h, false);
}

// The likeliest next tokens, with and without the ablated heads.
function compared(found) {
  if (found.why) { logits.replaceChildren(make("p", { class: "note" }, found.why)); return; }
  const after = Boolean(found.intervention), part = (x) => `${(100 * x).toFixed(x < 0.001 ? 3 : 1)} %`;
  const moves = found.tokens.map((one) => (after ? one.after.logit - one.before.logit : 0)), most = largest(moves);
  const heads = after ? ["token", "change", "", "logit", "probability", "rank"] : ["token", "logit", "probability", ""];
  const rows = found.tokens.map(({ token, before, after: now }, i) => {
    if (!after) return row(visible(token), before.logit.toFixed(2), part(before.probability), weightBar(before.probability));
    const change = `${moves[i] > 0 ? "+" : ""}${moves[i].toFixed(2)}`;
    return row(visible(token), change, signedBar(moves[i], most), `${before.logit.toFixed(2)} → ${now.logit.toFixed(2)}`,
      `${part(before.probability)} → ${part(now.probability)}`, `${before.rank} → ${now.rank}`);
  });
  const said = after ? `${found.intervention}: KL divergence ${spoken(found.kl)} nats.` : "No head is ablated.";
  logits.replaceChildren(make("h3", {}, `Next token after position ${found.position}, “${visible(found.token)}”`), make("p", { class: "named" }, said),
    make("div", { class: "scroll", tabindex: 0 }, table("", heads, rows)));
}

// A deep link such as #tiny/L5H4 opens the head here too.
function linked() {
  if (!page.linked || !state.prompt) return;
  const name = decodeURIComponent(window.location.hash).split("/").at(-1);
  page.stacks.forEach((stack, s) => {
    const h = stack.heads.findIndex((head) => name === head.name || name === stack.key + head.name);
    if (h >= 0) openHead(s, h, false);
  });
}

function begin() {
  if (page.why) {
    place.append(make("p", { class: "note" }, page.why));
    return;
  }
  kinds.append(...Object.keys(page.about.interventions).map((name) => make("option", { value: name }, name)));
  about.textContent = page.about.interventions[kinds.value];
  const hint = page.about.text ? "Prompt" : "Token ids, separated by spaces";
  const form = make("form", { onsubmit: start, onkeydown: (e) => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) start(e); } },
    make("label", { for: "live-text" }, `${hint} `), text, make("p", { class: "controls" }, run, make("span", { class: "note" }, "or Ctrl+Enter")));
  place.append(form, status, make("div", { class: "explored" }, make("div", {}, told, maps), make("div", {}, ablation, logits, ownRules)));
  window.addEventListener("hashchange", linked);
  if (page.text) text.value = page.text;
  if (page.first) show(page.first);
}
begin();
