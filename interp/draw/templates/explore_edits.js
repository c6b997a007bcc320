// Edits of heads as chips, the history of steps, and the next tokens before and after the edits.
const kinds = make("select", { onchange: () => chooseAll() });
const about = make("span", { class: "note" });
const reference = make("textarea", { rows: 2, spellcheck: "false", onchange: () => changed("Reference prompts") });
const referenceOf = make("label", { hidden: true }, "Reference prompts, one per line ", reference);
const position = make("input", { type: "number", min: 0, onchange: () => changed(`Position ${position.value}`) });
const chips = make("ul", { class: "chips", "aria-label": "edits" });
const past = { steps: [], at: -1 };
const undo = control("Undo", () => goTo(past.at - 1), { "aria-keyshortcuts": "Control+Z" });
const redo = control("Redo", () => goTo(past.at + 1), { "aria-keyshortcuts": "Control+Shift+Z" });
const steps = make("ol", { class: "steps" }), stepsOf = make("summary", {}, "History");
const edited = make("fieldset", { hidden: true }, make("legend", {}, "Edits"),
  make("p", { class: "note" }, "A click on a head opens it; a click on the × in its corner, or Delete, ablates it or brings it back."),
  make("p", { class: "controls" }, labelled("Replaced by", kinds), about),
  make("p", { class: "controls" }, referenceOf), chips,
  make("p", { class: "controls" }, undo, redo, labelled("Logits at position", position)),
  make("details", { class: "history" }, stepsOf, steps));

const active = () => state.edits.filter((edit) => edit.on);
const isOut = (name) => active().some((edit) => edit.head === name);
const kindOptions = (chosen) => Object.keys(page.about.interventions).map((name) => make("option", { value: name, selected: name === chosen }, name));

function toggle(s, h) {
  const name = headOf(s, h), found = state.edits.find((edit) => edit.head === name);
  if (found?.on) return remove(found);
  if (found) found.on = true;
  else state.edits.push({ head: name, kind: kinds.value, on: true });
  return changed(`${kinds.value} ${name}`);
}
function remove(edit) {
  state.edits = state.edits.filter((other) => other !== edit);
  return changed(`Without the edit of ${edit.head}`);
}
function chooseAll() {
  about.textContent = page.about.interventions[kinds.value];
  for (const edit of state.edits) edit.kind = kinds.value;
  return state.edits.length ? changed(`All edits: ${kinds.value}`) : chip();
}
function changed(label) {
  record(label);
  chip();
  return ablate();
}

function chip() {
  chips.replaceChildren(...state.edits.map(chipOf));
  if (!state.edits.length) chips.append(make("li", { class: "note" }, "No edits."));
  if (state.edits.length > 1) chips.append(make("li", {}, control("Remove all", () => { state.edits = []; changed("No edits"); })));
  referenceOf.hidden = ![...active().map((edit) => edit.kind), kinds.value].some((kind) => page.about.need_reference.includes(kind));
  for (const rect of root.querySelectorAll(".thumbs rect.pick")) {
    const [s, h] = rect.dataset.at.split(",").map(Number), out = isOut(headOf(s, h));
    rect.classList.toggle("out", out);
    rect.setAttribute("aria-label", `open ${page.stacks[s].heads[h].name}${out ? ", ablated" : ""}`);
  }
  for (const button of panel.querySelectorAll(".ablate")) {
    const name = button.dataset.head.split(".").at(-1);
    button.textContent = isOut(button.dataset.head) ? `Bring ${name} back` : `Ablate ${name}`;
  }
}
function chipOf(edit) {
  const name = edit.head, kind = make("select", { "aria-label": `what replaces ${name}`, onchange: () => { edit.kind = kind.value; changed(`${edit.kind} ${name}`); } }, ...kindOptions(edit.kind));
  const flip = () => { edit.on = !edit.on; changed(edit.on ? `${edit.kind} ${name}` : `${name} as it is`); };
  return make("li", { class: edit.on ? "chip on" : "chip" },
    control(name, flip, { class: "flip", "aria-pressed": String(edit.on), title: edit.on ? "switch this edit off" : "switch this edit on" }),
    kind, control("×", () => remove(edit), { class: "remove", "aria-label": `remove the edit of ${name}` }));
}

// Every step can be gone back to: the prompt, the edits, the position and the reference prompts.
function record(label, example = false) {
  past.steps.length = past.at + 1;
  past.steps.push({ label, example, given: state.given, text: text.value, edits: state.edits.map((edit) => ({ ...edit })), position: position.value, reference: reference.value, result: "" });
  past.at = past.steps.length - 1;
  written();
}
function written() {
  undo.disabled = past.at < 1;
  redo.disabled = past.at >= past.steps.length - 1;
  stepsOf.textContent = `History, step ${past.at + 1} of ${past.steps.length}`;
  steps.replaceChildren(...past.steps.map(({ label, result }, at) => make("li", {},
    control(label, () => goTo(at), { "aria-current": at === past.at ? "step" : null }), make("span", { class: "note" }, result))));
}
async function goTo(at) {
  const step = past.steps[at];
  if (!step) return;
  past.at = at;
  written();
  text.value = step.text;
  if (JSON.stringify(step.given) !== JSON.stringify(state.given)) { await asks(step.given, step); return; }
  putBack(step);
  chip();
  await ablate();
}
function putBack(step) {
  state.edits = step.edits.map((edit) => ({ ...edit }));
  position.value = step.position;
  reference.value = step.reference;
}
place.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z" || event.target.matches("textarea, input")) return;
  event.preventDefault();
  goTo(past.at + (event.shiftKey ? 1 : -1));
});

