"""Reads the kernels of a cubin, a fatbinary, or a library that holds some, through cuobjdump.

Everything is read off `cuobjdump -elf`: it names what each attribute is, for old and new ELF layouts alike.
- registers: EIATTR_REGCOUNT; stack: EIATTR_MIN_STACK_SIZE;
- threads: EIATTR_REQNTID (exact) or EIATTR_MAX_THREADS (a bound); cluster: EIATTR_CTA_PER_CLUSTER;
- barriers: EIATTR_NUM_BARRIERS in new layouts, bits 20 and up of the text section's flags in old ones;
- static shared memory: size of .nv.shared.KERNEL, which from sm_90 on holds the driver's 1,024 B as well
  (then a section .nv.shared.reserved.0 stands beside it).
"""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from wavewise.audit.records import Resources
from wavewise.audit.toolchain import tool
from wavewise.errors import InputError

_ELF = re.compile(r"^64-?bit elf:.*?\bsm=(\d+\w?)", re.IGNORECASE)
_SECTION = re.compile(
    r"^\s*[0-9a-f]+\s+[0-9a-f]+\s+([0-9a-f]+)\s+\S+\s+\S+\s+\S+\s+([0-9a-f]+)\s+\S+\s+\S+\s+(\.\S+)$"
)
_INFO = re.compile(r"^\.nv\.info\.(\S+)$")
_ATTRIBUTE = re.compile(r"^\s*Attribute:\s*(EIATTR_\w+)")
_VALUE = re.compile(r"^\s*Value:\s*(.*)$")
_FUNCTION = re.compile(r"function: (\S+?)\(0x[0-9a-f]+\)\s+[a-z ]+: (0x[0-9a-f]+|\d+)")
_RESERVED = 1024
_BARRIER_SHIFT, _BARRIER_MASK = 20, 0x7F


@dataclass
class _Elf:
    """What one ELF image says, by kernel name."""

    arch: str
    reserves: bool = False
    registers: dict[str, int] = field(default_factory=dict)
    stack: dict[str, int] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)
    flags: dict[str, int] = field(default_factory=dict)
    attributes: dict[str, dict[str, str]] = field(default_factory=dict)


def read_binary(path: Path) -> tuple[Resources, ...]:
    """Every kernel of every image in `path`, in file order.

    Raises:
        InputError: no such file, or no device code in it.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    done = subprocess.run(
        [tool("cuobjdump"), "-elf", path], capture_output=True, text=True, errors="replace", check=False
    )
    found = tuple(row for elf in _images(done.stdout) for row in _kernels(elf))
    if not found:
        raise InputError(
            f"{path}: holds no compiled kernel (a cubin, a fatbinary or a library with one was expected)"
        )
    return found


def _images(text: str) -> Iterator[_Elf]:
    elf: _Elf | None = None
    info = attribute = None
    for line in text.splitlines():
        if start := _ELF.match(line):
            if elf is not None:
                yield elf
            elf, info, attribute = _Elf(f"sm_{start[1]}"), None, None
        elif elf is None:
            continue
        elif section := _SECTION.match(line):
            _place(elf, section[3], int(section[1], 16), int(section[2], 16))
        elif line.startswith("."):
            of_kernel = _INFO.match(line)
            info = of_kernel[1] if of_kernel else None
        elif named := _ATTRIBUTE.match(line):
            attribute = named[1]
        elif (value := _VALUE.match(line)) and attribute:
            if info:
                elf.attributes.setdefault(info, {})[attribute] = value[1].strip()
            elif of := _FUNCTION.match(value[1]):
                into = {"EIATTR_REGCOUNT": elf.registers, "EIATTR_MIN_STACK_SIZE": elf.stack}.get(attribute)
                if into is not None:
                    into[of[1]] = int(of[2], 0)
            attribute = None
    if elf is not None:
        yield elf


def _place(elf: _Elf, section: str, size: int, flags: int) -> None:
    if section == ".nv.shared.reserved.0":
        elf.reserves = True
    elif section.startswith(".nv.shared."):
        elf.shared[section.removeprefix(".nv.shared.")] = size
    elif section.startswith(".text."):
        elf.flags[section.removeprefix(".text.")] = flags


def _kernels(elf: _Elf) -> Iterator[Resources]:
    """Entry points only: device functions have no parameter bank."""
    for name, attributes in elf.attributes.items():
        if "EIATTR_PARAM_CBANK" not in attributes and "EIATTR_CBANK_PARAM_SIZE" not in attributes:
            continue
        shared = elf.shared.get(name, 0)
        if shared and elf.reserves:
            shared -= _RESERVED
        barriers = attributes.get("EIATTR_NUM_BARRIERS")
        cluster = _product(attributes.get("EIATTR_CTA_PER_CLUSTER"))
        yield Resources(
            kernel=name,
            arch=elf.arch,
            threads_per_cta=_product(
                attributes.get("EIATTR_REQNTID") or attributes.get("EIATTR_MAX_THREADS")
            ),
            threads_are_bound="EIATTR_REQNTID" not in attributes and "EIATTR_MAX_THREADS" in attributes,
            registers_per_thread=elf.registers.get(name),
            stack_bytes=elf.stack.get(name),
            shared_memory_bytes=shared,
            barriers=int(barriers, 0)
            if barriers
            else elf.flags.get(name, 0) >> _BARRIER_SHIFT & _BARRIER_MASK,
            cluster_size=cluster if cluster and cluster > 1 else None,
        )


def _product(value: str | None) -> int | None:
    """Three dimensions as one count: "0x80 0x1 0x1" is 128."""
    if value is None:
        return None
    product = 1
    for word in value.split()[:3]:
        product *= int(word, 0)
    return product
