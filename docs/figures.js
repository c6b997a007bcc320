// Draws the figures of a notebook's page from the descriptions beside them, once plotly is there.
"use strict";
const dark = matchMedia("(prefers-color-scheme: dark)");
for (const place of document.querySelectorAll("figure .plot")) {
  const described = JSON.parse(place.parentElement.querySelector("script").textContent);
  const layout = { ...described.layout, autosize: true };
  delete layout.width; // as wide as the page
  place.replaceChildren();
  const draw = () => {
    const ink = dark.matches ? { color: "#e4e8ec" } : {};
    const paper = dark.matches ? { paper_bgcolor: "#14181c", plot_bgcolor: "#1d2329" } : {};
    Plotly.react(place, described.data, { ...layout, ...paper, font: { ...layout.font, ...ink } },
      { responsive: true, displaylogo: false });
  };
  draw();
  dark.addEventListener("change", draw);
}
