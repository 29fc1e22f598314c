"""The catalogue: finding, matching, overriding, and devices that are not in it."""

import pytest

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
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", 188, "rtx-pro-6000"),
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
