// Rules on the prompt: which fire on a pair, what explains its row, and which heads follow the user's own.
const ownRules = make("div", { class: "logits" });
let fired = null; // names, phrases and bits of the rules on the prompt that is shown
let readFor = null; // the prompt whose rules were asked for

function forgetRules() {
  fired = readFor = null;
  ownRules.replaceChildren();
}
async function readRules() {
  const found = state.prompt;
  if (found.block !== 1 || readFor === found) return;
  readFor = found;
  try {
    const answer = await call("rules", { prompt: found.prompt });
    if (state.prompt !== found) return; // a newer prompt came
    const bits = answer.masks.map((text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)));
    fired = { n: found.tokens.length, rules: answer.rules, bits };
    ownRules.replaceChildren(...answer.own.flatMap(ownTable));
  } catch (error) {
    if (!error.replaced) ownRules.replaceChildren(make("p", { class: "note" }, `No rules: ${error.message}`));
  }
}
function firing(q, k) {
  const at = q * fired.n + k;
  return fired.rules.filter((_, r) => (fired.bits[r][at >> 3] >> (7 - (at & 7))) & 1);
}
page.fires = (shown, q, k) => {
  if (!fired || shown.tile || shown.step > 1 || shown.rows !== fired.n || shown.columns !== fired.n) return "";
  const names = firing(q, k).map((rule) => rule.name);
  return names.length ? `; rules: ${names.join(", ")}` : "; no rule fires";
};
function ownTable(rule) {
  const against = rule.described ? "predicted by its description" : "if even";
  const rows = rule.heads.map(([name, mass, guess]) => make("tr", {}, make("th", { scope: "row" }, control(name, () => openNamed(name))), make("td", {}, percent(mass)), make("td", {}, percent(guess))));
  const title = make("h3", {}, `Your rule ${rule.name}: heads that follow it most`);
  if (!rows.length) return [title, make("p", { class: "note" }, "No head has attention off the sink on this prompt.")];
  return [title, make("div", { class: "scroll", tabindex: 0 }, table("", ["head", "attention on its keys", against], rows)),
    make("p", { class: "note" }, `Shares of attention off the sink on this prompt, on the ${rule.fires.toLocaleString()} pairs on which the rule fires. For shares judged on unseen text, profile a corpus with it.`)];
}
function placeOf(name) { // stack and head, or null
  for (const [s, stack] of page.stacks.entries()) {
    const h = stack.heads.findIndex((head) => name === head.name || name === stack.key + head.name);
    if (h >= 0) return [s, h];
  }
  return null;
}
function openNamed(name, focus = true) {
  const found = placeOf(name);
  if (found) openHead(...found, focus);
  return found !== null;
}
const two = (x) => x.toFixed(2);
page.explained = async (place, shown, query, key) => {
  if (!opened || shown.tile || shown.step > 1) return;
  const box = make("section", { class: "why", "aria-live": "polite" }, make("p", { class: "note" }, "Looking for rules …"));
  place.querySelector("h4").after(box);
  try {
    const found = await call("explain", { prompt: state.prompt.prompt, head: headOf(opened.s, opened.h), query, key, ...afterEdits() });
    box.replaceChildren(...why(found));
  } catch (error) {
    box.replaceChildren(...(error.replaced ? [] : [make("p", { class: "note" }, error.message)]));
  }
};
function why(found) {
  const parts = found.rules.map((rule) => `${rule.phrase}${rule.own ? " (your rule)" : ""}${rule.nats ? ` (${rule.nats > 0 ? "+" : ""}${two(rule.nats)} nats in this head)` : ""}`);
  const out = [make("p", {}, make("b", {}, parts.length ? "Rules that fire on this pair: " : "No rule fires on this pair. "), parts.join("; "),
    found.sink ? " The key is a sink, which no rule describes." : "")];
  const { row } = found;
  if (row) {
    const worse = row.explained_rules < 0;
    const share = row.explained_rules === null ? "the row, which is even," : worse ? `nothing of this row: it is ${two(row.rules - row.even)} nats further from it than the even row` : `${two(row.explained_rules)} of this row (${two(row.even - row.rules)} of ${two(row.even)} nats; position alone ${two(row.explained_position)})`;
    out.push(make("p", { class: "sentence" }, `The head's description explains ${share}. It predicts ${percent(row.predicted)} of the attention off the sink on this key; the head gives ${percent(row.weight)}.`));
  }
  if (found.why) out.push(make("p", { class: "note" }, `${found.why[0].toUpperCase()}${found.why.slice(1)}.`));
  if (found.sentence) out.push(make("p", {}, `On ${page.about.profiled}: ${found.sentence}`));
  if (found.examples?.length) out.push(make("details", {}, make("summary", {}, "Where this description fails most"), ...found.examples.flatMap(onTextExample)));
  return out;
}
