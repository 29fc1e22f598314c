"""The result types: what `analyze` says, as values. Names and meanings follow docs/findings.md."""

from wavewise.findings.ceilings import Ceiling as Ceiling
from wavewise.findings.decode import BucketUse as BucketUse
from wavewise.findings.decode import DecodeRow as DecodeRow
from wavewise.findings.decode import EventCounts as EventCounts
from wavewise.findings.decode import FamilyRow as FamilyRow
from wavewise.findings.decode import GapSummary as GapSummary
from wavewise.findings.decode import GpuRow as GpuRow
from wavewise.findings.decode import Idle as Idle
from wavewise.findings.decode import KernelRow as KernelRow
from wavewise.findings.decode import NextCta as NextCta
from wavewise.findings.decode import Samples as Samples
from wavewise.findings.decode import StepRow as StepRow
from wavewise.findings.decode import Summary as Summary
from wavewise.findings.decode import Timeline as Timeline
from wavewise.findings.decode import TraceFindings as TraceFindings
from wavewise.findings.decode import Warning as Warning
from wavewise.findings.levers import Lever as Lever
from wavewise.findings.root import SCHEMA as SCHEMA
from wavewise.findings.root import Findings as Findings
from wavewise.findings.root import Note as Note
from wavewise.findings.root import OperatingPoint as OperatingPoint
from wavewise.findings.scaling import Fit as Fit
from wavewise.findings.scaling import Point as Point
from wavewise.findings.scaling import Reference as Reference
from wavewise.findings.scaling import Scaling as Scaling
from wavewise.findings.scaling import Throughput as Throughput
