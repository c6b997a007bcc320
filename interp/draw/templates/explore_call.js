// Asks the server; a kernel is asked with the same names by another `call`.
const READS = ["pattern", "tile", "progress", "rules", "explain", "heads"];

async function call(name, given, signal) {
  const headers = { "X-Interp-Token": page.token };
  const asked = READS.includes(name)
    ? fetch(`/api/${name}?${new URLSearchParams(given ?? {})}`, { headers })
    : fetch(`/api/${name}`, { method: "POST", headers, body: JSON.stringify(given), signal });
  let answer, found;
  try {
    answer = await asked;
    found = await answer.json();
  } catch {
    throw new Error("The server does not answer. Start interp explore again.");
  }
  if (!answer.ok) throw Object.assign(new Error(found.error), { replaced: found.kind === "NewerRequest" });
  return found;
}
