"""Trace -> steps, idle, families, launches: what one device did, step by step."""

from wavewise.decode.describe import Described as Described
from wavewise.decode.describe import describe as describe
from wavewise.decode.families import FAMILIES as FAMILIES
from wavewise.decode.families import FamilyRules as FamilyRules
from wavewise.decode.inventory import StepTimes as StepTimes
from wavewise.decode.steps import Segmentation as Segmentation
from wavewise.decode.steps import segment as segment
