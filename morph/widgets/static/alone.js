// The start of a page that holds one widget and nothing else.

showOnPage(widget, document.getElementById("figure"), document.getElementById("state"));
if (window.frameElement) { // inside a notebook page: as tall as the figure
  new ResizeObserver(() => { window.frameElement.style.height = `${document.documentElement.offsetHeight + 4}px`; }).observe(document.body);
}
