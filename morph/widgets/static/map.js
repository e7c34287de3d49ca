// A grid of numbers as pixels: colours by role, from the background over the role's colour towards the ink.

function rgbOf(root, variable) {
  const hex = getComputedStyle(root).getPropertyValue(variable).trim();
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

const between = (a, b, share) => a.map((value, i) => Math.round(value + (b[i] - value) * share));

// A function from 0..1 to a colour. The role's colour stands at 0.7; what is lighter than it goes on towards the ink.
function ramp(root, role) {
  const [ground, colour, ink] = ["--lm-background", `--lm-${role}`, "--lm-ink"].map((name) => rgbOf(root, name));
  return (share) => share < 0.7 ? between(ground, colour, share / 0.7) : between(colour, ink, (share - 0.7) / 0.45);
}

// Paints rows x columns into a canvas, a pixel each; `colourAt(row, column)` gives three numbers, or null for nothing.
function paint(canvas, rows, columns, colourAt) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  for (let row = 0, at = 0; row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1, at += 4) {
      const colour = colourAt(row, column);
      if (colour) image.data.set([...colour, 255], at);
    }
  }
  context.putImageData(image, 0, 0);
}

// Row and column under a pointer.
function cellAt(event, canvas, rows, columns) {
  const box = canvas.getBoundingClientRect();
  return [
    clamp(Math.floor(((event.clientY - box.top) / box.height) * rows), 0, rows - 1),
    clamp(Math.floor(((event.clientX - box.left) / box.width) * columns), 0, columns - 1),
  ];
}

// A canvas with a cursor over it, and words of tokens along its edges.
function gridMap(rows, columns, onCell) {
  const canvas = make("canvas", "lm-map");
  const cursor = make("div", "lm-cursor");
  const holder = make("div", "lm-mapholder", {}, canvas, cursor);
  holder.style.aspectRatio = `${columns} / ${rows}`;
  canvas.addEventListener("pointermove", (event) => onCell(...cellAt(event, canvas, rows, columns), false));
  canvas.addEventListener("click", (event) => onCell(...cellAt(event, canvas, rows, columns), true));
  const point = (row, column) => {
    cursor.style.cssText = `left:${(100 * column) / columns}%;top:${(100 * row) / rows}%;width:${100 / columns}%;height:${100 / rows}%`;
  };
  return { holder, canvas, point };
}
