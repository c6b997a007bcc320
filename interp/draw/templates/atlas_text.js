// The card of a head shows it on a text, where the page holds its attention there.
const root = document, page = { palette: [], signed: [] };

document.addEventListener("atlas-card", async ({ detail: { model, label, article } }) => {
  const held = atlas.views[model];
  for (const stack of held?.stacks ?? []) {
    const item = stack.heads.find((one) => label === one.name || label === `${stack.name}.${one.name}`);
    if (!item || !stack.reading) continue;
    const words = new RunningText(held.texts), weights = await weightsOf(item);
    words.attach(new Shown({ ...stack, block: 1, tiles: [] }, item, weights, false), (query, key) => { location.href = `${held.file}#${encodeURIComponent(label)}:${query},${key}`; });
    article.querySelector("p")?.after(make("section", {}, make("h3", {}, "On a text"), words.body));
    return;
  }
});