let asked = 0;
async function ablate() {
  const turn = ++asked;
  writing.abort(); // what an earlier click asked for
  await new Promise((go) => setTimeout(go, 60)); // clicks in quick succession are one run
  await settled();
  if (!state.prompt || turn !== asked) return;
  const step = past.steps[past.at], { prompt } = state.prompt, on = active();
  const given = { prompt, heads: on.map((edit) => edit.head), intervention: on.map((edit) => edit.kind) };
  if (position.value !== "") given.position = Number(position.value);
  const needs = on.find((edit) => page.about.need_reference.includes(edit.kind));
  if (needs) {
    if (!reference.value.trim()) {
      logits.replaceChildren(make("p", { class: "note" }, `${needs.kind} needs reference prompts; write them above.`));
      return;
    }
    given.reference = reference.value;
  }
  logits.setAttribute("aria-busy", "true");
  try {
    const found = await call("ablate", given);
    if (turn !== asked || prompt !== state.prompt.prompt) return;
    compared(found);
    if (step && found.intervention) {
      step.result = ` KL divergence ${spoken(found.kl)} nats`;
      written();
    }
    await redrawn(found);
    if (turn === asked) writesOn(given);
  } catch (error) {
    if (turn === asked && !error.replaced) logits.replaceChildren(make("p", { class: "warning" }, error.message));
  } finally {
    if (turn === asked) logits.removeAttribute("aria-busy");
  }
}

// What the model writes after a short prompt, with and without the edits; the texts part at the mark.
const continuation = make("div", { class: "continuation" });
let writing = new AbortController();
async function writesOn({ prompt, heads, intervention, reference: lines }) {
  continuation.replaceChildren();
  if (!heads.length || state.prompt.block !== 1) return;
  continuation.replaceChildren(make("p", { class: "note" }, "Writing …"));
  const { signal } = writing = new AbortController();
  try {
    const found = await call("write", { prompt, heads, intervention, ...(lines === undefined ? {} : { reference: lines }) }, signal);
    if (signal.aborted) return;
    const sides = [["before", found.before], ["after", found.after]].map(([side, text]) => make("tr", {}, make("th", { scope: "row" }, side),
      make("td", {}, make("span", { class: "note" }, text.slice(0, found.shared)), make("mark", {}, text.slice(found.shared)))));
    continuation.replaceChildren(make("h3", {}, "Continuation"), make("p", { class: "sentence" }, found.said), make("table", {}, make("tbody", {}, ...sides)));
  } catch (error) {
    if (!signal.aborted && !error.replaced) continuation.replaceChildren(make("p", { class: "note" }, `No continuation: ${error.message}`));
  }
}

// All heads as they attend with the edits, and the head that is open; a long prompt keeps its maps.
async function redrawn({ after = null, pictures }) {
  if (state.prompt.block !== 1 || after === state.after) return;
  state.after = after;
  page.stacks.forEach((stack, s) => {
    for (const item of stack.heads) delete item.w;
    root.querySelector(`#s${s} image.heat`).setAttribute("href", pictures?.[s] ?? stack.picture_of_heads);
  });
  told.textContent = pictures ? "The patterns are those with the edits." : "";
  if (opened && opened.tile === null) await openHead(opened.s, opened.h, false);
}

// The likeliest next tokens: before and after the edits side by side, with what changed.
const points = (x) => (100 * x).toFixed(x !== 0 && Math.abs(x) < 0.0005 ? 3 : 1);
const signed = (text) => (text.startsWith("-") ? `−${text.slice(1)}` : `+${text}`);
function compared(found) {
  if (found.why) { logits.replaceChildren(make("p", { class: "note" }, found.why)); return; }
  const after = Boolean(found.intervention), cell = (name, attributes = {}) => make("th", { scope: "col", ...attributes }, name);
  const rows = found.tokens.map(({ token, before, after: now }) => {
    const plain = [points(before.probability), String(before.rank)];
    if (!after) return row(visible(token), ...plain, before.logit.toFixed(2), weightBar(before.probability));
    const up = before.rank - now.rank;
    return row(visible(token), ...plain, points(now.probability), String(now.rank), signed(points(now.probability - before.probability)),
      up === 0 ? "0" : `${up > 0 ? "▲" : "▼"} ${Math.abs(up)}`, signed((now.logit - before.logit).toFixed(2)));
  });
  const sides = ["% prob.", "rank"], head = after
    ? [make("tr", {}, cell("token", { rowspan: 2 }), cell("before", { colspan: 2, scope: "colgroup" }), cell("after", { colspan: 2, scope: "colgroup" }), cell("change", { colspan: 3, scope: "colgroup" })),
      make("tr", {}, ...[...sides, ...sides, "points", "rank", "logit"].map((name) => cell(name)))]
    : [make("tr", {}, ...["token", ...sides, "logit", ""].map((name) => cell(name)))];
  const named = after ? `${found.intervention}: KL divergence ${spoken(found.kl)} nats.` : "No head is ablated.";
  logits.replaceChildren(make("h3", {}, `Next token after position ${found.position}, “${visible(found.token)}”`),
    ...(found.said ? [make("p", { class: "sentence", role: "status" }, found.said)] : []), make("p", { class: "named" }, named),
    make("div", { class: "scroll", tabindex: 0 }, make("table", { class: after ? "sides" : null }, make("thead", {}, ...head), make("tbody", {}, ...rows))));
}
