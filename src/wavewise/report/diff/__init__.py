"""Before against after: what changed in a decode step, and whether it is more than noise."""

from wavewise.report.diff.compute import diff as diff
from wavewise.report.diff.limits import judged as judged
from wavewise.report.diff.limits import parse_limit as parse_limit
from wavewise.report.diff.load import load as load
from wavewise.report.diff.render import render_html as render_html
from wavewise.report.diff.render import render_json as render_json
from wavewise.report.diff.render import render_markdown as render_markdown
from wavewise.report.diff.render import render_terminal as render_terminal
from wavewise.report.diff.result import Diff as Diff
