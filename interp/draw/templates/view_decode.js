// Reads numbers of heads: from the page, or as a server or a kernel sent them (with letters `d`).
// Blocks are unpacked when a head is opened, not before.

async function unpacked(item, Kind) {
  const letters = atob(item.d ?? root.getElementById(item.b).textContent);
  const zipped = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) zipped[i] = letters.charCodeAt(i);
  const stream = new Blob([zipped]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const size = item.s, n = planes.length / size;
  const bytes = new Uint8Array(planes.length);
  for (let p = 0; p < size; p++) for (let i = 0; i < n; i++) bytes[i * size + p] = planes[p * n + i];
  const flat = new Kind(bytes.buffer);
  if (!item.t) return flat;
  const side = item.n[0], whole = new Kind(side * side);
  for (let row = 0, at = 0; row < side; at += ++row) {
    whole.set(flat.subarray(at, at + row + 1), row * side);
  }
  return whole;
}

async function weightsOf(item) {
  if (item.values) return item.values;
  if (item.bits === 32) return unpacked(item.w, Float32Array);
  const coded = await unpacked(item.w, item.bits === 8 ? Uint8Array : Uint16Array);
  const top = 2 ** item.bits - 1;
  return Float32Array.from(coded, (c) => (c / top) ** 2);
}

// q and k as the model has them: numbers times the step of their vector
async function vectors(terms, name) {
  const item = terms[name], [rows, width] = item.n;
  const [coded, steps] = [await unpacked(item, Int16Array), await unpacked(terms[`${name}s`], Float32Array)];
  const found = [];
  for (let row = 0; row < rows; row++) {
    found.push(Float64Array.from(coded.subarray(row * width, (row + 1) * width), (c) => c * steps[row]));
  }
  return found;
}

async function termsOf(item) {
  const terms = item.terms;
  if (!terms || terms.ready) return terms;
  terms.queries = await vectors(terms, "q");
  terms.keys = await vectors(terms, "k");
  terms.biases = terms.bias ? await unpacked(terms.bias, Int16Array) : null;
  terms.visible = terms.seen ? await unpacked(terms.seen, Uint8Array) : null;
  terms.ready = true;
  return terms;
}

// What the score of one query and key is made of; score is -Infinity where the key is hidden.
function scoreParts(terms, query, key) {
  const q = terms.queries[query], k = terms.keys[key], at = query * terms.keys.length + key;
  const products = q.map((x, i) => x * k[i] * terms.scale);
  const product = products.reduce((sum, x) => sum + x, 0);
  const cap = terms.softcap, capped = cap === null ? product : cap * Math.tanh(product / cap);
  const bias = terms.biases ? terms.biases[at] * terms.step : 0;
  const hidden = terms.causal ? key > query : terms.visible ? !terms.visible[at] : false;
  return { q, k, products, product, capped, bias, score: hidden ? -Infinity : capped + bias };
}

function softmaxRow(terms, query) {
  const scores = terms.keys.map((_, key) => scoreParts(terms, query, key).score);
  const all = terms.sink === null ? scores : [...scores, terms.sink];
  const top = all.reduce((a, b) => Math.max(a, b), -Infinity);
  const total = all.reduce((sum, s) => sum + Math.exp(s - top), 0);
  const weights = scores.map((s) => Math.exp(s - top) / total);
  return { scores, weights, sink: terms.sink === null ? 0 : Math.exp(terms.sink - top) / total };
}
