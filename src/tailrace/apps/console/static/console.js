// Keeps a page fresh. Everything works without it: it only saves loading the page again.
"use strict";

// When the console has a new picture, the parts of this page that are marked are taken from the page as it is now.
async function refresh() {
  const parts = document.querySelectorAll("[data-live]");
  if (!parts.length || document.hidden) return;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok || answer.redirected) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of parts) {
    const newer = page.getElementById(part.id);
    const isUsed = part.contains(document.activeElement) && document.activeElement !== part;
    if (newer && !isUsed && newer.innerHTML !== part.innerHTML) part.replaceChildren(...newer.childNodes);
  }
}

if (document.querySelector("[data-live]")) {
  const live = new EventSource("/live");
  let isBusy = false;
  live.onmessage = async () => {
    if (isBusy) return;
    isBusy = true;
    try { await refresh(); } catch { /* the next one may do */ } finally { isBusy = false; }
  };
}

// Under the pointer a chart says what it showed then, to the precision of its picture.
const UNITS = {
  count: (value) => near(value),
  rate: (value) => `${near(value)}/s`,
  bytes: (value) => {
    const power = value < 1 ? 0 : Math.min(5, Math.floor(Math.log10(value) / 3));
    return `${near(value / 1000 ** power)} ${["B", "KB", "MB", "GB", "TB", "PB"][power]}`;
  },
};
const near = (value) => Number(value.toPrecision(3)).toLocaleString("en");

document.addEventListener("pointermove", (event) => {
  const svg = event.target.closest?.("[data-chart]");
  for (const old of document.querySelectorAll(".cursor")) if (old.parentNode !== svg) leave(old.parentNode);
  if (!svg) return;
  const { width, height } = svg.viewBox.baseVal, box = svg.getBoundingClientRect();
  const wanted = (event.clientX - box.left) / box.width * width;
  let found = null;
  for (const line of svg.querySelectorAll("polyline"))
    for (const point of line.points) if (!found || Math.abs(point.x - wanted) < Math.abs(found.x - wanted)) found = point;
  const { top, unit, now, span } = svg.dataset, strong = svg.closest("figure").querySelector("strong");
  const at = new Date((now - span * (1 - found.x / width)) * 1000).toISOString().slice(span > 3600 ? 5 : 11, 19).replace("T", " ");
  strong.dataset.last ??= strong.textContent;
  strong.textContent = `${UNITS[unit](top * (height - found.y) / (height - 4))} at ${at}`;
  const cursor = svg.querySelector(".cursor") ?? svg.appendChild(document.createElementNS(svg.namespaceURI, "line"));
  for (const [name, value] of Object.entries({ class: "cursor", x1: found.x, x2: found.x, y1: 0, y2: height })) cursor.setAttribute(name, value);
});

function leave(svg) {
  const strong = svg.closest("figure").querySelector("strong");
  strong.textContent = strong.dataset.last;
  svg.querySelector(".cursor").remove();
}

// Messages as they arrive.
const TAIL_ROWS = 500;
const tail = document.getElementById("tail");
if (tail) {
  let source = null;
  tail.addEventListener("click", () => {
    if (source) { source.close(); source = null; tail.textContent = "Follow"; return; }
    const rows = document.getElementById("rows");
    const status = document.getElementById("looked");
    tail.textContent = "Stop";
    status.textContent = "New messages appear on top.";
    source = new EventSource(tail.dataset.tail);
    source.onmessage = (event) => {
      const holder = document.createElement("tbody");
      holder.innerHTML = event.data; // made by the console, with everything escaped
      const row = holder.firstElementChild;
      if (!row) return;
      row.classList.add("new");
      rows.prepend(row);
      while (rows.children.length > TAIL_ROWS) rows.lastElementChild.remove();
    };
    source.addEventListener("failed", (event) => { status.textContent = JSON.parse(event.data); source.close(); source = null; tail.textContent = "Follow"; });
  });
}

// Puts a command or a program where it can be pasted from.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy);
  try { await navigator.clipboard.writeText(text.textContent); button.textContent = "Copied"; }
  catch { getSelection().selectAllChildren(text); } // without https: marked, to be copied by hand
});

// "/" goes to the search.
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) return;
  const field = document.querySelector("[data-hotkey='/']");
  if (field) { event.preventDefault(); field.focus(); }
});
