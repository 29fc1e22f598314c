"""Asks the CUDA runtime of a real GPU for the residency of thousands of random launches.

The kernels are written here as PTX, one module, in families that steer what the compiler assigns: rising
register pressure, capped registers, launch bounds, named barriers, static shared memory. ptxas (from the
triton wheel) compiles them once; `cudaLibraryGetKernel` gives handles that
`cudaOccupancyMaxActiveBlocksPerMultiprocessor` takes, so neither nvcc nor a framework is needed.

    python benchmarks/occupancy_golden.py --out results.json --golden golden.json     # on the GPU
    python benchmarks/occupancy_golden.py --dry-run                                   # compiles only

`--out` receives everything; `--golden` the columns that tests/occupancy/test_occupancy_golden.py reads.
Stands alone (standard library and numpy): the machine with the GPU needs no install.
"""

import argparse
import ctypes
import glob
import importlib.util
import json
import platform
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SM_SHARED, CTA_SHARED, RESERVED, UNIT = (
    233_472,
    232_448,
    1_024,
    128,
)  # sm_90; only steer where points are drawn
MAX_DYNAMIC_SHARED_MEMORY, NON_PORTABLE_CLUSTER = 8, 14  # enum cudaFuncAttribute
CLUSTER_DIMENSION = 4  # enum cudaLaunchAttributeID


@dataclass(frozen=True)
class Variant:
    """One kernel: how many values stay live, and what bounds the compiler."""

    name: str
    live: int
    directive: str = ""
    max_threads: int = 1024
    barriers: int = 1
    static_shared: int = 0

    def ptx(self) -> str:
        loads = "\n".join(f"  ld.volatile.global.f32 %f{i}, [%p+{4 * i}];" for i in range(self.live))
        stores = "\n".join(f"  st.volatile.global.f32 [%p+{4 * i}], %f{i};" for i in range(self.live))
        sync = "\n".join(f"  bar.sync {i};" for i in range(self.barriers))
        shared = keep = ""
        if self.static_shared:
            shared = f"  .shared .align 16 .b8 room_{self.name}[{self.static_shared}];\n"
            keep = f"  st.volatile.shared.f32 [room_{self.name}], %f0;\n"
        return (
            f".visible .entry {self.name}(.param .u64 where) {self.directive}\n{{\n{shared}"
            f"  .reg .b64 %p;\n  .reg .f32 %f<{self.live + 1}>;\n  ld.param.u64 %p, [where];\n"
            f"{loads}\n{keep}{sync}\n{stores}\n  ret;\n}}\n"
        )


def variants() -> list[Variant]:
    made = [Variant(f"live_{n}", n) for n in range(2, 249, 2)]
    made += [
        Variant(f"cap_{r}", 248, f".maxnreg {r}") for r in sorted({*range(24, 256, 4), *range(25, 256, 10)})
    ]
    for threads, least in (
        (64, 1),
        (96, 5),
        (128, 2),
        (128, 3),
        (256, 1),
        (256, 2),
        (384, 1),
        (512, 1),
        (512, 2),
        (1024, 1),
    ):
        bounds = f".maxntid {threads}, 1, 1 .minnctapersm {least}"
        made.append(Variant(f"bounds_{threads}_{least}", 248, bounds, max_threads=threads))
    made += [Variant(f"barriers_{b}", 8, barriers=b) for b in (0, 2, 3, 4, 5, 6, 8, 12, 16)]
    made += [Variant(f"static_{s}", 8, static_shared=s) for s in (16, 1000, 4096, 10_000, 20_000, 48 * 1024)]
    return made


def ptxas() -> Path:
    spec = importlib.util.find_spec("triton")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("triton is not installed: its wheel brings ptxas")
    return Path(next(iter(spec.submodule_search_locations))) / "backends/nvidia/bin/ptxas"


