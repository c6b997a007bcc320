// Binds the maps and tiles of a page to the panel that opens heads.
for (const map of document.querySelectorAll("svg.thumbs")) pickable(map, open);
for (const figure of document.querySelectorAll("figure.tile")) {
  const { stack, tile } = figure.dataset, s = Number(stack);
  const h = page.stacks[s].heads.findIndex((head) => head.name === page.stacks[s].tiles[tile].of);
  figure.append(control("Open", () => open(s, h, Number(tile))));
}
document.querySelector("p.keys").hidden = false;
// The address `#L5H4` opens that head, so that other pages can link to it.
function linked() {
  for (const [s, stack] of page.stacks.entries()) {
    const h = stack.heads.findIndex((head) => location.hash === `#${encodeURIComponent(head.name)}`);
    if (h >= 0) return [s, h];
  }
  return null;
}
addEventListener("hashchange", () => { const found = linked(); if (found) open(...found); });
const first = linked() ?? page.open;
if (first) open(...first, null, false);
