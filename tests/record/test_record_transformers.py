"""The load generator against a real server: `transformers serve` on the CPU, a tiny model with random weights.

`make test` installs it (requirements/serving.lock); WAVEWISE_TRANSFORMERS_PYTHON names another interpreter that has it.
Nothing is downloaded: model and tokenizer are made here.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from record_helpers import FAST

from wavewise.record import read_run
from wavewise.record.client import parse_target
from wavewise.record.options import Options
from wavewise.record.session import record

PYTHON = os.environ.get("WAVEWISE_TRANSFORMERS_PYTHON", sys.executable)
HERE = Path(__file__).parent

pytestmark = pytest.mark.slow

MAKE_MODEL = """
import json, pathlib, sys
from transformers import LlamaConfig, LlamaForCausalLM
folder = pathlib.Path(sys.argv[1])
config = LlamaConfig(
    vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=2048, bos_token_id=511, eos_token_id=None, pad_token_id=0,
)
LlamaForCausalLM(config).save_pretrained(folder)
words = {chr(97 + index): index for index in range(26)} | {" ": 26, "<unk>": 510, "<s>": 511}
words |= {f"<{index}>": index for index in range(27, 510)}
(folder / "tokenizer.json").write_text(json.dumps({
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
    "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False},
    "post_processor": None, "decoder": {"type": "Fuse"},
    "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
}))
settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "unk_token": "<unk>"}
(folder / "tokenizer_config.json").write_text(json.dumps(settings))
"""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    has = [PYTHON, "-c", "import torch, transformers.cli.serving.server"]
    if subprocess.run(has, capture_output=True, check=False).returncode:
        pytest.skip("no `transformers serve` here: make .venv/.serving, or WAVEWISE_TRANSFORMERS_PYTHON")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    model = tmp_path / "model"
    model.mkdir()
    subprocess.run([PYTHON, "-c", MAKE_MODEL, str(model)], env=environment, check=True, capture_output=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [PYTHON, "-m", "transformers.cli.transformers", "serve", str(model), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--device", "cpu", "--continuous-batching"]
    command += ["--cb-block-size", "16", "--cb-num-blocks", "1024"]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        wait_until_up(server, address)
        yield address
    finally:
        server.terminate()
        try:
            server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            server.kill()


def wait_until_up(server: "subprocess.Popen[bytes]", address: str) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert server.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise AssertionError("the server did not come up")


def test_a_real_server_is_held_and_measured(url: str, tmp_path: Path) -> None:
    options = Options(
        url=url, out=tmp_path / "run", batches=(1, 6), profile=False, max_tokens=400,
        **{**FAST, "prompt_tokens": 64, "measure_s": 0.5},  # type: ignore[arg-type]
    )  # fmt: skip
    run = record(options, parse_target(url, None), lambda question: True, lambda line: None)
    assert run == read_run(tmp_path / "run")
    assert (run.server.engine, run.settings.prompts, run.state) == ("openai", "text", "complete")
    for size, batch in zip((1, 6), run.batches, strict=True):
        seen = batch.unprofiled
        assert seen.streams == size
        assert seen.events_of_slowest_stream >= 32
        assert seen.tokens_per_event == pytest.approx(1.0, abs=0.2)
        # Every stream moves with every step: none may lag far behind the mean.
        assert seen.tokens >= 0.8 * size * (seen.events_of_slowest_stream - 1)
