// Ask the service; an error is one line of text.
async function call(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  };
  const reply = await fetch(path, options), found = await reply.json();
  if (!reply.ok) throw new Error(found.error);
  return found;
}
function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}
const answer = document.getElementById("answer"), state = document.getElementById("state");
const renew = document.getElementById("renew");
renew.addEventListener("click", () => location.reload());

document.getElementById("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const found = await call("predict", { ids: [document.getElementById("node").value] });
    const [node] = found.predictions, list = element("ol");
    const rows = found.classes.map((name, i) => [name, node.probabilities[i]]).sort((a, b) => b[1] - a[1]);
    for (const [name, share] of rows.slice(0, 10)) {
      const row = element("li"), meter = element("span", "", "meter"), bar = element("i");
      bar.style.width = 100 * share + "%";
      meter.append(bar);
      row.append(element("span", name), meter, element("span", (100 * share).toFixed(1) + " %"));
      list.append(row);
    }
    answer.replaceChildren(element("p", `${node.id}: ${node.label} (version ${found.version})`), list);
  } catch (error) {
    answer.replaceChildren(element("p", error.message, "wrong"));
  }
});

for (const button of document.querySelectorAll(".rollback")) button.addEventListener("click", async () => {
  button.disabled = true;
  try {
    await call("rollback", { version: Number(button.dataset.version) });
    location.reload();
  } catch (error) {
    button.disabled = false;
    state.textContent = error.message;
  }
});

// A new version is shown at once, unless the reader is in the middle of something.
async function look() {
  try {
    const found = await call("health"), waits = found.waiting ? `, ${found.waiting} updates queued` : "";
    if (found.version !== SERVED) {
      state.textContent = `Now serving version ${found.version}.`;
      if (document.activeElement === document.body && !answer.hasChildNodes()) location.reload();
      renew.hidden = false;
    } else {
      state.textContent = `Serving version ${found.version}${waits}.` + (found.trouble ? " " + found.trouble : "");
    }
  } catch (_) {
    state.textContent = "The service does not respond.";
  }
}
setInterval(look, 3000);
