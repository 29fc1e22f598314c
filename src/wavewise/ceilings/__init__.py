"""What-ifs and limits: how far a step could fall, by family, on three bases; and what telemetry says."""

from wavewise.ceilings.roofline import Floor as Floor
from wavewise.ceilings.roofline import StepSetting as StepSetting
from wavewise.ceilings.roofline import floors as floors
from wavewise.ceilings.shapes import ModelShape as ModelShape
from wavewise.ceilings.shapes import cut_to_layers as cut_to_layers
from wavewise.ceilings.shapes import load_shape as load_shape
from wavewise.ceilings.shapes import recognise as recognise
from wavewise.ceilings.shapes import shipped as shipped
from wavewise.ceilings.signature import Thresholds as Thresholds
from wavewise.ceilings.signature import signature as signature
from wavewise.ceilings.telemetry import TelemetrySample as TelemetrySample
from wavewise.ceilings.telemetry import read_telemetry as read_telemetry
from wavewise.ceilings.whatif import ceilings as ceilings
from wavewise.ceilings.whatif import what_if as what_if
from wavewise.ceilings.whatif import what_ifs as what_ifs
