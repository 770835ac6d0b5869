// Shows results below the search field while a person types: up, down, enter and escape work there.
"use strict";
(() => {
  const input = document.getElementById("q"), form = input?.closest("form");
  if (!form) { return; }
  const box = document.createElement("div");
  box.className = "suggest"; box.hidden = true; box.id = "found"; box.setAttribute("aria-label", "Results");
  form.append(box);
  input.setAttribute("aria-controls", "found");
  let timer = 0, request = null;

  const links = () => [...box.querySelectorAll("a")];
  function close() { box.hidden = true; request?.abort(); }
  async function ask() {
    const text = input.value.trim();
    if (text.length < 2) { return close(); }
    request?.abort();
    const mine = request = new AbortController();
    const answer = await fetch("/search?q=" + encodeURIComponent(text), {signal: mine.signal, headers: {"Argosy-Parts": "content=0"}, redirect: "manual"});
    if (!answer.ok) { return; }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const found = fresh.querySelector(".hits, .empty");
    if (!found || mine !== request) { return; }
    box.replaceChildren(found);
    box.hidden = false;
  }
  input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => ask().catch(() => {}), 120); });
  input.addEventListener("focus", () => { if (box.childElementCount && input.value.trim().length >= 2) { box.hidden = false; } });
  form.addEventListener("keydown", (event) => {
    const all = links(), at = all.indexOf(document.activeElement);
    if (event.key === "ArrowDown" && all.length && !box.hidden) { event.preventDefault(); all[Math.min(at + 1, all.length - 1)].focus(); }
    if (event.key === "ArrowUp" && at >= 0) { event.preventDefault(); (at === 0 ? input : all[at - 1]).focus(); }
    if (event.key === "Escape") { close(); input.focus(); close(); }
    if (event.key === "Enter" && document.activeElement === input && !box.hidden && all.length) { event.preventDefault(); all[0].click(); }
  });
  document.addEventListener("click", (event) => { if (!form.contains(event.target)) { close(); } });
})();
