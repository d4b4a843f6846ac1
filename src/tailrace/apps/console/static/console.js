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
