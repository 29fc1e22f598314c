"""Tools for assistants: the same numbers, with types, so that a model cannot get them wrong."""

from wavewise.report.agent.server import build as build
from wavewise.report.agent.server import serve as serve
