// Draws the list of an Application's resources as a tree that opens and folds. The list stays: it is
// the source of the picture, and the alternative to it.
"use strict";
(() => {
  const NS = "http://www.w3.org/2000/svg", W = 212, H = 46, GAP = 12, STEP = W + 42;
  const many = 60; // resources from which healthy branches begin folded
  const batch = 40; // children that are shown at once; a node shows the next ones
  const opened = new Map(), shown = new Map(); // by a node's key: open or folded, children shown
  let asList = false, wanted = "", active = "";

  function make(name, attributes, parent) {
    const el = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) { el.setAttribute(key, value); }
    parent?.append(el);
    return el;
  }
  function cut(text, length) { return text.length > length ? text.slice(0, length - 1) + "…" : text; }
  function age(at) {
    if (!at) { return ""; }
    const s = Math.max(0, Date.now() / 1000 - at);
    return s < 120 ? Math.floor(s) + "s" : s < 7200 ? Math.floor(s / 60) + "m" : s < 172800 ? Math.floor(s / 3600) + "h" : Math.floor(s / 86400) + "d";
  }
  function kidsOf(li) { return [...(li.querySelector(":scope > details > ul") ?? {children: []}).children]; }
  function read(li, key) {
    const d = li.dataset, own = key + "/" + d.kind + ":" + d.name;
    const node = {key: own, kind: d.kind, name: d.name, tone: d.tone, health: d.health, sync: d.sync, line: d.line, href: d.href, at: Number(d.at)};
    node.kids = kidsOf(li).map((kid) => read(kid, own));
    node.bad = node.tone === "bad" || node.kids.some((kid) => kid.bad);
    node.size = 1 + node.kids.reduce((sum, kid) => sum + kid.size, 0);
    return node;
  }
  function model(list) {
    const root = {key: "", kind: "Application", name: list.dataset.name, tone: list.dataset.tone, health: list.dataset.health, line: "", href: "", kids: [...list.children].map((li) => read(li, ""))};
    root.size = 1 + root.kids.reduce((sum, kid) => sum + kid.size, 0);
    return root;
  }
  function isOpen(node, total) {
    if (opened.has(node.key)) { return opened.get(node.key); }
    return node.key === "" || total <= many || (node.bad && total <= 20 * many);
  }
  // visible returns the part of the tree that is drawn: the unhealthy first, a batch of children each.
  function visible(node, total) {
    const out = {node, children: []};
    if (!node.kids?.length || !isOpen(node, total)) { return out; }
    const sorted = [...node.kids].sort((a, b) => Number(b.bad) - Number(a.bad));
    const n = shown.get(node.key) ?? batch;
    out.children = sorted.slice(0, n).map((kid) => visible(kid, total));
    if (sorted.length > n) {
      out.children.push({node: {key: node.key + "/…", more: node.key, kind: "", name: (sorted.length - n) + " more", tone: "none", line: "show the next " + Math.min(batch, sorted.length - n), kids: []}, children: []});
    }
    return out;
  }
  function letters(kind) {
    const capitals = kind.replace(/[^A-Z]/g, "");
    return (capitals.length > 1 ? capitals : kind.slice(0, 3)).slice(0, 4).toUpperCase();
  }
  function mark(parent, tone) {
    const x = W - 16, y = 15; // beside the name, which is cut before it
    if (tone === "good") { make("circle", {class: "mark good", cx: x, cy: y, r: 5.5}, parent); }
    else if (tone === "busy") { make("rect", {class: "mark busy", x: x - 4.5, y: y - 4.5, width: 9, height: 9, transform: `rotate(45 ${x} ${y})`}, parent); }
    else if (tone === "bad") { make("path", {class: "mark bad", d: `M${x} ${y - 6.5}l7 12h-14z`}, parent); }
    else { make("circle", {class: "mark none", cx: x, cy: y, r: 4.5}, parent); }
  }
  function draw(panel) {
    const list = panel.querySelector("ul.tree"), picture = panel.querySelector(".picture");
    if (!list || !picture) { return; }
    panel.querySelector(".treetools").hidden = false;
    panel.querySelector("[data-tree=list]").setAttribute("aria-pressed", String(asList));
    list.hidden = !asList; picture.hidden = asList;
    if (asList) { return; }
    performance.mark("tree begins");
    const root = model(list), tree = d3.hierarchy(visible(root, root.size));
    d3.tree().nodeSize([H + GAP, STEP]).separation(() => 1)(tree);
    const nodes = tree.descendants();
    const top = Math.min(...nodes.map((n) => n.x)), bottom = Math.max(...nodes.map((n) => n.x)), depth = Math.max(...nodes.map((n) => n.y));
    const svg = make("svg", {width: depth + W + 64, height: bottom - top + H + 32, role: "tree", "aria-label": "Resources of " + root.name});
    const at = (n) => [16 + n.y, 16 + n.x - top];
    for (const link of tree.links()) {
      const [x1, y1] = at(link.source), [x2, y2] = at(link.target), middle = (x1 + W + x2) / 2;
      make("path", {class: "edge", d: `M${x1 + W} ${y1 + H / 2}C${middle} ${y1 + H / 2} ${middle} ${y2 + H / 2} ${x2} ${y2 + H / 2}`}, svg);
    }
    for (const n of nodes) { box(svg, n, at(n), root.size); }
    performance.measure("tree", "tree begins");
    const {scrollLeft, scrollTop} = picture, focused = picture.contains(document.activeElement);
    picture.replaceChildren(svg);
    picture.scrollLeft = scrollLeft; picture.scrollTop = scrollTop;
    const first = picture.querySelector(`[data-key="${CSS.escape(active)}"]`) ?? picture.querySelector("g.node");
    first?.setAttribute("tabindex", "0");
    if (focused) { first?.focus({preventScroll: true}); }
  }
  function box(svg, n, [x, y], total) {
    const node = n.data.node, words = [node.kind, node.line, age(node.at)].filter(Boolean).join(" · ");
    const shownName = cut(node.name, 17), shownWords = cut(words, 24);
    const hit = wanted && node.name.toLowerCase().includes(wanted);
    const g = make("g", {class: `node ${node.tone}${hit ? " found" : wanted ? " dim" : ""}`, transform: `translate(${x} ${y})`, role: "treeitem", tabindex: "-1", "data-key": node.key,
      "aria-level": String(n.depth + 1)}, svg);
    // the name for assistive technology, and the tooltip with what is cut off
    make("title", {}, g).textContent = [node.name, words, node.health, node.sync].filter(Boolean).join(", ");
    if (node.more !== undefined) { g.dataset.more = node.more; }
    if (node.href) { g.dataset.href = node.href; }
    make("rect", {class: "box", width: W, height: H, rx: 8}, g);
    if (node.kind) {
      make("rect", {class: "kindbox", x: 7, y: 9, width: 34, height: 28, rx: 6}, g);
      make("text", {class: "kindword", x: 24, y: 27, "aria-hidden": "true"}, g).textContent = letters(node.kind);
    }
    make("text", {x: 50, y: 20}, g).textContent = shownName;
    make("text", {class: "sub", x: 50, y: 36}, g).textContent = shownWords;
    if (node.more === undefined) { mark(g, node.tone); }
    if (node.kids?.length) {
      const open = isOpen(node, total);
      g.setAttribute("aria-expanded", String(open));
      const fold = make("g", {class: "fold", "aria-hidden": "true", transform: `translate(${W - 1} ${H / 2 - 9})`}, g);
      make("rect", {x: 0, y: 0, width: 26, height: 18, rx: 9}, fold);
      make("text", {x: 13, y: 13}, fold).textContent = open ? "−" : String(Math.min(node.size - 1, 999));
    }
  }
  const panelOf = (el) => el.closest("[data-part=panel]");
  function toggle(panel, g, open) {
    opened.set(g.dataset.key, open ?? g.getAttribute("aria-expanded") !== "true");
    active = g.dataset.key;
    draw(panel);
  }
  function press(panel, g) {
    if (g.dataset.more !== undefined) {
      shown.set(g.dataset.more, (shown.get(g.dataset.more) ?? batch) + batch);
      draw(panel);
    } else if (g.dataset.href) { location.href = g.dataset.href; } else { toggle(panel, g); }
  }
  document.addEventListener("click", (event) => {
    const g = event.target.closest?.(".picture g.node"), tool = event.target.closest?.("[data-tree]");
    if (g) {
      if (event.target.closest("g.fold")) { toggle(panelOf(g), g); } else { press(panelOf(g), g); }
    } else if (tool?.tagName === "BUTTON") {
      const panel = panelOf(tool), what = tool.dataset.tree, list = panel.querySelector("ul.tree");
      if (what === "list") { asList = !asList; }
      else {
        opened.clear();
        const walk = (node) => { if (node.kids.length) { opened.set(node.key, what === "open" || node.key === ""); node.kids.forEach(walk); } };
        walk(model(list));
        for (const details of list.querySelectorAll("details")) { details.open = what === "open"; }
      }
      draw(panel);
    }
  });
  document.addEventListener("input", (event) => {
    if (event.target.dataset?.tree === "find") { wanted = event.target.value.trim().toLowerCase(); draw(panelOf(event.target)); }
  });
  document.addEventListener("keydown", (event) => {
    const g = event.target.closest?.(".picture g.node");
    if (!g) { return; }
    const panel = panelOf(g), all = [...panel.querySelectorAll(".picture g.node")];
    const byPlace = [...all].sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top || a.getBoundingClientRect().left - b.getBoundingClientRect().left);
    const level = g.getAttribute("aria-level"), peers = byPlace.filter((other) => other.getAttribute("aria-level") === level);
    const go = (other) => {
      if (!other) { return; }
      g.setAttribute("tabindex", "-1"); other.setAttribute("tabindex", "0");
      active = other.dataset.key;
      other.focus(); other.scrollIntoView({block: "nearest", inline: "nearest"});
    };
    const parentKey = g.dataset.key.slice(0, g.dataset.key.lastIndexOf("/"));
    const actions = {
      ArrowDown: () => go(peers[peers.indexOf(g) + 1]), ArrowUp: () => go(peers[peers.indexOf(g) - 1]),
      ArrowRight: () => {
        if (g.getAttribute("aria-expanded") === "false") { toggle(panel, g, true); } else { go(byPlace.find((other) => other.dataset.key.startsWith(g.dataset.key + "/") && Number(other.getAttribute("aria-level")) === Number(level) + 1)); }
      },
      ArrowLeft: () => { if (g.getAttribute("aria-expanded") === "true") { toggle(panel, g, false); } else { go(all.find((other) => other.dataset.key === parentKey)); } },
      Home: () => go(byPlace[0]), End: () => go(byPlace.at(-1)), Enter: () => press(panel, g), " ": () => toggle(panel, g),
    };
    if (actions[event.key]) { event.preventDefault(); actions[event.key](); }
  });
  function start(within) { for (const panel of within.querySelectorAll("[data-part=panel]")) { draw(panel); } }
  document.addEventListener("argosy:changed", (event) => { if (event.target.dataset?.part === "panel") { draw(event.target); } });
  start(document);
})();
