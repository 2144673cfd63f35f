"use strict";
/* News from the server as events that htmx waits for, later where somebody reads or is at the keyboard, the age of what is shown, and the token of this tab. */
(() => {
  const light = document.getElementById("light");
  const say = (state, text) => { if (light) { light.dataset.state = state; light.title = text; light.lastElementChild.textContent = text; } };
  const busy = () => {
    const live = document.getElementById("live");
    return document.hidden || (live && live.contains(document.activeElement)) || String(window.getSelection()) !== "";
  };
  const missed = new Set();
  const show = name => { if (busy()) { missed.add(name); } else { htmx.trigger(document.body, name); } };
  const catchUp = () => setTimeout(() => {
    for (const name of [...missed]) { missed.delete(name); show(name); }
  });
  for (const end of ["focusout", "selectionchange", "visibilitychange"]) { document.addEventListener(end, catchUp); }
  document.addEventListener("htmx:beforeSwap", event => {  // somebody may have come to it while the answer was on its way
    if (event.detail.target.id === "live" && busy()) { event.detail.shouldSwap = false; missed.add("audit"); }
  });
  const source = new EventSource("/events");
  source.onopen = () => say("on", "live");
  source.onerror = () => say("off", "not connected");
  for (const name of ["cluster", "audit"]) {
    source.addEventListener(name, () => show(name));
  }
  const age = () => {
    for (const one of document.querySelectorAll("[data-since]")) {
      const seconds = Math.max(0, Math.round((Date.now() - Number(one.dataset.since)) / 1000));
      one.textContent = seconds < 120 ? `${seconds} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
    }
  };
  setInterval(age, 1000);
  const kept = sessionStorage.getItem("token");
  for (const field of document.querySelectorAll("input[name=token]")) {
    if (kept) { field.value = kept; }
    field.form.addEventListener("submit", () => sessionStorage.setItem("token", field.value));
  }
})();
