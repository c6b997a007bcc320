// Elements, tables and arrow keys, for the scripts after this one.
"use strict";
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const DRAWN = ["svg", "rect", "path", "title", "text", "g", "circle"];

function make(tag, attributes = {}, ...children) {
  const element = DRAWN.includes(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
function control(text, onclick, attributes = {}) {
  return make("button", { type: "button", onclick, ...attributes }, text);
}
function row(...cells) {
  return make("tr", {}, ...cells.map((c, i) => make(i ? "td" : "th", i ? {} : { scope: "row" }, c)));
}
function table(caption, heads, rows) {
  const head = make("tr", {}, ...heads.map((h) => make("th", { scope: "col" }, h)));
  const above = caption ? [make("caption", {}, caption)] : [];
  return make("table", {}, ...above, make("thead", {}, head), make("tbody", {}, ...rows));
}
function within(x, low, high) { return Math.min(Math.max(x, low), high); }
function labelled(name, input) { return make("label", {}, `${name} `, input); }
