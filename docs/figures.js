// Draws the figures of a notebook's page from the descriptions beside them, once plotly is there.
"use strict";
const dark = matchMedia("(prefers-color-scheme: dark)");
for (const place of document.querySelectorAll("figure .plot")) {
  const described = JSON.parse(place.parentElement.querySelector("script").textContent);
  const layout = { ...described.layout, autosize: true };
  delete layout.width; // as wide as the page
  place.replaceChildren();
  const draw = () => {
    const themed = { ...layout };
    if (dark.matches) {
      Object.assign(themed, { paper_bgcolor: "#14181c", plot_bgcolor: "#1d2329" });
      themed.font = { ...layout.font, color: "#e4e8ec" };
      const lines = { gridcolor: "#3a434c", zerolinecolor: "#5b6570" };
      const axes = Object.keys(layout).filter((name) => /^[xy]axis/.test(name));
      for (const name of new Set(["xaxis", "yaxis", ...axes])) {
        themed[name] = { ...layout[name], ...lines };
      }
    }
    Plotly.react(place, described.data, themed, { responsive: true, displaylogo: false });
  };
  draw();
  dark.addEventListener("change", draw);
}
