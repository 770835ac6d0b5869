// Keeps the page current: after an event, fetches the page again and replaces its content.
// Without scripts the page works the same; its footer shows its age.
"use strict";
(() => {
  const kinds = ["application", "engine", "revision", "problem", "hold", "stop", "operation", "rebalance", "event"];
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
  setInterval(soon, 30000); // a silent engine sends no event
  for (const kind of kinds) { events.addEventListener(kind, soon); }
})();
