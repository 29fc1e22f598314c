"""The catalogue: finding, matching, overriding, and devices that are not in it."""

import dataclasses

import pytest

from support.programming_guide import EDITIONS, GUIDE
from wavewise.errors import InputError, UsageError
from wavewise.hardware import catalogue


@pytest.mark.parametrize("name", ["h200", "H200", "NVIDIA H200", " nvidia  h200 "])
def test_finds_by_id_and_by_the_drivers_name(name):
    assert catalogue().find(name).id == "h200"


@pytest.mark.parametrize(
    ("typed", "nearest"), [("h20o", "h200"), ("rtx-pro-600", "rtx-pro-6000"), ("b20", "b200")]
)
def test_an_unknown_gpu_names_the_nearest(typed, nearest):
    with pytest.raises(UsageError, match=f"unknown GPU '{typed}'; nearest: .*{nearest}"):
        catalogue().find(typed)


def test_nothing_near_lists_what_is_known():
    with pytest.raises(UsageError, match=r"known: .*h200"):
        catalogue().find("zzzzzzzz")


@pytest.mark.parametrize(
    ("device", "capability", "sms", "expected"),
    [
        ("NVIDIA H200", "9.0", 132, "h200"),
        ("NVIDIA H200", None, None, "h200"),
        ("NVIDIA H100 80GB HBM3", "9.0", 132, "h100-sxm"),
        ("NVIDIA B200", "10.0", 148, "b200"),
        ("AMD Instinct MI300X", "9.4", 304, "mi300x"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0", 188, "rtx-pro-6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", 188, "rtx-pro-6000-server"),
        ("NVIDIA H200", "9.0", 16, None),  # a MIG slice
        ("NVIDIA H200 MIG 1g.18gb", "9.0", 16, None),
        ("NVIDIA H20", "9.0", 78, None),
        ("NVIDIA H200", "10.0", 132, None),
        ("", "9.4", 304, None),
        (None, "9.0", 132, None),
    ],
)
def test_matches_a_traces_device_or_nothing(device, capability, sms, expected):
    found = catalogue().match(device, capability, sms)
    assert (found.id if found else None) == expected


def test_a_gpu_of_a_trace_takes_granularities_from_its_exact_architecture():
    spec = catalogue().from_figures(
        name="NVIDIA H20",
        compute_capability="9.0",
        sm_count=78,
        warp_size=32,
        max_threads_per_sm=2048,
        shared_memory_per_sm=233472,
        shared_memory_per_cta=49152,
        shared_memory_per_cta_optin=232448,
    )
    assert (spec.id, spec.sm_count, spec.max_ctas_per_sm, spec.max_warps_per_sm) == ("trace", 78, 32, 64)
    assert spec.shared_memory_per_cta == 232448
    assert "wgmma" in spec.features
    assert "deviceProperties" in spec.sources["sm_count"]


def test_an_unknown_architecture_stays_unknown():
    spec = catalogue().from_figures(name="X", compute_capability="13.0", sm_count=200, warp_size=32)
    assert (spec.sm_count, spec.max_ctas_per_sm, spec.features) == (200, None, frozenset())


def test_an_amd_gpu_that_calls_itself_9_0_is_not_hopper():
    spec = catalogue().from_figures(
        name="AMD Instinct MI250X", compute_capability="9.0", sm_count=110, warp_size=64
    )
    assert spec.vendor == "amd"
    assert spec.max_ctas_per_sm is None
    assert "wgmma" not in spec.features


def test_a_users_file_overrides_key_by_key_and_adds(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        '[[gpus]]\nid = "h200"\npower_limit_w = 500\n\n'
        '[[gpus]]\nid = "h20"\nname = "NVIDIA H20"\narchitecture = "9.0"\nsm_count = 78\n'
    )
    mine = catalogue(file)
    assert mine.find("h200").power_limit_w == 500
    assert mine.find("h200").sm_count == 132
    assert mine.match("NVIDIA H20", "9.0", 78).id == "h20"
    assert catalogue().find("h200").power_limit_w != 500


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[[gpus]]\nid = "x"\nname = "X"\nvendor = "nvidia"\nsm_cout = 3\n',
            "unknown key 'sm_cout'; did you mean 'sm_count'",
        ),
        ('[[gpus]]\nname = "X"\n', "needs an id"),
        ('[[gpus]]\nid = "x"\narchitecture = "77.0"\nname = "X"\n', "architecture '77.0' is not described"),
        ('[[gpus]]\nid = "x"\nname = "X"\nvendor = "nvidia"\nsm_count = "many"\n', "sm_count"),
        ('[[gpus]]\nid = "x"\nname = "X"\nvendor = "nvidia"\nsm_count = -1\n', "sm_count is negative"),
        ('[[gpus]]\nid = "x"\n', "name"),
        ("[cards]\n", "unknown table 'cards'"),
        ("gpus = 3\n", "wrong form"),
    ],
)
def test_a_users_mistake_is_named(tmp_path, text, words):
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"mine\.toml") as caught:
        catalogue(file)
    assert words in str(caught.value)


def test_an_unreadable_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        catalogue(tmp_path / "absent.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[[gpus")
    with pytest.raises(InputError, match="not TOML"):
        catalogue(broken)


ISSUED = (
    "v100 t4 a100-40gb a100-80gb a10 a40 a6000 rtx-3090 l4 l40s rtx-4090 rtx-6000-ada h100-sxm h100-pcie h100-nvl "
    "h200 gh200 b200 b300 rtx-5090 rtx-pro-6000 gb10 mi300x mi325x mi355x"
)


