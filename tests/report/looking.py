"""What a reader would complain of in a page, asked of the browser that shows it."""

from __future__ import annotations

# Texts that are too close in lightness to what is behind them (WCAG 2.2, level AA: 4.5, large 3).
PALE = r"""
const linear = (x) => (x /= 255) <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4;
const light = (c) => .2126 * linear(c[0]) + .7152 * linear(c[1]) + .0722 * linear(c[2]);
function parts(text) {
  const found = /rgba?\(([^)]+)\)/.exec(text);
  const [r, g, b, a] = found ? found[1].split(/[ ,\/]+/).map(Number) : [0, 0, 0, 0];
  return [r, g, b, a === undefined ? 1 : a];
}
const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3]));
function behind(element) {
  const layers = [];
  for (let e = element; e; e = e.parentElement)
    layers.push(parts(getComputedStyle(e).backgroundColor));
  return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
}
const out = new Set(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const text = walk.currentNode.textContent.trim(), element = walk.currentNode.parentElement;
  if (!text || element.closest("script,style,title,:disabled")) continue;
  if (!element.getClientRects().length) continue;
  const style = getComputedStyle(element), ground = behind(element);
  const ink = over(parts(element instanceof SVGElement ? style.fill : style.color), ground);
  const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
  const ratio = (a + .05) / (b + .05), size = parseFloat(style.fontSize);
  if (ratio < (size >= 24 || (size >= 18.7 && style.fontWeight >= 700) ? 3 : 4.5))
    out.add(`${element.tagName} ${ratio.toFixed(2)}: ${text.slice(0, 40)}`);
}
return [...out];
"""

# What lies beside the page, or inside something that cuts it off and cannot be scrolled there.
CUT = r"""
const out = [], wide = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth > wide)
  out.push(`the page is ${document.documentElement.scrollWidth} wide in a window of ${wide}`);
const print = matchMedia("print").matches;
for (const element of document.querySelectorAll("body *")) {
  const box = element.getBoundingClientRect(), style = getComputedStyle(element);
  if (!box.width || element.closest("svg svg")) continue;
  const cutting = print ? ["hidden", "clip", "auto", "scroll"] : ["hidden", "clip"];
  const name = `${element.tagName}.${element.className}`, room = element.clientWidth;
  const cuts = cutting.includes(style.overflowX) && element.tagName !== "svg";
  if (cuts && element.scrollWidth > room + 1)
    out.push(`${name} is cut: ${element.scrollWidth} in ${room}`);
  const low = print && cutting.includes(style.overflowY) && element.tagName !== "svg";
  if (low && element.scrollHeight > element.clientHeight + 1) out.push(`${name} is cut below`);
  if (print && box.right > wide + 1) out.push(`${name} ends at ${box.right} of ${wide}`);
}
return [...new Set(out)].slice(0, 10);
"""

# Words broken in the middle of a line of letters: a cell that is much higher than it is wide.
SQUEEZED = r"""
const out = [];
for (const cell of document.querySelectorAll("td, th")) {
  const text = cell.textContent.trim(), style = getComputedStyle(cell);
  if (!cell.getClientRects().length || !text || cell.rowSpan > 1) continue;
  const range = document.createRange();
  range.selectNodeContents(cell);
  const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.bottom))).size;
  if (lines > 1 + text.split(/[\s/-]+/).length) out.push(`${lines} lines: ${text.slice(0, 40)}`);
}
return out.slice(0, 10);
"""

# Letters of a picture that lie on each other or outside of it.
CROWDED = r"""
const out = [];
for (const map of document.querySelectorAll("svg.map")) {
  const frame = map.getBoundingClientRect();
  const texts = [...map.querySelectorAll("text")];
  const boxes = texts.map((t) => [t.textContent, t.getBoundingClientRect()]);
  boxes.forEach(([text, a], i) => {
    const beyond = [frame.left - a.left, a.right - frame.right, frame.top - a.top];
    if (Math.max(...beyond, a.bottom - frame.bottom) > 1) out.push(`${text} lies outside`);
    for (const [other, b] of boxes.slice(i + 1)) {
      const across = a.left < b.right && b.left < a.right;
      if (across && a.top < b.bottom && b.top < a.bottom) out.push(`${text} lies on ${other}`);
    }
  });
}
return [...new Set(out)].slice(0, 10);
"""

# Pictures without words for those who do not see them: no name, and not hidden from screen readers.
PICTURES = r"""
const out = [];
for (const e of document.querySelectorAll("svg, canvas, img")) {
  const inside = e.closest("[aria-hidden=true]") || e.parentElement.closest("svg");
  if (!e.getClientRects().length || inside) continue;
  const by = e.getAttribute("aria-labelledby"), title = e.querySelector(":scope > title");
  const words = [e.getAttribute("aria-label"), e.getAttribute("alt"), title?.textContent];
  if (by) words.push(document.getElementById(by)?.textContent);
  if (!words.some((x) => x && x.trim())) out.push(e.outerHTML.slice(0, 120));
}
return out.slice(0, 5);
"""

# What shows a hand under the mouse and cannot have the focus.
POINTED = r"""
const able = "a[href], button, input, select, textarea, summary, label, [tabindex]";
const elsewhere = '[aria-label*="with the keyboard"]'; // a picture that says how keys do the same
const out = new Set();
for (const e of document.querySelectorAll("body *"))
  if (e.getClientRects().length && getComputedStyle(e).cursor === "pointer" && !e.closest(able)
      && !e.matches(elsewhere))
    out.add(e.outerHTML.slice(0, 120));
return [...out].slice(0, 5);
"""

# Number the controls that the Tab key stops at, and say how many there are.
REACHED = r"""
const able = "a[href], button, input, select, textarea, summary, [tabindex]";
const groups = new Set(), kept = [];
for (const e of document.querySelectorAll(able)) {
  if (!e.checkVisibility({ visibilityProperty: true }) || e.disabled || e.tabIndex < 0) continue;
  if (e.type === "radio") { if (groups.has(e.name)) continue; groups.add(e.name); }
  kept.push(e);
}
kept.forEach((e, i) => (e.dataset.control = i));
return kept.length;
"""
