"""Audit of compiled kernels without a GPU: registers, spills, shared memory, residency, waves.

The package is callable, since the house speaks of `wavewise.audit(kernel, configs, gpus)`:

    import wavewise.audit
    report = wavewise.audit(kernel, [{"BLOCK": 64, "num_warps": w} for w in (4, 8)], ["h200"], signature="*bf16, i32")

Triton is imported when something is compiled, never by importing this package.
"""

import sys
from types import ModuleType
from typing import Any

from wavewise.audit.records import AuditReport as AuditReport
from wavewise.audit.records import AuditRow as AuditRow
from wavewise.audit.records import KernelConfig as KernelConfig
from wavewise.audit.records import Resources as Resources
from wavewise.audit.run import audit as audit
from wavewise.audit.run import audit_binary as audit_binary


class _CallablePackage(ModuleType):
    """Lets `wavewise.audit` be both this package and the function that it is about."""

    def __call__(self, *args: Any, **kwargs: Any) -> AuditReport:
        return audit(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
