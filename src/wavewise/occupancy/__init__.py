"""Residency (CTAs per SM and what limits it) and waves, for the analyst and the planner alike."""

from wavewise.occupancy.achieved import achieved_occupancy as achieved_occupancy
from wavewise.occupancy.clusters import cluster_note as cluster_note
from wavewise.occupancy.clusters import impossible_cluster as impossible_cluster
from wavewise.occupancy.expressions import grid_of as grid_of
from wavewise.occupancy.expressions import variables_of as variables_of
from wavewise.occupancy.limits import SmLimits as SmLimits
from wavewise.occupancy.limits import cta_limits as cta_limits
from wavewise.occupancy.limits import ctas_per_sm as ctas_per_sm
from wavewise.occupancy.residency import Residency as Residency
from wavewise.occupancy.residency import cta_budget as cta_budget
from wavewise.occupancy.residency import invalid_launch as invalid_launch
from wavewise.occupancy.residency import residency as residency
from wavewise.occupancy.sweep import SweepPoint as SweepPoint
from wavewise.occupancy.sweep import numbers_of as numbers_of
from wavewise.occupancy.sweep import occupancy_of as occupancy_of
from wavewise.occupancy.sweep import sweep as sweep
from wavewise.occupancy.waves import Waves as Waves
from wavewise.occupancy.waves import WaveTable as WaveTable
from wavewise.occupancy.waves import wave_table as wave_table
from wavewise.occupancy.waves import waves as waves
from wavewise.occupancy.words import limiter_words as limiter_words
from wavewise.occupancy.words import next_cta_words as next_cta_words
