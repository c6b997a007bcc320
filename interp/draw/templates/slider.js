// Shows only the first marks of a ranked picture: as many as the slider says.
"use strict";
for (const svg of document.querySelectorAll("svg[data-ranks]")) {
  const most = Number(svg.dataset.ranks), what = svg.dataset.what;
  const control = document.createElement("label"), input = document.createElement("input");
  const told = document.createElement("span");
  Object.assign(input, { type: "range", min: 1, max: most, value: most });
  control.className = "slider";
  control.append(`${what} shown`, input, told);
  svg.parentElement.before(control);
  const show = () => {
    told.textContent = `${input.value} of ${most}`;
    for (const mark of svg.querySelectorAll("[data-rank]"))
      mark.classList.toggle("off", Number(mark.dataset.rank) >= Number(input.value));
  };
  input.addEventListener("input", show);
  show();
}
