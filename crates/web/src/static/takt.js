// The pages work without this script. It renews live sections, and adds small comforts.
"use strict";
(() => {
  const each = (root, selector, act) => root.querySelectorAll(selector).forEach(act);

  // Times: the reader's own zone on hover.
  const comforts = (root) => {
    each(root, "time", (time) => {
      const at = new Date(time.dateTime);
      if (!isNaN(at)) time.title = at.toLocaleString() + " (your time)";
    });
    each(root, "button[data-copy]", (button) => { button.hidden = !navigator.clipboard; });
  };
  comforts(document);

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(button.dataset.copy);
    const name = button.textContent;
    button.textContent = "copied";
    setTimeout(() => { button.textContent = name; }, 1500);
  });

  document.addEventListener("keydown", (event) => {
    const search = document.querySelector(".search input");
    const typing = event.target.closest("input,textarea,select,[contenteditable]");
    if (event.key === "/" && search && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      search.focus();
    }
  });

  // Live sections. The server sends the version of each section; a changed one is fetched and replaced.
  const address = document.body.dataset.live;
  if (!address || !window.EventSource) return;
  const stale = new Set();
  let source = null, fetching = false;

  const busy = (section) => {
    const focus = document.activeElement;
    if (focus && section.contains(focus) && focus.matches("input,textarea,select,summary")) return true;
    const selection = getSelection();
    if (!selection.isCollapsed && section.contains(selection.anchorNode)) return true;
    return section.querySelector("details[open],dialog[open]") !== null;
  };

  const replace = (old, fresh) => {
    const focus = document.activeElement;
    const href = focus && old.contains(focus) ? focus.getAttribute("href") : null;
    const scrolled = [...old.querySelectorAll(".wide")].map((one) => one.scrollLeft);
    old.replaceWith(fresh);
    fresh.querySelectorAll(".wide").forEach((one, at) => { one.scrollLeft = scrolled[at] || 0; });
    if (href) fresh.querySelector('a[href="' + CSS.escape(href) + '"]')?.focus({ preventScroll: true });
    comforts(fresh);
  };

  const renew = async () => {
    if (fetching || document.hidden || !stale.size) return;
    fetching = true;
    try {
      const reply = await fetch(location.href, { cache: "no-cache" });
      if (!reply.ok) return;
      const page = new DOMParser().parseFromString(await reply.text(), "text/html");
      for (const id of [...stale]) {
        const old = document.getElementById(id), fresh = page.getElementById(id);
        if (!old || !fresh) { location.reload(); return; }
        if (busy(old)) continue;
        replace(old, document.adoptNode(fresh));
        stale.delete(id);
      }
      const clock = document.getElementById("clock"), now = page.getElementById("clock");
      if (clock && now) { clock.replaceWith(document.adoptNode(now)); comforts(now); }
      document.title = page.title;
    } catch { /* The server is away; the stream connects again by itself. */ }
    finally { fetching = false; }
  };

  const follow = () => {
    source = new EventSource(address);
    source.onmessage = (message) => {
      const versions = JSON.parse(message.data);
      for (const [id, version] of Object.entries(versions)) {
        const section = document.getElementById(id);
        if (!section || section.dataset.live !== version) stale.add(id);
        else stale.delete(id);
      }
      renew();
    };
  };
  const look = () => {
    if (document.hidden) { source?.close(); source = null; }
    else if (!source) follow();
  };
  document.addEventListener("visibilitychange", look);
  addEventListener("pagehide", () => { source?.close(); source = null; });
  addEventListener("pageshow", look);
  look();
})();
