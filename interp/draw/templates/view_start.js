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

// The address `#L5H4`, or `#cross.L5H4`, opens that head, so that other pages can link to it.
function linked() {
  const name = decoded(location.hash.slice(1));
  if (!/L\d+H\d+$/.test(name)) return null;
  gone.hidden = true;
  for (const [s, stack] of page.stacks.entries()) {
    const h = stack.heads.findIndex((head) => name === head.name || name === `${stack.name}.${head.name}`);
    if (h >= 0) return [s, h];
  }
  const [from, to] = [page.stacks[0].heads[0].name, page.stacks.at(-1).heads.at(-1).name];
  gone.textContent = `This page has no head “${name}”, which its address asks for; it has ${from} to ${to}.`;
  gone.hidden = false;
  return null;
}
function decoded(text) { try { return decodeURIComponent(text); } catch { return text; } }
function fullName(s, name) { return page.stacks.length > 1 ? `${page.stacks[s].name}.${name}` : name; }
function linkHead(cell) {
  const name = cell.textContent, s = cell.closest("section.stack").id.slice(1);
  cell.replaceChildren(make("a", { href: `#${encodeURIComponent(fullName(s, name))}` }, name));
}
page.wentTo = (s, name) => { // a frame of a notebook has no address
  if (location.protocol !== "about:") history.replaceState(null, "", name ? `#${encodeURIComponent(fullName(s, name))}` : location.href.split("#")[0]);
};
addEventListener("hashchange", () => { const found = linked(); if (found) open(...found); });
const first = linked() ?? page.open;
open(...first, null, false);
