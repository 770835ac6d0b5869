// Shows times in the reader's zone, with UTC on hover. <time data-as="age"> shows the time since then.
"use strict";
(() => {
  const full = new Intl.DateTimeFormat(undefined, {dateStyle: "medium", timeStyle: "short"});

  function age(ms) {
    const s = Math.max(0, Math.floor(ms / 1000)), m = Math.floor(s / 60), h = Math.floor(m / 60);
    if (s < 120) { return s + "s"; }
    if (m < 120) { return m + "m"; }
    if (h < 8 && m % 60) { return h + "h" + (m % 60) + "m"; }
    return h < 48 ? h + "h" : Math.floor(h / 24) + "d";
  }
  function show(el) {
    const at = new Date(el.dateTime);
    if (isNaN(at)) { return; }
    const utc = at.toISOString().slice(0, 19).replace("T", " ") + " UTC";
    const since = el.dataset.as === "age";
    el.title = since ? full.format(at) + " (" + utc + ")" : utc;
    const text = since ? age(Date.now() - at) : full.format(at);
    if (el.textContent !== text) { el.textContent = text; }
  }
  function all(within) { for (const el of within.querySelectorAll("time[datetime]")) { show(el); } }

  all(document);
  setInterval(() => { if (!document.hidden) { all(document); } }, 15000);
  document.addEventListener("argosy:changed", (event) => all(event.target));
})();
