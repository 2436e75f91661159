"""lm-eval against /v1/completions: answers, and log-probabilities of given answers, on two small tasks of this project.

lm-eval gets its tokens from the server, by /tokenizer_info, /tokenize and /detokenize."""

import json
import pathlib
import subprocess
import sys

from conftest import MODEL_NAME

TASKS = pathlib.Path(__file__).resolve().parent / "lm_eval_tasks"


def sums():
    for a in range(11, 19):
        for b in (21, 25, 32):
            yield {"question": f"{a} + {b} =", "answer": f" {a + b}"}


def choices():
    for a, b in ((17, 25), (12, 31), (14, 22), (25, 33), (41, 18), (23, 34)):
        yield {"question": f"{a} + {b} =", "choices": [f" {a + b}", f" {a + b + 1}", f" {a + b + 5}"], "label": 0}


def write_tasks(folder):
    for name, documents in (("sums", sums()), ("choices", choices())):
        data = folder / f"{name}.jsonl"
        data.write_text("".join(json.dumps(d) + "\n" for d in documents))
        (folder / f"{name}.yaml").write_text((TASKS / f"{name}.yaml").read_text().replace("DATA_FILE", str(data)))


def test_lm_eval(server, tmp_path):
    write_tasks(tmp_path)
    arguments = f"model={MODEL_NAME},base_url={server.url}/v1/completions,num_concurrent=4,max_retries=1"
    ended = subprocess.run(
        [sys.executable, "-m", "lm_eval", "--model", "local-completions", "--model_args", arguments, "--include_path",
         str(tmp_path), "--tasks", "hocket_sums,hocket_choices", "--output_path", str(tmp_path / "out")],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
             "HF_HOME": str(tmp_path / "hf"), "TRANSFORMERS_OFFLINE": "1"},
        capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    results = json.loads(next((tmp_path / "out").rglob("results*.json")).read_text())["results"]
    assert results["hocket_sums"]["exact_match,none"] >= 0.75
    assert results["hocket_choices"]["acc,none"] >= 0.8
