// What a chart or table shows, as a file of comma-separated values that is made in the page.

/** A button that saves the rows that `rowsOf` gives at that moment (the first one has the names). */
function csvButton(name, rowsOf) {
  return el("button", { type: "button", className: "csv", "aria-label": `Save ${name} as CSV`, title: "Save what is shown as CSV", onclick: () => {
    const file = URL.createObjectURL(new Blob([rowsOf().map((row) => row.map(cell).join(",") + "\r\n").join("")], { type: "text/csv" }));
    el("a", { href: file, download: `${name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "")}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(file), 1000);
  } }, "CSV");
}

function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  // A spreadsheet would run a text that looks like a formula; models write any text.
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
