(function () {
  var tools = document.getElementById("tools"), cards = [].slice.call(document.querySelectorAll(".card")), box, buttons;
  if (!tools) return;
  tools.hidden = false;
  box = tools.querySelector("input");
  buttons = [].slice.call(tools.querySelectorAll("button"));
  function show() {
    var on = buttons.filter(function (b) { return b.getAttribute("aria-pressed") === "true"; }).map(function (b) { return b.value; });
    var text = box.value.toLowerCase();
    cards.forEach(function (c) {
      c.hidden = (on.length > 0 && on.indexOf(c.dataset.severity) < 0) || (text !== "" && c.textContent.toLowerCase().indexOf(text) < 0);
    });
  }
  buttons.forEach(function (b) {
    b.onclick = function () { b.setAttribute("aria-pressed", b.getAttribute("aria-pressed") !== "true"); show(); };
  });
  box.oninput = show;
})();
