"use strict";
// Theme: automatic, light, dark; remembered where the browser allows it.
const root = document.documentElement, themeButton = document.getElementById("theme");
const themes = ["auto", "light", "dark"];
function setTheme(theme) {
  if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
  themeButton.lastElementChild.textContent = " " + theme;
  themeButton.setAttribute("aria-label", "Color theme: " + (theme === "auto" ? "automatic" : theme));
  try { localStorage.setItem("ergnn-theme", theme); } catch (_) { /* private window */ }
}
let stored = null;
try { stored = localStorage.getItem("ergnn-theme"); } catch (_) { /* private window */ }
setTheme(themes.includes(stored) ? stored : "auto");
themeButton.addEventListener("click", () => setTheme(themes[(themes.indexOf(root.dataset.theme || "auto") + 1) % 3]));

// Tables: a click on a column sorts by it, a second click turns it round; cells without a number stay last.
function sortTable(table, column, down) {
  const body = table.tBodies[0], sign = down ? -1 : 1;
  const value = (row) => row.cells[column].dataset.v;
  const compare = (a, b) => {
    const x = value(a), y = value(b);
    if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
    const numbers = [Number(x), Number(y)];
    return sign * (numbers.some(Number.isNaN) ? x.localeCompare(y, "en", { numeric: true }) : numbers[0] - numbers[1]);
  };
  body.append(...[...body.rows].sort(compare));
}
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows].at(-1).cells;
  [...heads].forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of heads) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    sortTable(table, column, down);
  }));
}

// Values on hover, on touch, and by the arrow keys inside a figure.
const tip = document.getElementById("tip");
let shown = null;
function show(mark) {
  if (shown) shown.classList.remove("at");
  const series = document.querySelector(".series.at");
  if (series) series.classList.remove("at");
  shown = mark;
  tip.hidden = !mark;
  if (!mark) return;
  mark.classList.add("at");
  if (mark.closest(".series")) mark.closest(".series").classList.add("at");
  tip.textContent = mark.dataset.tip;
  const box = mark.getBoundingClientRect(), own = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, box.left + box.width / 2 - own.width / 2), innerWidth - own.width - 8);
  const above = box.top - own.height - 8;
  tip.style.left = left + "px";
  tip.style.top = (above > 4 ? above : box.bottom + 8) + "px";
}
document.addEventListener("pointerover", (event) => show(event.target.closest("[data-tip]")));
document.addEventListener("scroll", () => show(null), { passive: true, capture: true });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") show(null); });
for (const figure of document.querySelectorAll("svg.figure")) {
  const marks = [...figure.querySelectorAll("[data-tip]")];
  figure.addEventListener("blur", () => show(null));
  figure.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || !marks.length) return;
    event.preventDefault();
    const at = marks.indexOf(shown);
    show(marks[at < 0 ? 0 : (at + step + marks.length) % marks.length]);
  });
}

// On paper every section and command is open.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details.setting:not([open]), details.commands:not([open])")];
  for (const one of opened) one.open = true;
});
addEventListener("afterprint", () => { for (const one of opened) one.open = false; });
