// Shows only the first marks of a ranked picture: as many as the slider says.
for (const svg of document.querySelectorAll("svg[data-ranks]")) {
  const { ranks, what } = svg.dataset, told = make("span");
  const input = make("input", { type: "range", min: 1, max: ranks, value: ranks, oninput: show });
  svg.parentElement.before(make("label", { class: "slider" }, `${what} shown`, input, told));
  function show() {
    told.textContent = `${input.value} of ${ranks}`;
    for (const mark of svg.querySelectorAll("[data-rank]"))
      mark.classList.toggle("off", Number(mark.dataset.rank) >= Number(input.value));
  }
  show();
}
