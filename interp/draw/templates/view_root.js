// The document or the shadow root that the scripts draw in, and the data of the page.
const root = document, page = JSON.parse(root.getElementById("data").textContent);
