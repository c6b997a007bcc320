// Search by head, role and token, and the choice of what colours the maps.
const tools = document.querySelector(".tools");
const MOST = 40; // results shown
let tokensOf = null; // read when the search is first used

function tokenIndex() {
  const found = [];
  for (const model of atlas.models) {
    for (const [label, card] of Object.entries(model.cards)) {
      const own = new Map(), add = (token, how) => { const key = token.trim().toLowerCase(); if (key && !own.has(key)) own.set(key, how); };
      for (const [token] of card.writes?.up ?? []) add(token, `raises ${visible(token)}`);
      for (const [token] of card.writes?.down ?? []) add(token, `lowers ${visible(token)}`);
      for (const [token, others] of card.writes?.ov ?? []) { add(token, `reads ${visible(token)}`); for (const t of others) add(t, `raises ${visible(t)}`); }
      for (const [token, others] of card.writes?.qk ?? []) { add(token, `looks from ${visible(token)}`); for (const t of others) add(t, `looks for ${visible(t)}`); }
      if (card.profile?.sentence) add(card.profile.sentence, card.profile.sentence);
      for (const one of card.profile?.examples ?? []) for (const [at] of [[one.query], ...one.keys]) add(one.tokens[at], `an example on text has ${visible(one.tokens[at])}`);
      for (const one of card.examples ?? []) for (const token of one.tokens) add(token, `an example has ${visible(token)}`);
      found.push({ model, label, own });
    }
  }
  return found;
}
function search(text) {
  const asked = text.trim().toLowerCase(), out = [], seen = new Set();
  if (!asked) return out;
  const add = (model, label, why) => {
    const key = `${model.id}/${label}`;
    if (!seen.has(key)) { seen.add(key); out.push({ model, label, why }); }
  };
  const place = /^l?\s*(\d+)\s*[.\sh,:]*\s*h?\s*(\d+)?$/.exec(asked);
  for (const model of atlas.models) {
    model.labels.forEach((label, i) => {
      const [, layer, head] = placed(model, i);
      if (place && layer === Number(place[1]) && (place[2] === undefined || head === Number(place[2]))) add(model, label, roleOf(model, i)?.[1] ?? "not judged");
      else if (label.toLowerCase() === asked) add(model, label, roleOf(model, i)?.[1] ?? "");
    });
  }
  const roles = atlas.roles.filter(([id, name]) => name.toLowerCase().includes(asked) || id.replaceAll("_", " ").includes(asked));
  for (const [id, name] of roles)
    for (const model of atlas.models) model.roles.forEach((r, i) => { if (atlas.roles[r]?.[0] === id) add(model, model.labels[i], name); });
  tokensOf ??= tokenIndex();
  const parts = asked.split(/\s+/); // of a sentence all words count, in any order
  for (const exact of [true, false]) {
    if (!exact && asked.length < 2) break;
    for (const { model, label, own } of tokensOf) {
      if (exact) { if (own.has(asked)) add(model, label, own.get(asked)); continue; }
      for (const [token, how] of own) if (parts.every((word) => token.includes(word))) { add(model, label, how); break; }
    }
  }
  return out;
}
const hits = make("ul", { class: "hits", hidden: true, "aria-label": "heads found" });
const count = make("span", { class: "note", role: "status" });
const input = make("input", { type: "search", id: "search", placeholder: "L5H4, induction, a word ( / )", autocomplete: "off", oninput: find });
tools.append(make("label", { for: "search" }, "Find a head "), input, count, hits);
function find() {
  const found = search(input.value), asked = input.value.trim() !== "";
  for (const map of maps) map.ringAt(found.filter((x) => x.model === map.model).map((x) => x.label), map.marks);
  hits.hidden = !asked;
  count.textContent = asked ? `${found.length.toLocaleString("en")} found` : "";
  const lines = found.slice(0, MOST).map(({ model, label, why }) => make("li", {},
    headLink(model.id, label, `${label}${atlas.models.length > 1 ? ` ${model.name}` : ""} · ${why}`)));
  if (!found.length) lines.push(make("li", { class: "soft" }, "No head, role, sentence or token of a card matches."));
  else if (found.length > MOST) lines.push(make("li", { class: "soft" }, `${found.length - MOST} more are marked on the map`));
  hits.replaceChildren(...lines);
}
function leave() { input.value = ""; find(); }
input.addEventListener("keydown", (event) => {
  if (event.key === "Enter") { event.preventDefault(); hits.querySelector("a")?.click(); }
  if (event.key === "ArrowDown") { event.preventDefault(); hits.querySelector("a")?.focus(); }
  if (event.key === "Escape") leave();
});
hits.addEventListener("keydown", (event) => {
  const links = [...hits.querySelectorAll("a")], at = links.indexOf(document.activeElement);
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    (links[at + (event.key === "ArrowDown" ? 1 : -1)] ?? input).focus();
  }
  if (event.key === "Escape") { event.stopPropagation(); input.focus(); leave(); }
});
hits.addEventListener("click", (event) => { if (event.target.closest("a")) hits.hidden = true; });
document.addEventListener("pointerdown", (event) => { if (!tools.contains(event.target)) hits.hidden = true; });
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.matches("input, select, textarea")) return;
  event.preventDefault();
  input.focus();
});
const metrics = [...new Set(atlas.models.flatMap((m) => m.metrics.map((x) => x.name)))];
const tasks = [...new Set(atlas.models.flatMap((m) => Object.values(m.cards).flatMap((c) => (c.effects ?? []).map(effectName))))];
const choice = make("select", { id: "colour", onchange: () => { look.by = choice.value; repaint(); } },
  make("option", { value: "role" }, "role"), ...tasks.map((t) => make("option", { value: `effect:${t}` }, `effect on ${t}`)),
  ...metrics.map((m) => make("option", { value: `metric:${m}` }, m)));
tools.append(make("label", { for: "colour" }, "Colour by "), choice, rowButtons("heads", () => {
  const by = look.by === "role" ? [] : [look.by], out = [["model", "head", "role", ...by]];
  for (const model of atlas.models) {
    const found = by.length ? shownColumn(model) : null;
    model.labels.forEach((label, i) => {
      const role = roleOf(model, i);
      if (look.role === null || role?.[0] === look.role) out.push([model.name, label, role?.[1] ?? "", ...by.map(() => found?.values[i] ?? "")]);
    });
  }
  return out;
}));
if (!atlas.models.some((m) => m.roles.some((r) => r >= 0)) && choice.options.length > 1) {
  for (const bar of document.querySelectorAll(".first-scale")) bar.remove();
  choice.selectedIndex = 1; // no head has a role: the first effect or metric
  look.by = choice.value;
  repaint();
}
