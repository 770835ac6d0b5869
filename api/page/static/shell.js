// The frame: the keys, the theme switch, the width of the navigation, and the menus.
"use strict";
(() => {
  const root = document.documentElement;
  const keep = (key, value) => { try { localStorage.setItem(key, value); } catch { /* not kept */ } };
  const typing = (el) => el.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(el.tagName);

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-do]");
    if (button?.dataset.do === "theme") {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      keep("argosy-theme", root.dataset.theme);
    }
    if (button?.dataset.do === "nav") {
      const narrow = root.dataset.nav !== "narrow";
      if (narrow) { root.dataset.nav = "narrow"; } else { delete root.dataset.nav; }
      button.setAttribute("aria-expanded", String(!narrow));
      keep("argosy-nav", narrow ? "narrow" : "wide");
    }
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (!menu.contains(event.target)) { menu.open = false; }
    }
  });

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      for (const menu of document.querySelectorAll("details.menu[open]")) { menu.open = false; }
    }
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) { return; }
    const find = document.getElementById("q");
    if (find) { event.preventDefault(); find.focus(); find.select(); }
  });
})();
