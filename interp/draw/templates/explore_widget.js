// The view in a notebook: asks the kernel, and hides the still picture that stands below it.
function notebookView({ model, el }) {
  const host = el.attachShadow({ mode: "open" }), waiting = new Map();
  const data = JSON.parse(model.get("data"));
  if (data.still) {  // a rule, since the picture may enter the page after the view
    const rule = document.createElement("style");
    rule.textContent = `#${CSS.escape(data.still)} { display: none; }`;
    document.head.append(rule);
  }
  const style = document.createElement("style"), live = document.createElement("div");
  style.textContent = model.get("style");
  live.id = "live";
  host.append(style, live);
  const mine = Math.random().toString(36).slice(2);
  let asked = 0;
  const heard = (message) => {
    const one = waiting.get(message.id);
    if (!one) return; // another view of the same model asked
    waiting.delete(message.id);
    if (message.error) one.reject(Object.assign(new Error(message.error), { replaced: message.kind === "NewerRequest" }));
    else one.resolve(message.found);
  };
  model.on("msg:custom", heard);
  const askKernel = (name, given) => new Promise((resolve, reject) => {
    const id = `${mine}-${++asked}`;
    waiting.set(id, { resolve, reject });
    model.send({ id, name, given });
  });
  drawIn(host, data, askKernel);
  return () => model.off("msg:custom", heard);
}
export default { render: notebookView };
