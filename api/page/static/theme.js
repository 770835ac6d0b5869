// Applies the kept theme and the kept width of the navigation before the first paint.
"use strict";
(() => {
  const root = document.documentElement;
  try {
    const theme = localStorage.getItem("argosy-theme");
    if (theme === "dark" || theme === "light") { root.dataset.theme = theme; }
    if (localStorage.getItem("argosy-nav") === "narrow") { root.dataset.nav = "narrow"; }
  } catch { /* a browser that keeps nothing: the system's theme */ }
})();
