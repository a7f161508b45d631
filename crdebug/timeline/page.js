"use strict";
// Draws what is visible of the history. Places to the right are columns, see columns.py: a call in column c
// is drawn around 2c-1. Clocks are half ticks of one rank, and become places by `at`.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("picture"), tip = document.getElementById("tip");
  const pen = canvas.getContext("2d");
  const LEFT = 64, TOP = 58, BOTTOM = 26;
  const name = (n) => data.names[n];
  const style = getComputedStyle(document.documentElement);
  const colour = (what) => style.getPropertyValue("--" + what).trim();
  const GROUPS = { "send": "send", "posted send": "send", "receive": "receive", "posted receive": "receive",
    "partitions ready": "send", "probe": "receive", "send and receive": "both",
    "posted send and receive": "both", "collective": "all", "posted collective": "all",
    "communicator": "all", "completion": "wait", "no answer": "wait" };
  const KEYS = [["send", "send"], ["receive", "receive"], ["both", "send and receive"], ["all", "collective"],
    ["wait", "wait, test"], ["other", "other calls"], ["here", "here"], ["checkpoint", "checkpoint"],
    ["mark", "mark"], ["branch", "branch left"]];
  const group = (call) => GROUPS[name(call[4])] || "other";

  const keys = document.getElementById("keys");
  for (const [what, words] of KEYS) {
    const key = document.createElement("span"), box = document.createElement("i");
    key.className = "key"; box.style.background = colour(what);
    key.append(box, words + "\u2002"); keys.append(key);
  }
  document.getElementById("left").textContent =
    data.leftOut.length ? "Not shown: " + data.leftOut.join("; ") + "." : "";
  document.getElementById("branches").textContent = data.branches.map((b) =>
    b[1] ? `${b[0]} (left ${b[1]}${b[2] ? ", " + b[2] : ""})` : b[0]).join(" \u00b7 ");

  let first = 0, last = 0;
  for (const calls of data.calls) if (calls.length) {
    const end = calls[calls.length - 1];
    last = Math.max(last, 2 * end[9]);
  }
  last = Math.max(last, first + 2);
  let from = first, to = last, width = 0, height = 0;
  const SPAN_LEAST = 4;

  const x = (place) => LEFT + (place - from) / (to - from) * (width - LEFT - 12);
  const placeAt = (px) => from + (px - LEFT) / (width - LEFT - 12) * (to - from);
  const rowHeight = () => Math.min((height - TOP - BOTTOM) / Math.max(data.ranks, 1), 90);
  const y = (rank) => TOP + rowHeight() * (rank + 0.5);
  const half = () => Math.max(Math.min(rowHeight() * 0.18, 9), 2);

  // index of the first call that ends at or after a clock
  function firstCall(calls, clock) {
    let low = 0, high = calls.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (2 * (calls[middle][0] + calls[middle][1] - 1) < clock) low = middle + 1; else high = middle;
    }
    return low;
  }

  // index of the first call whose column ends at or after a place
  function firstAt(calls, place) {
    let low = 0, high = calls.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (2 * calls[middle][9] < place) low = middle + 1; else high = middle;
    }
    return low;
  }
  // the place of a rank's clock: inside of a call, behind the call before, or beyond what is shown
  function at(rank, clock) {
    const calls = data.calls[rank], n = firstCall(calls, clock);
    if (n === calls.length) {
      if (!n) return clock;
      const end = calls[n - 1];
      return 2 * end[9] + Math.min(clock - 2 * (end[0] + end[1] - 1), 1);
    }
    const call = calls[n], start = 2 * call[0] - 2;
    if (clock > start) return 2 * call[9] - 2 + (clock - start) / call[1];
    return n ? 2 * calls[n - 1][9] : 2 * call[9] - 2 - Math.min(start - clock, 1);
  }
  const middle = (rank, tick) => at(rank, 2 * tick - 1);
  for (const m of data.messages) m.push(middle(m[0], m[1]), m[4] === null ? null : middle(m[2], m[4]));
  for (const c of data.collectives) for (const p of c[3]) p.push(middle(p[0], p[1]));

  function grid() {
    pen.fillStyle = colour("faint"); pen.strokeStyle = colour("line"); pen.lineWidth = 1;
    pen.textAlign = "center"; pen.textBaseline = "top";
    // the scale: ticks of the rank that is looked at, where it has a call
    const calls = data.calls[data.focus], apart = 90 / (width - LEFT) * (to - from);
    let free = -Infinity;
    for (let n = firstAt(calls, from); n < calls.length; n++) {
      const place = 2 * calls[n][9] - 1;
      if (place > to) break;
      if (place < free) { n = Math.max(firstAt(calls, free) - 1, n); continue; }
      const px = Math.round(x(place)) + 0.5;
      pen.beginPath(); pen.moveTo(px, TOP - 6); pen.lineTo(px, height - BOTTOM); pen.stroke();
      pen.fillText(calls[n][0], px, height - BOTTOM + 5);
      free = place + apart;
    }
    pen.textAlign = "right"; pen.textBaseline = "middle"; pen.fillStyle = colour("text");
    for (let rank = 0; rank < data.ranks; rank++) pen.fillText("rank " + rank, LEFT - 10, y(rank));
  }

  function ranks() {
    const thick = half();
    for (let rank = 0; rank < data.ranks; rank++) {
      const now = data.here ? data.here[rank] : data.ends[rank];
      for (const [a, b, what] of [[0, now, "own"], [now, data.ends[rank], "future"]]) {
        const left = Math.max(x(at(rank, a)), LEFT), right = Math.min(x(at(rank, b)), width);
        if (right > left) { pen.fillStyle = colour(what); pen.fillRect(left, y(rank) - 1, right - left, 2); }
      }
      const calls = data.calls[rank];
      let painted = -1;
      for (let n = firstAt(calls, from); n < calls.length; n++) {
        const call = calls[n], start = 2 * call[9] - 1.5;
        if (start > to) break;
        const left = Math.max(x(start), LEFT), right = x(2 * call[9] - 0.5);
        if (right <= painted) continue;  // less than a pixel, and there is one already
        const wide = Math.max(right - left, 1);
        pen.fillStyle = colour(group(call)); pen.globalAlpha = 2 * call[0] - 1 > now ? 0.45 : 1;
        pen.fillRect(left, y(rank) - thick, wide, 2 * thick);
        painted = left + wide - 0.5;
        if (wide > 70) {
          pen.fillStyle = colour("back"); pen.textAlign = "left"; pen.globalAlpha = 1;
          pen.fillText(name(call[2]).replace("MPI_", ""), left + 4, y(rank));
        }
      }
      pen.globalAlpha = 1;
    }
  }

  const MOST = 6000;  // lines at once: beyond, every n-th is drawn, and that is said
  let thinned = [];
  function sparse(what, items) {
    if (items.length <= MOST) return items;
    const step = Math.ceil(items.length / MOST);
    thinned.push(`1 in ${step} of ${items.length} ${what} in view is drawn`);
    return items.filter((_, n) => n % step === 0);
  }
  let drawn = [];
  function messages() {
    const thick = half();
    drawn = sparse("messages", data.messages.filter((m) => {
      const a = m[7], b = m[8] === null ? a : m[8];
      return Math.max(a, b) >= from && Math.min(a, b) <= to;
    }));
    pen.lineWidth = 1;
    for (const m of drawn) {
      const down = m[2] > m[0] ? 1 : m[2] < m[0] ? -1 : -1;
      const x1 = x(m[7]), y1 = y(m[0]) + down * thick;
      pen.strokeStyle = pen.fillStyle = colour(m[4] === null ? "here" : "send");
      pen.globalAlpha = drawn.length > 800 ? 0.35 : 0.8;
      if (m[4] === null) {  // nobody has received it
        pen.setLineDash([2, 2]); pen.beginPath(); pen.moveTo(x1, y1);
        pen.lineTo(x1 + 8, y1 + (m[2] === m[0] ? -1 : down) * rowHeight() * 0.3); pen.stroke(); pen.setLineDash([]);
        continue;
      }
      const x2 = x(m[8]), y2 = y(m[2]) - (m[2] === m[0] ? 1 : down) * thick;
      pen.beginPath(); pen.moveTo(x1, y1);
      if (m[2] === m[0]) pen.quadraticCurveTo((x1 + x2) / 2, y1 - rowHeight() * 0.4, x2, y2);
      else pen.lineTo(x2, y2);
      pen.stroke();
      if (drawn.length <= 2000) {
        const turn = m[2] === m[0] ? Math.PI / 4 : Math.atan2(y2 - y1, x2 - x1);
        pen.beginPath(); pen.moveTo(x2, y2);
        pen.lineTo(x2 - 7 * Math.cos(turn - 0.4), y2 - 7 * Math.sin(turn - 0.4));
        pen.lineTo(x2 - 7 * Math.cos(turn + 0.4), y2 - 7 * Math.sin(turn + 0.4));
        pen.fill();
      }
    }
    pen.globalAlpha = 1;
  }

  function collectives() {
    pen.strokeStyle = colour("all");
    const shown = sparse("collectives", data.collectives.filter((c) =>
      c[3].some((p) => p[2] >= from && p[2] <= to)));
    pen.lineWidth = shown.length > 300 ? 1 : 4; pen.globalAlpha = shown.length > 300 ? 0.25 : 0.4;
    for (const c of shown) {
      pen.beginPath();
      c[3].forEach((p, n) => n ? pen.lineTo(x(p[2]), y(p[0])) : pen.moveTo(x(p[2]), y(p[0])));
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  // a line through a position of the whole job
  function cut(clocks, what, label, level) {
    pen.strokeStyle = pen.fillStyle = colour(what); pen.lineWidth = what === "here" ? 2 : 1.5;
    pen.setLineDash(what === "here" ? [] : [5, 3]); pen.beginPath();
    const reach = rowHeight() / 2;
    clocks.forEach((clock, rank) => {
      const px = x(at(rank, clock));
      pen.lineTo(px, y(rank) - reach); pen.lineTo(px, y(rank) + reach);
    });
    pen.stroke(); pen.setLineDash([]);
    const top = x(at(0, clocks[0]));
    if (top >= LEFT && top <= width) {
      pen.textAlign = "left"; pen.textBaseline = "bottom";
      pen.fillText(label, top + 3, TOP - 2 - 12 * level);
    }
  }

  function draw() {
    const scale = window.devicePixelRatio || 1;
    width = canvas.clientWidth; height = canvas.clientHeight;
    canvas.width = width * scale; canvas.height = height * scale;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.font = "12px system-ui, sans-serif"; pen.clearRect(0, 0, width, height);
    thinned = [];
    grid();
    pen.save(); pen.beginPath(); pen.rect(LEFT - 1, 0, width, height); pen.clip();
    collectives(); messages(); ranks();
    for (const b of data.branches) if (b.length > 3) cut(b.slice(3), "branch", b[0], 3);
    for (const c of data.checkpoints) cut(c.slice(1), "checkpoint", c[0], 0);
    for (const m of data.marks) cut(m.slice(1), "mark", m[0], 1);
    if (data.here) cut(data.here, "here", "here", 2);
    pen.restore();
    const shown = `the scale is in ticks of rank ${data.focus}`;
    document.getElementById("status").textContent = [shown, ...thinned].join("; ");
  }

  // ---- what is under the pointer ----------------------------------------------------------------

  const line = (rank, tick) => {
    const calls = data.calls[rank], call = calls[firstCall(calls, 2 * tick - 1)];
    return call && call[0] <= tick && name(call[3]) ? ", " + name(call[3]) : "";
  };
  const aboutMessage = (m) => `message from rank ${m[0]} to rank ${m[2]}: tag ${m[5]}, ${m[6]} bytes\n` +
    `sent: tick ${m[1]}${line(m[0], m[1])}\n` + (m[3] === null ? "no receive is posted" :
      m[4] === null ? `posted: tick ${m[3]}, not complete` : `received: tick ${m[4]}${line(m[2], m[4])}`);

  function callAt(px, py) {
    const rank = Math.round((py - TOP) / rowHeight() - 0.5);
    if (rank < 0 || rank >= data.ranks || Math.abs(py - y(rank)) > half() + 3) return null;
    const calls = data.calls[rank], call = calls[firstAt(calls, placeAt(px) - 0.25)];
    return call && x(2 * call[9] - 1.5) <= px + 2 ? [rank, call] : null;
  }
  function aboutCall(rank, call) {
    const told = [`rank ${rank}, tick ${call[0]}: ${name(call[2])}`];
    if (call[1] > 1) told[0] += ` (${call[1]} times, no)`;
    if (name(call[3])) told.push(name(call[3]));
    const peers = Array.isArray(call[5]) ? `to ${call[5][0]}, from ${call[5][1]}` :
      call[5] === null ? "" : (group(call) === "all" ? "root " : "peer ") + call[5];
    const rest = [peers, call[6] === null ? "" : "tag " + call[6], call[7] ? call[7] + " bytes" : "",
      name(call[8]) ? "communicator " + name(call[8]) : ""].filter(Boolean);
    if (rest.length) told.push(rest.join(", "));
    for (const m of data.messages)
      if ((m[0] === rank && m[1] === call[0]) || (m[2] === rank && m[4] === call[0])) told.push(aboutMessage(m));
    return told.slice(0, 8).join("\n");
  }
  function messageAt(px, py) {
    let best = null, nearest = 5;
    for (const m of drawn) if (m[4] !== null && m[0] !== m[2]) {
      const ax = x(m[7]), ay = y(m[0]), dx = x(m[8]) - ax, dy = y(m[2]) - ay;
      const t = Math.min(Math.max(((px - ax) * dx + (py - ay) * dy) / (dx * dx + dy * dy), 0), 1);
      const distance = Math.hypot(px - ax - t * dx, py - ay - t * dy);
      if (distance < nearest) { nearest = distance; best = m; }
    }
    return best;
  }
  function about(px, py) {
    const call = callAt(px, py);
    if (call) return aboutCall(...call);
    const m = messageAt(px, py);
    return m ? aboutMessage(m) : "";
  }

  // ---- moving -------------------------------------------------------------------------------------

  function show(a, b) {
    const most = (last - first) * 1.1 + 8, span = Math.min(Math.max(b - a, SPAN_LEAST), most);
    const centre = Math.min(Math.max((a + b) / 2, first), last);
    from = centre - span / 2; to = centre + span / 2;
    requestAnimationFrame(draw);
  }
  function zoom(factor, px) {
    const fixed = px === undefined ? (from + to) / 2 : placeAt(px);
    show(fixed - (fixed - from) * factor, fixed + (to - fixed) * factor);
  }
  const showAll = () => show(first - (last - first) * 0.02, last + (last - first) * 0.02);
  function showHere() {
    const place = data.here ? at(data.focus, data.here[data.focus]) : last;
    show(place - 40, place + 40);
  }
  const does = { all: showAll, here: showHere, in: () => zoom(0.5), out: () => zoom(2) };
  for (const id in does) document.getElementById(id).onclick = does[id];
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = event.deltaX / width * (to - from);
      show(from + by, to + by);
    } else zoom(Math.pow(1.0015, event.deltaY), event.offsetX);
  }, { passive: false });
  let grabbed = null;
  canvas.addEventListener("pointerdown", (event) => {
    grabbed = [event.offsetX, from, to]; canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", () => { grabbed = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (grabbed) {
      const by = (grabbed[0] - event.offsetX) / (width - LEFT - 12) * (grabbed[2] - grabbed[1]);
      show(grabbed[1] + by, grabbed[2] + by);
      return;
    }
    const text = about(event.offsetX, event.offsetY);
    tip.textContent = text; tip.style.display = text ? "block" : "none";
    tip.style.left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 6) + "px";
    tip.style.top = Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 6) + "px";
  });
  canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
  window.addEventListener("keydown", (event) => {
    const by = (to - from) * 0.2;
    const keyed = { "+": does.in, "-": does.out, "0": showAll, "h": showHere,
      "ArrowLeft": () => show(from - by, to - by), "ArrowRight": () => show(from + by, to + by) }[event.key];
    if (keyed) keyed();
  });
  window.addEventListener("resize", draw);
  window.timeline = { data, show, about, x, y, at, view: () => [from, to, thinned], draw };
  showAll();
  draw();
  document.body.dataset.ready = "yes";  // for tests: all of it has run
})();