def test_every_promised_gpu_is_there_once():
    ids = [spec.id for spec in catalogue()]
    assert set(ISSUED.split()) <= set(ids)
    assert len(ids) == len(set(ids))
    names = [name for spec in catalogue() for name in (spec.name, *spec.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("spec", list(catalogue()), ids=lambda spec: spec.id)
def test_every_figure_has_a_source_and_every_gap_a_note(spec):
    about = {"id", "name", "vendor", "aliases", "features", "sources", "notes", "compute_capability"}
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if field.name in about:
            continue
        if value:
            assert len(spec.sources.get(field.name, "")) > 10, field.name
    board = ("sm_count", "memory_bytes", "memory_bytes_per_s", "power_limit_w")
    if any(getattr(spec, name) is None for name in board) or not spec.tensor_flops:
        assert spec.notes


@pytest.mark.parametrize("spec", list(catalogue()), ids=lambda spec: spec.id)
def test_figures_hang_together(spec):
    if spec.max_warps_per_sm is not None:
        assert spec.max_warps_per_sm * spec.warp_size == spec.max_threads_per_sm
    if spec.vendor == "nvidia":
        assert spec.shared_memory_per_cta + spec.shared_memory_reserved_per_cta == spec.shared_memory_per_sm
        assert spec.shared_memory_per_sm % spec.shared_memory_allocation_unit == 0
        assert (spec.barriers_per_sm or 0) % spec.max_ctas_per_sm == 0
    rates = spec.tensor_flops
    # GeForce boards halve fp16 and fp8 with fp32 accumulation, but not fp4; Blackwell Ultra has half as much fp4 again.
    fp4 = {"GeForce": 4, "B300": 3}
    steps = {("tf32", "bf16"): 2, ("bf16", "fp8"): 2}
    steps["fp8", "fp4"] = next((times for word, times in fp4.items() if word in spec.name), 2)
    for (slow, fast), times in steps.items():
        if slow in rates and fast in rates:
            assert rates[fast] / rates[slow] == pytest.approx(times, rel=0.05)
    assert all(f"{precision}_mma" in spec.features for precision in rates)


@pytest.mark.parametrize("capability", GUIDE)
def test_architectures_agree_with_the_programming_guide(capability):
    spec = catalogue().from_figures(compute_capability=capability, warp_size=32)
    guide = GUIDE[capability]
    assert (spec.max_threads_per_sm, spec.max_warps_per_sm, spec.max_ctas_per_sm) == (
        guide.threads_per_sm,
        guide.warps_per_sm,
        guide.ctas_per_sm,
    )
    assert spec.shared_memory_per_sm == guide.shared_memory_per_sm_kb * 1024
    assert spec.shared_memory_per_cta == guide.shared_memory_per_cta_kb * 1024
    assert spec.shared_memory_reserved_per_cta == guide.reserved_shared_memory_kb * 1024
    assert (spec.registers_per_sm, spec.registers_per_cta, spec.max_registers_per_thread) == (
        guide.registers_per_sm,
        guide.registers_per_cta,
        guide.registers_per_thread,
    )
    assert spec.max_threads_per_cta == guide.threads_per_cta
    if guide.tensor_types is not None:
        types = {feature.removesuffix("_mma") for feature in spec.features if feature.endswith("_mma")}
        assert types == set(guide.tensor_types.split())


def test_every_nvidia_architecture_names_the_edition_that_it_was_read_in():
    described = {c for c, table in catalogue().architectures.items() if table["vendor"] == "nvidia"}
    assert described == set(GUIDE)
    assert all(set(guide.read_in) and set(guide.read_in) <= set(EDITIONS) for guide in GUIDE.values())


def test_features_are_facts_not_an_order():
    assert "tcgen05" in catalogue().find("b200").features
    assert "tcgen05" not in catalogue().find("rtx-pro-6000").features
    assert "wgmma" in catalogue().find("h200").features
    assert "wgmma" not in catalogue().find("b200").features


@pytest.mark.parametrize(
    ("device", "sms", "memory", "expected"),
    [
        ("Tesla V100-SXM2-32GB", 80, 34_079_637_504, "v100"),
        ("NVIDIA A100-SXM4-80GB", 108, 85_000_000_000, "a100-80gb"),
        ("NVIDIA A100-SXM4-40GB", 108, 42_000_000_000, "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", 108, 85_000_000_000, "a100-pcie-80gb"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 14, 5_000_000_000, None),
        ("NVIDIA A100-SXM4-40GB", 14, 5_000_000_000, None),
        ("NVIDIA H100 PCIe", 114, 85_000_000_000, "h100-pcie"),
        ("NVIDIA H100 NVL", 132, 100_000_000_000, "h100-nvl"),
        ("NVIDIA H200 NVL", 132, 150_000_000_000, None),
        ("NVIDIA GeForce RTX 5090", 170, None, "rtx-5090"),
        ("NVIDIA GeForce RTX 5090 D", 170, None, None),
        ("NVIDIA RTX 6000 Ada Generation", 142, None, "rtx-6000-ada"),
        ("NVIDIA GB10", 48, None, "gb10"),
    ],
)
def test_sisters_are_told_apart(device, sms, memory, expected):
    found = catalogue().match(device, None, sms, memory)
    assert (found.id if found else None) == expected


def test_a_family_name_asks_which_one():
    with pytest.raises(UsageError, match="ambiguous: name one of a100-40gb, a100-80gb, a100-pcie-40gb"):
        catalogue().find("a100")
    with pytest.raises(UsageError, match="h100-sxm, h100-pcie, h100-nvl"):
        catalogue().find("H100")


def test_an_overridden_figure_names_the_users_file_as_its_source(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[[gpus]]\nid = "h200"\npower_limit_w = 500\n')
    sources = catalogue(file).find("h200").sources
    assert sources["power_limit_w"] == str(file)
    assert "mine.toml" not in sources["sm_count"]
