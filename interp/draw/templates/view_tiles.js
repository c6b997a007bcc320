// Computes tiles of a head's map from the queries and keys that the page holds.
const TILE_SIDE = 64;

async function zoomTerms(item) {
  const zoom = item.zoom;
  if (zoom.ready) return zoom;
  for (const name of ["q", "k"]) {
    const [rows, width] = zoom[name].n, [coded, steps] = [await unpacked(zoom[name], Int16Array), await unpacked(zoom[`${name}s`], Float32Array)];
    zoom[`${name}f`] = Float32Array.from(coded, (c, i) => c * steps[Math.floor(i / width)]);
    zoom[`${name}n`] = rows;
    zoom.d = width;
  }
  zoom.sums = await unpacked(zoom.lse, Float32Array);
  zoom.largest = Float32Array.from(await unpacked(zoom.peaks, Uint8Array), (c) => (c / 255) ** 2);
  zoom.ready = true;
  return zoom;
}

// A tile of 64 by 64 blocks: the largest weight of each block; with blocks of one token the weights.
async function tileOf(item, whole, { block, row, column }) {
  const zoom = await zoomTerms(item), { d, qf, kf, scale, softcap, causal, window: back, offset } = zoom;
  const query = row * TILE_SIDE * block, key = column * TILE_SIDE * block;
  const q1 = Math.min(query + TILE_SIDE * block, zoom.qn), k1 = Math.min(key + TILE_SIDE * block, zoom.kn);
  const rows = Math.ceil((q1 - query) / block), columns = Math.ceil((k1 - key) / block), values = new Float32Array(rows * columns);
  if (block === whole) {
    const across = zoom.peaks.n[1];
    for (let y = 0; y < rows; y++) for (let x = 0; x < columns; x++) values[y * columns + x] = zoom.largest[(query / block + y) * across + key / block + x];
    return { query, key, shape: [rows, columns], values };
  }
  const best = new Float32Array(columns);
  for (let y = 0; y < rows; y++) {
    if (y % 16 === 0) await new Promise((go) => setTimeout(go)); // the page stays answerable
    for (let q = query + y * block; q < Math.min(query + (y + 1) * block, q1); q++) {
      const from = Math.max(key, back === null ? 0 : q + offset - back + 1), to = causal ? Math.min(k1, q + offset + 1) : k1;
      best.fill(-Infinity); // the largest score of each block of keys; its weight grows with it
      for (let k = from; k < to; k++) {
        let sum = 0;
        for (let i = 0, a = q * d, b = k * d; i < d; i++) sum += qf[a + i] * kf[b + i];
        const x = Math.floor((k - key) / block);
        if (sum > best[x]) best[x] = sum;
      }
      for (let x = 0; x < columns; x++) {
        if (best[x] === -Infinity) continue;
        const scaled = best[x] * scale, score = softcap === null ? scaled : softcap * Math.tanh(scaled / softcap);
        const weight = Math.exp(score - zoom.sums[q]), at = y * columns + x;
        if (weight > values[at]) values[at] = weight;
      }
    }
  }
  return { query, key, shape: [rows, columns], values };
}

// The map of a head over a long prompt, in place of its matrix in blocks.
page.zoomed = (shown) => {
  const { stack, item } = shown, [queries, keys] = page.words[stack.name], whole = stack.block;
  const blocks = [];
  for (let block = whole; block >= 1; block = block === 1 ? 0 : Math.max(1, Math.floor(block / 4))) blocks.push(block);
  const every = { ...stack, queries, keys: keys ?? queries };
  return new Zoom(every, item, { blocks, tile: TILE_SIDE }, (tile) => tileOf(item, whole, tile));
};
