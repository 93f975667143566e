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

  // On a phone, the navigation scrolls: the page's own entry is in sight.
  const menu = document.querySelector(".top nav"), here = menu?.querySelector("[aria-current]");
  if (here) menu.scrollLeft = here.offsetLeft - menu.offsetLeft - (menu.clientWidth - here.offsetWidth) / 2;

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

  // Charts: a line at the pointer with the values there; dragging chooses a time for the address.
  const runs = (box) => {
    const found = [];
    let x = 0, y = 0;
    for (const [, step, text] of (box.querySelector(".area")?.getAttribute("d") || "").matchAll(/([Mhv])([-\d ]+)/g)) {
      const numbers = text.trim().split(" ").map(Number);
      if (step === "M") [x, y] = numbers;
      else if (step === "v") y += numbers[0];
      else { found.push([x, x + numbers[0], y]); x += numbers[0]; }
    }
    return found;
  };
  const zone = document.body.dataset.zone;
  const clock = (seconds) => new Date(seconds * 1000).toLocaleString(undefined, { timeZone: zone, month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const clear = () => each(document, ".cross", (one) => one.remove());
  const share = (box, event) => {
    const place = box.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - place.left) / place.width));
  };
  const time = (box, at) => +box.dataset.from + at * (box.dataset.to - box.dataset.from);
  let drag = null;
  document.addEventListener("pointermove", (event) => {
    const under = drag ? drag.box : event.target.closest?.(".chartbox");
    clear();
    if (!under) return;
    const at = share(under, event);
    each(under.closest("section"), ".chartbox", (box) => {
      const run = runs(box).find(([from, to]) => from <= at * 500 && at * 500 < to);
      const value = run ? Number(((100 - run[2]) / 100 * box.dataset.most).toPrecision(3)) + box.dataset.unit : "not measured";
      const line = document.createElement("div"), text = document.createElement("span");
      line.className = at > 0.6 ? "cross left" : "cross";
      line.style.left = at * 100 + "%";
      text.textContent = box === under ? value + ", " + clock(time(box, at)) : value;
      line.append(text);
      box.append(line);
    });
    if (drag) {
      drag.band.style.left = Math.min(drag.at, at) * 100 + "%";
      drag.band.style.width = Math.abs(drag.at - at) * 100 + "%";
    }
  });
  document.addEventListener("pointerdown", (event) => {
    const box = event.target.closest?.(".chartbox");
    if (!box || event.button !== 0 || event.pointerType === "touch") return;
    event.preventDefault();
    const band = document.createElement("div");
    band.className = "band";
    box.append(band);
    drag = { box, band, at: share(box, event) };
  });
  document.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { box, band, at } = drag, ends = [at, share(box, event)].sort((a, b) => a - b);
    drag = null;
    band.remove();
    const [from, to] = ends.map((one) => Math.round(time(box, one)));
    if (ends[1] - ends[0] < 0.01 || to - from < 60) return;
    const address = new URL(location.href);
    address.searchParams.delete("range");
    address.searchParams.set("from", from);
    address.searchParams.set("to", to);
    location.assign(address);
  });

  // Live sections. The server sends the version of each section; a changed one is fetched and replaced.
  const address = document.body.dataset.live;
  if (!address || !window.EventSource) return;
  const stale = new Set();
  let source = null, fetching = false;

  const busy = (section) => {
    const focus = document.activeElement;
    if (drag && section.contains(drag.box)) return true;
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
    // Refused: no place for another stream. The page is fetched, and the stream tried again, each minute.
    source.onerror = () => {
      if (source?.readyState !== EventSource.CLOSED) return;
      setTimeout(() => {
        source = null;
        document.querySelectorAll("[data-live][id]").forEach((one) => stale.add(one.id));
        renew();
        look();
      }, 60000);
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
