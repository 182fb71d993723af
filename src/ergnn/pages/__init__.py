"""Tables as text, Markdown, LaTeX and HTML; charts as SVG; and the HTML pages that show both."""
