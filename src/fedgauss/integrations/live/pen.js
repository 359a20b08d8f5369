"use strict";
// Lines, words and places on a canvas, in the page's units and colours.

// A pen on a canvas that is as sharp as the screen, and the colours of the palette by their roles.
function penOn(canvas) {
  const box = canvas.getBoundingClientRect(), scale = devicePixelRatio || 1;
  canvas.width = Math.round(box.width * scale);
  canvas.height = Math.round(box.height * scale);
  const pen = canvas.getContext("2d"), css = getComputedStyle(document.documentElement);
  pen.scale(scale, scale);
  pen.font = `14px ${getComputedStyle(document.body).fontFamily}`;
  return { pen, width: box.width, height: box.height, colour: (role) => css.getPropertyValue("--" + role).trim() };
}

function line(at, x1, y1, x2, y2, role, width, dash = []) {
  at.pen.strokeStyle = at.colour(role);
  at.pen.lineWidth = width;
  at.pen.setLineDash(dash);
  at.pen.beginPath();
  at.pen.moveTo(x1, y1);
  at.pen.lineTo(x2, y2);
  at.pen.stroke();
}

function say(at, text, x, y, role, align) {
  at.pen.fillStyle = at.colour(role);
  at.pen.textAlign = align;
  at.pen.fillText(text, x, y);
}

function ticks(from, to, wanted, least) {
  const raw = Math.max((to - from) / wanted, least), power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((m) => m * power >= raw) * power;
  const found = [];
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) found.push(Number(t.toPrecision(12)));
  return found;
}

// Points of the curve: at most two a pixel, the lowest and the highest there, in the order of steps.
function thinned(steps, values, place) {
  const points = [];
  let column = null, low = 0, high = 0;
  const close = () => {
    if (column !== null) points.push(...(low === high ? [low] : [Math.min(low, high), Math.max(low, high)]));
  };
  for (let i = 0; i < steps.length; i++) {
    if (values[i] === null) continue;
    const here = Math.round(place(steps[i]));
    if (here !== column) {
      close();
      column = here;
      low = high = i;
    } else if (values[i] < values[low]) low = i;
    else if (values[i] > values[high]) high = i;
  }
  close();
  return points;
}
