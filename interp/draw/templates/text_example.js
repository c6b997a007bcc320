// Examples of a head on text: queries in context.
const KINDS = { uniform: "Typical", surprise: "Surprising" };
function words(name) { const text = name.replaceAll("_", " "); return text[0].toUpperCase() + text.slice(1); }
function percent(x, unit = " %") { return x === null ? "" : `${(100 * x).toFixed(x >= 0.095 || x < 0.0005 ? 0 : 1)}${unit}`; }
// The query outlined, its keys shaded, the largest with its share.
function onTextExample(one, at, all) {
  const keys = new Map(one.keys), most = Math.max(...keys.values()), parts = [];
  one.tokens.forEach((token, place) => {
    if (one.gaps.includes(place)) parts.push(make("i", { class: "gap" }, " … "));
    const share = keys.get(place);
    if (share === undefined && place !== one.query) { parts.push(visible(token)); return; }
    const names = [share === undefined ? "" : `key q${Math.round(32 * within(share, 0, 1))}`, place === one.query ? "query" : ""].filter(Boolean).join(" ");
    parts.push(make("mark", { class: names, title: share === undefined ? "the query" : `${percent(share)} of the query's attention` }, visible(token)));
    if (share === most) parts.push(make("sub", {}, percent(share)));
  });
  const first = all[at - 1]?.kind !== one.kind, surprise = one.surprise === null ? "" : `; ${one.surprise.toFixed(3)} nats from what the rules predict`;
  return [...(first ? [make("h4", {}, KINDS[one.kind] ?? words(one.kind), make("span", { class: "soft" }, ` ${one.how}`))] : []),
    make("p", { class: "text example" }, ...parts), make("p", { class: "note" }, `${one.document}${surprise}`)];
}
