"""Residency (CTAs per SM and what limits it) and waves, for the analyst and the planner alike."""

from wavewise.occupancy.achieved import achieved_occupancy as achieved_occupancy
from wavewise.occupancy.limits import SmLimits as SmLimits
from wavewise.occupancy.limits import cta_limits as cta_limits
from wavewise.occupancy.limits import ctas_per_sm as ctas_per_sm
from wavewise.occupancy.residency import Residency as Residency
from wavewise.occupancy.residency import cta_budget as cta_budget
from wavewise.occupancy.residency import invalid_launch as invalid_launch
from wavewise.occupancy.residency import residency as residency
from wavewise.occupancy.waves import Waves as Waves
from wavewise.occupancy.waves import WaveTable as WaveTable
from wavewise.occupancy.waves import wave_table as wave_table
from wavewise.occupancy.waves import waves as waves