def compiled(kinds: list[Variant], arch: str) -> tuple[bytes, str]:
    """The cubin of all variants, and ptxas's report."""
    source = f".version 8.0\n.target {arch}\n.address_size 64\n" + "\n".join(v.ptx() for v in kinds)
    with tempfile.TemporaryDirectory() as folder:
        here, there = Path(folder, "kernels.ptx"), Path(folder, "kernels.cubin")
        here.write_text(source)
        done = subprocess.run(
            [ptxas(), f"-arch={arch}", "-v", here, "-o", there], capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(done.stderr)
        return there.read_bytes(), done.stderr


class Attributes(ctypes.Structure):
    """struct cudaFuncAttributes of CUDA 13; the tail that is not read is room."""

    _fields_ = (
        ("shared", ctypes.c_size_t),
        ("constant", ctypes.c_size_t),
        ("local", ctypes.c_size_t),
        ("max_threads", ctypes.c_int),
        ("registers", ctypes.c_int),
        ("tail", ctypes.c_char * 256),
    )


class LaunchAttribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint * 16))


class LaunchConfig(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("dynamic_shared", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("count", ctypes.c_uint),
    )


class Runtime:
    """The few calls of libcudart that are needed, with every return code checked."""

    def __init__(self) -> None:
        places = [p for s in sys.path for p in glob.glob(f"{s}/nvidia/*/lib/libcudart.so.1[23]")]
        places += glob.glob("/usr/local/cuda*/lib64/libcudart.so.1[23]")
        if not places:
            sys.exit("libcudart is not there")
        self.path = places[0]
        self.lib = ctypes.CDLL(self.path)
        self.lib.cudaGetErrorString.restype = ctypes.c_char_p
        self("cudaSetDevice", ctypes.c_int(0))

    def __call__(self, name: str, *arguments: object) -> None:
        code = getattr(self.lib, name)(*arguments)
        if code:
            raise RuntimeError(f"{name}: {code} {self.lib.cudaGetErrorString(code).decode()}")

    def kernels(self, cubin: bytes, kinds: list[Variant]) -> list[ctypes.c_void_p]:
        library = ctypes.c_void_p()
        self("cudaLibraryLoadData", ctypes.byref(library), cubin, None, None, 0, None, None, 0)
        handles = []
        for kind in kinds:
            handle = ctypes.c_void_p()
            self("cudaLibraryGetKernel", ctypes.byref(handle), library, kind.name.encode())
            room = ctypes.c_int(CTA_SHARED - kind.static_shared)
            self("cudaFuncSetAttribute", handle, MAX_DYNAMIC_SHARED_MEMORY, room)
            self("cudaFuncSetAttribute", handle, NON_PORTABLE_CLUSTER, ctypes.c_int(1))
            handles.append(handle)
        return handles

    def attributes(self, kernel: ctypes.c_void_p) -> Attributes:
        found = Attributes()
        self("cudaFuncGetAttributes", ctypes.byref(found), kernel)
        return found

    def residency(self, kernel: ctypes.c_void_p, threads: int, dynamic: int) -> int:
        ctas = ctypes.c_int(-1)
        self(
            "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
            ctypes.byref(ctas),
            kernel,
            ctypes.c_int(threads),
            ctypes.c_size_t(dynamic),
        )
        return ctas.value

    def clusters(self, kernel: ctypes.c_void_p, threads: int, dynamic: int, size: int) -> int:
        attribute = LaunchAttribute(id=CLUSTER_DIMENSION)
        attribute.value[0], attribute.value[1], attribute.value[2] = size, 1, 1
        config = LaunchConfig(dynamic_shared=dynamic, attributes=ctypes.pointer(attribute), count=1)
        config.grid[:], config.block[:] = (size * 1000, 1, 1), (threads, 1, 1)
        found = ctypes.c_int(-1)
        self("cudaOccupancyMaxActiveClusters", ctypes.byref(found), kernel, ctypes.byref(config))
        return found.value

    def version(self, name: str) -> int:
        number = ctypes.c_int()
        self(name, ctypes.byref(number))
        return number.value


def drawn(
    kinds: list[Variant], registers: dict[str, int], count: int, seed: int
) -> list[tuple[int, int, int]]:
    """(variant, threads, dynamic bytes), half of them near a step of one of the rules.

    One point in ten may be a launch that does not fit; the rest stay within the registers of a CTA. Small
    CTAs are drawn as often as large ones (half of the threads are log-uniform), else CTA slots never bind.
    """
    rng = np.random.default_rng(seed)
    points = []
    while len(points) < count:
        which = int(rng.integers(len(kinds)))
        kind = kinds[which]
        if rng.random() < 0.5:
            threads = int(rng.integers(1, kind.max_threads + 1))
        else:
            threads = int(2 ** rng.uniform(0, np.log2(kind.max_threads)))
        if rng.random() < 0.5:
            threads = max(1, min(kind.max_threads, threads // 32 * 32 + int(rng.integers(-1, 2))))
        if threads * registers[kind.name] > 65_536 and rng.random() < 0.9:
            continue
        room = CTA_SHARED - kind.static_shared
        how = rng.random()
        if how < 0.3:
            dynamic = 0
        elif how < 0.5:
            dynamic = int(rng.integers(0, room + 1))
        else:
            step = SM_SHARED // int(rng.integers(1, 33)) // UNIT * UNIT - RESERVED - kind.static_shared
            dynamic = step + int(rng.integers(-1, 2))
        points.append((which, threads, max(0, min(room, dynamic))))
    return points


def nvidia_smi() -> dict[str, str]:
    asked = "name,driver_version,compute_cap"
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        return {"nvidia_smi": str(error)}
    return dict(
        zip(asked.split(","), (v.strip() for v in done.stdout.splitlines()[0].split(",")), strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=12_000)
    parser.add_argument("--seed", type=int, default=20261129)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--golden", type=Path)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    kinds = variants()
    started = time.perf_counter()
    cubin, report = compiled(kinds, options.arch)
    used = re.findall(r"Compiling entry function '(\w+)'.*?Used (\d+) registers", report, re.DOTALL)
    registers = {name: int(number) for name, number in used}
    counts = sorted(set(registers.values()))
    print(f"{len(kinds)} kernels in {time.perf_counter() - started:.1f} s, registers {counts}")
    points = drawn(kinds, registers, options.points, options.seed)
    if options.dry_run:
        return
    runtime = Runtime()
    handles = runtime.kernels(cubin, kinds)
    found = [runtime.attributes(handle) for handle in handles]
    columns: dict[str, list[int]] = {
        key: []
        for key in ("threads", "registers", "static_shared", "dynamic_shared", "barriers", "ctas_per_sm")
    }
    for which, threads, dynamic in points:
        columns["threads"].append(threads)
        columns["registers"].append(found[which].registers)
        columns["static_shared"].append(found[which].shared)
        columns["dynamic_shared"].append(dynamic)
        columns["barriers"].append(kinds[which].barriers)
        columns["ctas_per_sm"].append(runtime.residency(handles[which], threads, dynamic))
    plain = next(i for i, kind in enumerate(kinds) if kind.name == "live_8")
    clusters = {
        f"{threads} threads, {dynamic} B": {
            str(size): runtime.clusters(handles[plain], threads, dynamic, size) for size in (1, 2, 4, 8, 16)
        }
        for threads, dynamic in ((128, 200_000), (128, 100_000), (1024, 0))
    }
    origin = {
        **nvidia_smi(),
        "function": "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
        "runtime": runtime.version("cudaRuntimeGetVersion"),
        "driver": runtime.version("cudaDriverGetVersion"),
        "ptxas": subprocess.run(
            [ptxas(), "--version"], capture_output=True, text=True, check=True
        ).stdout.splitlines()[-1],
        "python": platform.python_version(),
        "commit": options.commit,
        "seed": options.seed,
        "measured": time.strftime("%Y-%m-%d"),
    }
    kernels = [
        {
            "name": kind.name,
            "registers": attributes.registers,
            "static_shared": attributes.shared,
            "stack_bytes": attributes.local,
            "max_threads": attributes.max_threads,
            "barriers": kind.barriers,
        }
        for kind, attributes in zip(kinds, found, strict=True)
    ]
    print(json.dumps(origin))
    print(f"{len(points)} points; residencies {sorted(set(columns['ctas_per_sm']))}; clusters {clusters}")
    if options.out:
        whole = {"origin": origin, "max_active_clusters": clusters, "kernels": kernels, "points": columns}
        options.out.write_text(json.dumps(whole, separators=(",", ":")) + "\n")
    if options.golden:
        options.golden.write_text(
            json.dumps({"origin": origin, "points": columns}, separators=(",", ":")) + "\n"
        )


if __name__ == "__main__":
    main()
