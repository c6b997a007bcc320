// Binds the maps and tiles of a page to the panel that opens heads.
for (const map of document.querySelectorAll("svg.thumbs")) pickable(map, open);
for (const figure of document.querySelectorAll("figure.tile")) {
  const { stack, tile } = figure.dataset, s = Number(stack);
  const h = page.stacks[s].heads.findIndex((head) => head.name === page.stacks[s].tiles[tile].of);
  figure.append(control("Open", () => open(s, h, Number(tile))));
}
document.querySelector("p.keys").hidden = false;
if (page.open) open(...page.open, null, false);
