"""The columnar Trace: what every reader produces and everything above works on.

All times are integer nanoseconds on the trace's own clock. Numbers that a record does not carry are null,
never 0. Frames hold *valid* records only, sorted by start; records that were read but cannot be true stand in
`rejected`, so that the steps they belong to can be recognised as unclean.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it takes as long to load as all else together, and reading a file begins without it
    import polars as pl


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """One entry of the trace's own description of its GPUs; None where it does not say."""

    id: int
    name: str | None = None
    compute_capability: str | None = None
    sm_count: int | None = None
    warp_size: int | None = None
    max_threads_per_cta: int | None = None
    max_threads_per_sm: int | None = None
    registers_per_sm: int | None = None
    shared_memory_per_sm: int | None = None
    shared_memory_per_cta: int | None = None
    shared_memory_per_cta_optin: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TraceWarning:
    """A loss, a repair or an assumption of the reader.

    Attributes:
        code: stable identifier, documented in docs/warnings.md.
        count: how many records or places.
        message: one sentence for a person.
        device: the device it concerns, None for the whole document.
        unsafe: conclusions it makes unsafe: "idle", "steps", "kernels", "occupancy".
    """

    code: str
    count: int
    message: str
    device: int | None = None
    unsafe: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """One document of a trace file, as columns.

    Attributes:
        operations: frame with OPERATION_SCHEMA, valid records sorted by (start_ns, correlation).
        rejected: frame with REJECTED_SCHEMA.
        launches: frame with LAUNCH_SCHEMA, sorted by start_ns.
        markers: frame with MARKER_SCHEMA, sorted by start_ns, longer first.
        whole_graphs: frame with WHOLE_GRAPH_SCHEMA; its launches have no rows in `operations`, so the GPU was busy
            where `operations` shows a gap.
        devices: the trace's own GPU descriptions.
        events_read: valid events of any category in the document.
        salvaged: whether damage had to be worked around.
        metadata: what else the document says of its origin: framework and driver versions, world size.
    """

    path: str
    source: str
    document: int
    operations: pl.DataFrame
    rejected: pl.DataFrame
    launches: pl.DataFrame
    markers: pl.DataFrame
    whole_graphs: pl.DataFrame
    devices: tuple[DeviceProperties, ...] = ()
    warnings: tuple[TraceWarning, ...] = ()
    events_read: int = 0
    salvaged: bool = False
    rank: int | None = None
    metadata: dict[str, str | int | float] = field(default_factory=dict[str, str | int | float])

    def device_ids(self) -> list[int]:
        """Devices with valid GPU operations, or graphs recorded as wholes, ascending."""
        return sorted({*self.operations["device"].unique(), *self.whole_graphs["device"].unique()})

    def properties_of(self, device: int) -> DeviceProperties | None:
        """The description of `device`; a lone description holds for the device in use even under another id."""
        for properties in self.devices:
            if properties.id == device:
                return properties
        if len(self.devices) == 1 and len(self.device_ids()) <= 1:
            return self.devices[0]
        return None
