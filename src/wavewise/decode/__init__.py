"""Trace -> steps, idle, families, launches: what one device did, step by step."""

from wavewise.decode.steps import Segmentation as Segmentation
from wavewise.decode.steps import segment as segment
