"use strict";
// Charts, legends, zoom, sorting, filtering and explanations. No library but the chart runtime above.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const views = new Map();

  // --- charts -------------------------------------------------------------------------------------------
  async function draw(plot) {
    const chart = data.charts[plot.dataset.chart];
    const spec = structuredClone(chart.spec);
    if (plot.clientWidth < 520) {
      spec.config.axisQuantitative.tickCount = 5;
      Object.assign(spec.config.axis, { labelLimit: 170, labelFontSize: 10, titleFontSize: 11 });
    }
    const { view } = await vegaEmbed(plot, spec, {
      actions: false,
      renderer: "svg",
      ast: true,
      mode: "vega-lite",
      tooltip: { theme: "custom" },
    });
    views.set(plot.dataset.chart, view);
    if (chart.zoom) chart.whole = view.scale("x").domain();
    // The container carries the description; the drawing below it would repeat every mark to a screen reader.
    plot.setAttribute("role", "img");
    plot.querySelector("svg")?.setAttribute("aria-hidden", "true");
    plot.dataset.drawn = "true";
  }

  async function drawAll() {
    for (const plot of document.querySelectorAll(".plot")) {
      try {
        await draw(plot);
      } catch (error) {
        plot.textContent = "This chart could not be drawn; the tables hold its figures.";
        console.error(error);
      }
    }
    document.documentElement.dataset.drawn = "true";
  }

  document.addEventListener("click", (event) => {
    const chip = event.target.closest(".chip");
    if (chip) toggle(chip);
    const zoom = event.target.closest("[data-zoom]");
    if (zoom) move(zoom.dataset.chart, zoom.dataset.zoom);
    const sort = event.target.closest(".sort");
    if (sort) sortBy(sort.closest("th"));
  });

  function toggle(chip) {
    chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
    const off = chip.parentElement.querySelectorAll('.chip[aria-pressed="false"]');
    const hidden = Array.from(off, (each) => each.dataset.series);
    views.get(chip.dataset.chart)?.signal(data.hidden, hidden).runAsync();
  }

  function move(name, act) {
    const view = views.get(name);
    if (!view) return;
    const { zoom, whole } = data.charts[name];
    let [from, to] = view.scale("x").domain();
    const width = to - from;
    if (act === "in") [from, to] = [from + width / 4, to - width / 4];
    if (act === "out") [from, to] = [from - width / 2, to + width / 2];
    if (act === "left") [from, to] = [from - width / 3, to - width / 3];
    if (act === "right") [from, to] = [from + width / 3, to + width / 3];
    if (act === "all" || to - from > whole[1] - whole[0]) [from, to] = whole;
    view.signal(zoom, [from, to]).runAsync();
  }

  // --- tables -------------------------------------------------------------------------------------------
  function sortBy(head) {
    const table = head.closest("table");
    const column = head.cellIndex;
    const ascending = head.getAttribute("aria-sort") === "descending";
    for (const each of head.parentElement.children) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const body = table.tBodies[0];
    const rows = Array.from(body.rows, (row) => [key(row.cells[column]), row]);
    const sign = ascending ? 1 : -1;
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null); // not measured: last either way
      if (typeof a === "number" && typeof b === "number") return sign * (a - b);
      return sign * String(a).localeCompare(String(b), "en", { numeric: true });
    });
    body.append(...rows.map(([, row]) => row));
  }

  function key(cell) {
    const value = cell.dataset.sort;
    if (value === undefined) return cell.textContent.trim();
    return value === "" ? null : Number(value);
  }

  for (const input of document.querySelectorAll("[data-filter]")) {
    const table = document.querySelector(`#table-${input.dataset.filter} tbody`);
    const count = document.querySelector(`[data-count="${input.dataset.filter}"]`);
    const rows = Array.from(table.rows);
    const texts = rows.map((row) =>
      Array.from(row.cells, (cell) => `${cell.textContent} ${cell.dataset.tip ?? ""}`).join(" ").toLowerCase(),
    );
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, index) => {
        row.hidden = !words.every((word) => texts[index].includes(word));
        shown += !row.hidden;
      });
      count.textContent = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
    });
  }

  // --- explanations -------------------------------------------------------------------------------------
  const tip = document.getElementById("tip");

  let explained = null;

  function explain(target) {
    const text = target?.dataset.tip ?? data.terms[target?.dataset.term];
    explained = text ? target : null;
    tip.hidden = !explained;
    if (!explained) return;
    tip.textContent = text;
    const anchor = target.getBoundingClientRect();
    const box = tip.getBoundingClientRect();
    const left = Math.max(8, Math.min(anchor.left, innerWidth - box.width - 8));
    const below = anchor.bottom + 6;
    tip.style.left = `${left}px`;
    tip.style.top = `${below + box.height > innerHeight ? Math.max(8, anchor.top - box.height - 6) : below}px`;
    if (target.matches("a, button")) target.setAttribute("aria-describedby", "tip");
  }

  for (const name of ["pointerover", "focusin"]) {
    document.addEventListener(name, (event) => {
      const target = event.target.closest?.("[data-tip], [data-term]");
      explain(target);
    });
  }
  addEventListener("keydown", (event) => event.key === "Escape" && explain(null));
  addEventListener("scroll", () => explain(explained), { passive: true, capture: true });

  // --- paper --------------------------------------------------------------------------------------------
  const closed = [];
  addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details:not([open])")) {
      each.open = true;
      closed.push(each);
    }
  });
  addEventListener("afterprint", () => {
    for (const each of closed.splice(0)) each.open = false;
  });

  drawAll();
})();
