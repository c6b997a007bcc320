// Binds the maps and tiles of a page to the panel that opens heads.
for (const map of document.querySelectorAll("svg.thumbs")) pickable(map, open);
for (const figure of document.querySelectorAll("figure.tile")) {
  const { stack, tile } = figure.dataset, s = Number(stack);
  const h = page.stacks[s].heads.findIndex((head) => head.name === page.stacks[s].tiles[tile].of);
  figure.append(control("Open", () => open(s, h, Number(tile))));
}
document.querySelector(".keys").hidden = false;
const passages = make("div", { class: "contents" }), gone = make("p", { class: "warning", role: "status", hidden: true });
document.querySelector("header").append(gone);
document.querySelector("header").after(passages);
readIn(passages);
if (reading) for (const text of document.querySelectorAll("p.prompt")) text.hidden = true;
for (const name of document.querySelectorAll("td.head, th.head")) linkHead(name);

// The address `#L5H4`, or `#cross.L5H4`, opens that head, `#L5H4:30,12` at that query and key; other
// pages can link to it.
function linked() {
  const [, name, query, key] = decoded(location.hash.slice(1)).match(/^(.*L\d+H\d+)(?::(\d+),(\d+))?$/) ?? [];
  if (!name) return null;
  gone.hidden = true;
  for (const [s, stack] of page.stacks.entries()) {
    const h = stack.heads.findIndex((head) => name === head.name || name === `${stack.name}.${head.name}`);
    if (h < 0) continue;
    const [rows, columns] = stack.tokens, pair = query === undefined ? null : [Number(query), Number(key)];
    if (!pair || (pair[0] < rows && pair[1] < columns)) return { s, h, pair };
    gone.textContent = `This page has no query ${query} and key ${key} of ${name}; there are ${rows.toLocaleString()} queries and ${columns.toLocaleString()} keys.`;
    gone.hidden = false;
    return { s, h, pair: null };
  }
  const [from, to] = [page.stacks[0].heads[0].name, page.stacks.at(-1).heads.at(-1).name];
  gone.textContent = `This page has no head “${name}”, which its address asks for; it has ${from} to ${to}.`;
  gone.hidden = false;
  return null;
}
async function follow({ s, h, pair }, focus = true) {
  await open(s, h, null, focus);
  if (pair) await opened.at?.(...pair);
}
function decoded(text) { try { return decodeURIComponent(text); } catch { return text; } }
function fullName(s, name) { return page.stacks.length > 1 ? `${page.stacks[s].name}.${name}` : name; }
function linkHead(cell) { // a row that ends with a query and a key leads to them
  const name = cell.textContent, s = cell.closest("section.stack").id.slice(1);
  const places = [...cell.parentElement.cells].slice(-2).map((c) => c.textContent.match(/^([\d,]+): /)?.[1].replaceAll(",", ""));
  const pair = places.every((at) => at !== undefined) ? `:${places.join(",")}` : "";
  cell.replaceChildren(make("a", { href: `#${encodeURIComponent(fullName(s, name))}${pair}` }, name));
}
page.wentTo = (s, name) => { // a frame of a notebook has no address
  if (location.protocol !== "about:") history.replaceState(null, "", name ? `#${encodeURIComponent(fullName(s, name))}` : location.href.split("#")[0]);
};
addEventListener("hashchange", () => { const found = linked(); if (found) follow(found); });
const [s, h] = page.open;
follow(linked() ?? { s, h, pair: null }, false);
