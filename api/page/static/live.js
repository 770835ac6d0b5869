// Keeps the page fresh: when the event stream says that something changed, the page is fetched anew and its content replaced.
// Without scripts the page works the same, and is as old as it says at its foot.
"use strict";
(() => {
  const kinds = ["application", "engine", "revision", "problem", "hold", "stop", "operation", "event"];
  const live = document.getElementById("live");
  let due = null;

  async function refresh() {
    due = null;
    if (document.hidden || document.querySelector("main :focus, main details[open]")) { return soon(); }
    const answer = await fetch(location.href, {credentials: "same-origin"});
    if (!answer.ok || answer.redirected) { return; }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of ["main", "footer"]) { document.querySelector(part).replaceWith(fresh.querySelector(part)); }
  }
  function soon() { due ??= setTimeout(() => refresh().catch(() => {}), 1500); }

  const events = new EventSource("/events");
  events.addEventListener("open", () => { live.hidden = false; });
  events.addEventListener("error", () => { live.hidden = true; });
  for (const kind of kinds) { events.addEventListener(kind, soon); }
})();
