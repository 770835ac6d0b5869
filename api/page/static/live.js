// Keeps the page current: after events, asks the server for the parts that they concern and morphs
// those that have changed, so that scroll, focus and folds stay. One tab of a browser holds the
// event stream and passes its events on to the others.
"use strict";
(() => {
  const kinds = ["agent", "application", "audit", "engine", "environment", "event", "hold", "operation", "pool", "problem",
    "pull", "rebalance", "revision", "ring", "rollout", "source", "stop", "tenant"];
  const gap = 1000; // between two requests of one page, in milliseconds
  const mark = document.getElementById("live");
  const others = "BroadcastChannel" in window ? new BroadcastChannel("argosy-events") : null;
  const waiting = new Map(); // kinds that have changed since the last request, each with the names; "*": everything may have
  let due = 0, busy = false, last = 0;

  function state(on) {
    mark.dataset.state = on ? "on" : "off";
    mark.textContent = on ? "live" : "reconnecting";
  }
  // An event without a name concerns all objects of its kind. data-of is the only object of a part.
  function concerned(part) {
    if (!part.dataset.kinds) { return false; } // its parts are asked for
    return waiting.has("*") || part.dataset.kinds.split(" ").some((kind) => {
      const names = waiting.get(kind), of = document.querySelector("[data-of]")?.dataset.of;
      return names && (!of || kind !== "application" || names.has("") || names.has(of));
    });
  }
  function soon() {
    if (due || busy || document.hidden || !waiting.size) { return; }
    const spread = Math.random() * 400; // many pages see the same event
    due = setTimeout(refresh, Math.max(200, last + gap - Date.now()) + spread);
  }
  async function refresh() {
    due = 0; busy = true; last = Date.now();
    const parts = [...document.querySelectorAll("[data-part]")].filter(concerned);
    waiting.clear();
    try {
      if (parts.length) { await renew(parts); }
    } catch { /* the stream shows whether the control plane answers */ }
    busy = false;
    soon();
  }
  async function renew(parts) {
    const known = parts.map((part) => part.dataset.part + "=" + part.dataset.hash).join(" ");
    const answer = await fetch(location.pathname + location.search, {headers: {"Argosy-Parts": known}, redirect: "manual"});
    if (answer.type === "opaqueredirect") { location.reload(); return; } // the session has ended
    if (answer.status === 429 || answer.status >= 500) { last = Date.now() + 5000; heard("*"); return; }
    if (answer.status !== 200) { return; }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of fresh.querySelectorAll("[data-part]")) { swap(part); }
  }
  function swap(part) {
    const old = document.getElementById(part.id);
    if (!old) { return; }
    Idiomorph.morph(old, part, {morphStyle: "outerHTML", ignoreActiveValue: true, callbacks: {
      beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS"),
      beforeNodeMorphed: (node, next) => node.nodeType !== 1 || (!node.isEqualNode(next) && !node.hasAttribute?.("data-keep")),
    }});
    const now = document.getElementById(part.id);
    now.dispatchEvent(new CustomEvent("argosy:changed", {bubbles: true}));
  }
  function heard(kind, name = "") {
    if (!waiting.has(kind)) { waiting.set(kind, new Set()); }
    const names = waiting.get(kind);
    if (names.size < 1000) { names.add(name); } else { names.add(""); }
    soon();
  }

  function open() {
    const events = new EventSource("/events");
    const tell = (message) => { receive(message); others?.postMessage(message); };
    events.addEventListener("open", () => tell({state: true}));
    events.addEventListener("error", () => tell({state: false}));
    for (const kind of kinds) { events.addEventListener(kind, (event) => tell({kind, name: JSON.parse(event.data).name})); }
    others?.addEventListener("message", (event) => { if (event.data.who) { others.postMessage({state: events.readyState === 1}); } });
  }
  function receive(message) {
    if ("state" in message) {
      if (message.state && mark.dataset.state === "off") { heard("*"); } // events may have been missed
      state(message.state);
    }
    if (message.kind) { heard(message.kind, message.name); }
  }

  if (document.querySelector("[data-ask]")) { // a part that waits for the engine
    renew([...document.querySelectorAll("[data-part]")].filter((part) => part.querySelector("[data-ask]"))).catch(() => {});
  }
  others?.addEventListener("message", (event) => receive(event.data));
  document.addEventListener("visibilitychange", soon);
  setInterval(() => heard("*"), 30000); // a silent engine sends no event
  if (others && navigator.locks) {
    navigator.locks.request("argosy-events", () => { open(); return new Promise(() => {}); });
    others.postMessage({who: true});
  } else {
    open();
  }
})();
