// Follows the log of a container: pause, search, and a bounded number of lines. Every line is text.
"use strict";
(() => {
  const most = 5000; // lines on the page
  const ends = {Complete: "end of the log", TooLong: "the stream has sent 8 MiB: reload to go on", TimedOut: "15 minutes are over: reload to go on", Cut: "the connection to the cluster has failed: reload to go on", Cancelled: "ended"};
  const box = document.querySelector(".logs[data-stream]");
  if (!box) { return; }
  const lines = box.querySelector(".lines"), part = (name) => box.querySelector(`[data-log=${name}]`);
  const state = part("state"), pause = part("pause"), find = part("find"), count = part("count");
  let held = [], paused = false, wanted = "", dropped = 0;
  box.querySelector(".logtools").hidden = false;

  // Control characters, escapes of terminals and characters that turn the direction of text are shown, not obeyed.
  const hidden = /[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
  const shown = (text) => text.replace(hidden, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

  function tell(on, text) { state.dataset.state = on ? "on" : "off"; state.textContent = text; }
  function counts() {
    const found = wanted ? lines.querySelectorAll(".hit").length + " found, " : "";
    count.textContent = found + lines.childElementCount + (lines.childElementCount === 1 ? " line" : " lines") + (dropped ? ", older ones dropped" : "") + (held.length ? ", " + held.length + " new" : "");
  }
  function hit(el) { el.classList.toggle("hit", wanted !== "" && el.textContent.toLowerCase().includes(wanted)); }
  function add(texts, kind) {
    const low = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 40;
    const fresh = document.createDocumentFragment();
    for (const text of texts.slice(-most)) {
      const el = document.createElement("div");
      el.textContent = shown(text); if (kind) { el.className = kind; }
      hit(el);
      fresh.append(el);
    }
    lines.append(fresh);
    while (lines.childElementCount > most) { lines.firstElementChild.remove(); dropped++; }
    if (low) { lines.scrollTop = lines.scrollHeight; }
    counts();
  }
  function take(message) {
    const texts = (message.lines ?? []).map((line) => line.text + (line.truncated ? " …" : ""));
    if (paused) { held = held.concat(texts).slice(-most); counts(); } else if (texts.length) { add(texts); }
    if (message.refused) { tell(false, "ended"); add([message.refused.detail + (message.refused.next ? " Next: " + message.refused.next : "")], "end"); }
    if (message.end) { tell(false, "ended"); add([ends[message.end] ?? message.end], "end"); }
  }
  async function follow() {
    tell(true, "following");
    const answer = await fetch(box.dataset.stream);
    if (!answer.ok) {
      const problem = await answer.json().catch(() => ({detail: answer.statusText}));
      return take({refused: problem});
    }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const {value, done} = await reader.read();
      if (done) { break; }
      const all = (rest + value).split("\n");
      rest = all.pop();
      const parsed = all.filter(Boolean).map((line) => JSON.parse(line));
      take({lines: parsed.flatMap((message) => message.lines ?? [])});
      for (const message of parsed) { if (message.end || message.refused) { take({end: message.end, refused: message.refused}); } }
    }
    if (state.dataset.state === "on") { take({end: "Cut"}); }
  }
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Continue" : "Pause";
    if (!paused) { const texts = held; held = []; add(texts); }
    counts();
  });
  find.addEventListener("input", () => {
    wanted = find.value.trim().toLowerCase();
    for (const el of lines.children) { hit(el); }
    lines.classList.toggle("only", wanted !== "");
    counts();
  });
  follow().catch(() => take({end: "Cut"}));
})();
