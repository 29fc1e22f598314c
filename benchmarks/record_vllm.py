"""Record a real vLLM server with random weights, from its start to a run folder.

    python benchmarks/record_vllm.py --out run/ [--layers 32] [--batches 1,8,32,64,96] [--kill-and-resume]

Needs vLLM and a GPU. The model has Llama-3.1-8B's shape (its published config.json), random weights and a
made-up tokenizer, so nothing is downloaded. Leaves server.log, doctor.txt, metrics.txt and times.json beside
the run folder; what they said on an H200 is in docs/record.md. With --kill-and-resume the recorder is killed
twice on its way (record_kill.py); the result goes to kill_and_resume.json beside the run folder and, as a table,
to the end of the output; the exit status is 1 unless every check holds.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from record_kill import kill_and_resume, table

SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "torch_dtype": "bfloat16",
    "attention_bias": False,
    "mlp_bias": False,
}
"""https://huggingface.co/meta-llama/Llama-3.1-8B/blob/main/config.json, without its rope scaling."""

NAME = "llama-3.1-8b-shape"
BUCKETS = [1, 2, 4, 8, 16, 32, 48, 64, 80, 96]


def make_model(folder: Path, layers: int) -> None:
    """A model folder without weights: config, and a tokenizer in which token 17 is the word w17."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SHAPE | {"num_hidden_layers": layers}))
    words = {f"w{index}": index for index in range(SHAPE["vocab_size"])}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "w128000", "eos_token": "w128001"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"unk_token": "w0"}))


def serve(
    model: Path, traces: Path, port: int, log: Path, buckets: list[int], more: list[str]
) -> "subprocess.Popen[bytes]":
    """Start `vllm serve`, whose CUDA graphs are captured for `buckets` requests."""
    profiler = {
        "profiler": "torch",
        "torch_profiler_dir": str(traces),
        "torch_profiler_with_stack": False,
        "torch_profiler_record_shapes": True,
    }
    options = {
        "--served-model-name": NAME,
        "--port": str(port),
        "--load-format": "dummy",
        "--seed": "0",
        "--max-model-len": "16384",
        "--max-num-seqs": str(max(buckets)),
        "--max-num-batched-tokens": "8192",
        "--gpu-memory-utilization": "0.85",
        "--compilation-config": json.dumps({"cudagraph_capture_sizes": buckets}),
        "--profiler-config": json.dumps(profiler),
    }
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(model)]
    command += [word for option in options.items() for word in option] + ["--no-enable-prefix-caching", *more]
    return subprocess.Popen(command, stdout=log.open("wb"), stderr=subprocess.STDOUT, start_new_session=True)


def wait_until_up(server: "subprocess.Popen[bytes]", url: str, timeout_s: float) -> None:
    """Until /health answers; the log says why where it never does."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise SystemExit(f"the server did not come up (exit status {server.poll()}); see server.log")


def main() -> None:
    """Serve, diagnose, record, and leave."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--batches", default="1,8,16,32,64,96")
    parser.add_argument("--prompt-tokens", default="4096")
    parser.add_argument("--port", type=int, default=8421)
    parser.add_argument("--work", type=Path, default=Path.home() / "record-vllm")
    parser.add_argument("--serve-option", action="append", default=[], help="one more word for `vllm serve`")
    parser.add_argument("--kill-and-resume", action="store_true", help="kill the recorder twice, and go on")
    options = parser.parse_args()
    beside = options.out.absolute().parent
    beside.mkdir(parents=True, exist_ok=True)
    make_model(options.work / "model", options.layers)
    url, times = f"http://127.0.0.1:{options.port}", {}
    wavewise = [sys.executable, "-c", "from wavewise.cli import main; main()"]
    begin = time.monotonic()
    server = serve(
        options.work / "model",
        options.work / "traces",
        options.port,
        beside / "server.log",
        sorted({*BUCKETS, *map(int, options.batches.split(","))}),
        options.serve_option,
    )
    try:
        wait_until_up(server, url, 300)
        times["server_start_s"] = time.monotonic() - begin
        doctor = subprocess.run([*wavewise, "doctor", url], capture_output=True, text=True, check=False)
        (beside / "doctor.txt").write_text(doctor.stdout + doctor.stderr)
        begin = time.monotonic()
        command = [*wavewise, "record", url, "--out", str(options.out), "--yes", "--batches", options.batches]
        command += ["--prompt-tokens", options.prompt_tokens]
        if options.kill_and_resume:
            found = kill_and_resume(
                command, url, NAME, options.out, options.work / "traces", beside / "server.log"
            )
            (beside / "kill_and_resume.json").write_text(json.dumps(found, indent=1))
            status = int(not all(found["checks"].values()))
        else:
            found, status = None, subprocess.run(command, check=False).returncode
        times["record_s"] = time.monotonic() - begin
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as metrics:
            (beside / "metrics.txt").write_bytes(metrics.read())
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=60)
        (beside / "times.json").write_text(json.dumps(times))
    if found is not None:
        print(table(found))
    sys.exit(status)


if __name__ == "__main__":
    main()
