"""What a GPU is and what a launch asks of it."""

from wavewise.hardware.catalogue import Catalogue as Catalogue
from wavewise.hardware.catalogue import catalogue as catalogue
from wavewise.hardware.spec import GpuSpec as GpuSpec
from wavewise.hardware.spec import Launch as Launch
