"""How step time grows with batch size and context: floor, slope, honest models, limits and targets."""

from wavewise.scaling.context import fit_context as fit_context
from wavewise.scaling.groups import family_waves as family_waves
from wavewise.scaling.groups import sweeps as sweeps
from wavewise.scaling.latency import fit_latency as fit_latency
from wavewise.scaling.model import ScalingModel as ScalingModel
from wavewise.scaling.model import fit_scaling as fit_scaling
from wavewise.scaling.model import scaling_model as scaling_model
from wavewise.scaling.premise import premise as premise
from wavewise.scaling.premise import premise_changes as premise_changes
from wavewise.scaling.targets import latency_target as latency_target
from wavewise.scaling.targets import throughput_target as throughput_target
