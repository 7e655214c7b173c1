// Filters a table by words and by attributes of its rows; the choice is kept in the address, so that it can be sent to others.
// SPDX-License-Identifier: BSL-1.0
"use strict";

function filterTable(form) {
  const rows = [...document.querySelectorAll(`#${form.dataset.table} tbody tr`)];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const fields = [...form.elements].filter((field) => field.name && field.tagName !== "OUTPUT");
  const output = form.querySelector("output");

  function apply() {
    const words = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = fields.filter((field) => field.tagName === "SELECT" && field.value);
    let shown = 0;
    rows.forEach((row, number) => {
      const fits = words.every((word) => texts[number].includes(word)) && wanted.every((field) => row.dataset[field.name] === field.value);
      row.hidden = !fits;
      shown += fits;
    });
    output.value = shown === 1 ? "1 rule" : `${shown} rules`;
  }

  function remember() {
    const query = new URLSearchParams(fields.filter((field) => field.value).map((field) => [field.name, field.value]));
    history.replaceState(null, "", `${location.pathname}${query.size || String(query) ? `?${query}` : ""}${location.hash}`);
  }

  const query = new URLSearchParams(location.search);
  for (const field of fields) if (query.has(field.name)) field.value = query.get(field.name);
  form.addEventListener("input", () => { apply(); remember(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  if ([...query.keys()].length) apply();
}

document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("form.filter").forEach(filterTable));
