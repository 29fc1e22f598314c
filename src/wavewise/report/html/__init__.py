"""The HTML report: one self-contained page, readable offline, on a laptop, a phone and paper."""

from wavewise.report.html.page import render_html as render_html
