// Runs before anything is painted: names the theme, so that the other one never flashes.
(function () {
  var theme = null;
  try {
    theme = JSON.parse(localStorage.getItem("swiftlet.prefs") || "{}").theme;
  } catch (e) {
    // Storage may be forbidden; then the system's theme is used.
  }
  if (theme !== "light" && theme !== "dark") theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.dataset.theme = theme;
})();
