"""Hostile files: folders of models, traces, dumps; and the commands that read them.

A file of an operator or of a model's publisher may be refused with an error and a status. It may not end the
program by a signal, take memory without limit, or leave a server that does not answer. A case takes the limit of the
stack, in KiB (0: the usual), and returns a remark.
"""

import contextlib
import json
import re
import subprocess
import tempfile
from pathlib import Path

from asking import ask, judge
from cases import CHAT, COMPLETIONS, HI
from server import ADDRESS_LIMIT, BINARY, MODEL, Broken, Server, need

STATUSES = range(0, 8)  # statuses of the program: anything but death by a signal
MOST_MIB = 1500  # resident memory of a command that reads a hostile file
SMALL = json.dumps({"prompt": "a cat", "max_tokens": 3})


def run(words, limit_s=30, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, refused=False):
    """Runs a command that must end by itself and not by a signal. Returns its status and output."""
    shell = ["sh", "-c", f'{ADDRESS_LIMIT}exec "$@"', "sh", str(BINARY)] + [str(word) for word in words]
    shown = " ".join(map(str, words))[:200]
    try:
        done = subprocess.run(shell, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as why:
        raise Broken(f"hocket {shown}: still running after {limit_s} s") from why
    said = (done.stdout or b"").decode(errors="replace")
    need(done.returncode in STATUSES, f"hocket {shown}: status {done.returncode}: {said[-300:]}")
    need(done.returncode or not refused, f"hocket {shown}: was not refused")
    need("CHECK failed" not in said and "terminate called" not in said, f"hocket {shown}: {said[-300:]}")
    return done.returncode, said


# --- model folders ------------------------------------------------------------------------------------

@contextlib.contextmanager
def model_with(**files):
    """A copy of the bundled model with some files changed."""
    with tempfile.TemporaryDirectory() as folder:
        for path in MODEL.iterdir():
            if path.name not in files:
                (Path(folder) / path.name).symlink_to(path)
        for name, text in files.items():
            (Path(folder) / name).write_text(text)
        yield Path(folder)


NESTED = "{% set ns=namespace(a=[]) %}{% for j in range(1000) %}{% for i in range(400) %}{% set ns.a=[ns.a] %}{% endfor %}{% endfor %}x"
GROWING = "{% set ns=namespace(a=[1,2,3,4,5,6,7,8]) %}{% for i in range(40) %}{% set ns.a = ns.a + ns.a %}{% endfor %}"
TEMPLATES = {
    "sum": "{{ " + "1+" * 100_000 + "1 }}",
    "not": "{{ " + "not " * 100_000 + "1 }}",
    "filters": "{{ 1" + "|string" * 100_000 + " }}",
    "members": "{{ a" + ".b" * 100_000 + " }}",
    "elif": "{% if 0 %}" + "{% elif 0 %}" * 50_000 + "{% endif %}",
    "nested": NESTED,
    "nested and said": NESTED + "{{ ns.a }}",
    "of itself": "{% set ns=namespace(a=1) %}{% set ns.a=[ns] %}{{ ns == ns }}{{ ns|string }}",
    "doubled": GROWING,
    "doubled text": GROWING.replace("[1,2,3,4,5,6,7,8]", "'abcdefgh'").replace("+", "~"),
    "replace": '{{ ("a"*10000)|replace("a","a"*1000000) }}',
    "indent": '{{ ("a\n"*100000)|indent(1000000) }}',
    "batch": '{{ range(100000)|batch(1000000000,"x")|list }}',
    "slice": "{{ [1]|slice(1000000000)|list }}",
    "format": '{{ "%1000000000d"|format(1) }}',
    "format of a text": '{{ "{:1000000000}".format(1) }}',
}


def serves_or_refuses(model, request=SMALL, path=COMPLETIONS, stack=0):
    """The server refuses the folder with an error, or answers requests; either soon and with bounded memory."""
    try:
        server = Server({"--model-path": model}, stack_kib=stack)
    except Broken as why:
        need("ended with status 3" in str(why) or "ended with status 2" in str(why), str(why))
        return "refused"
    with server:
        need(server.ready_mib < MOST_MIB, f"{server.ready_mib:.0f} MiB were resident at its start")
        said = judge(ask(server, path, request))
        server.check()
        server.end()
    return said


def template(text):
    def attack(stack):
        told = []
        for guard in ("{}", "{{% if messages|length > 3 %}}{}{{% endif %}}x"):
            with model_with(**{"chat_template.jinja": guard.format(text)}) as model:
                told.append(serves_or_refuses(model, json.dumps({"messages": HI * 4, "max_tokens": 2}), CHAT, stack))
        return "; ".join(told)

    return attack


def tokenizer_with(**members):
    told = json.loads((MODEL / "tokenizer.json").read_text())
    for name, value in members.items():
        told[name] = value(told[name]) if callable(value) else value
    return json.dumps(told)


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def before(pre_tokenizer):
    return lambda there: {"type": "Sequence", "pretokenizers": [pre_tokenizer] + ([there] if there else [])}


def replaces(count, by):
    one = {"type": "Replace", "pattern": {"Regex": "."}, "content": by}
    return {"type": "Sequence", "normalizers": [one] * count}


ADDED = {"id": 4_000_000_000, "content": "zz", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
BLANKS = json.dumps({"prompt": " " * 250_000 + "1", "max_tokens": 1})
TOKENIZERS = {
    "A9 an added token of a huge id": ({"added_tokens": lambda there: there + [ADDED]}, SMALL),
    "A9 a normalizer that grows": ({"normalizer": replaces(4, "a" * 50)}, json.dumps({"prompt": "a cat " * 50, "max_tokens": 1})),
    "A9 a normalizer that prepends": ({"normalizer": {"type": "Prepend", "prepend": "a" * 10_000_000}}, SMALL),
    "A9 a split that backtracks": ({"pre_tokenizer": before(split("(a|a)*$"))}, json.dumps({"prompt": "a" * 2000, "max_tokens": 1})),
    "A9 a replacement of nothing": ({"normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "x"}}, SMALL),
    "H6 a split of blanks": ({"pre_tokenizer": before(split("\\s+$"))}, BLANKS),
}


def tokenizer(members, request):
    def attack(stack):
        with model_with(**{"tokenizer.json": tokenizer_with(**members)}) as model:
            return serves_or_refuses(model, request, stack=stack)

    return attack


# --- other commands -----------------------------------------------------------------------------------

TOOLS = (
    ["simulate", "--policies", "fcfs", "--input-len", "2147483647", "--num-requests", "2"],
    ["simulate", "--policies", "fcfs", "--shared-prefix", "2147483647", "--num-requests", "2"],
    ["simulate", "--policies", "fcfs", "--max-running-requests", "1000000000", "--num-requests", "2"],
    ["simulate", "--policies", "fcfs", "--num-requests", "2000000000"],
    ["simulate", "--policies", "fcfs", "--schedule-conservativeness", "nan"],
    ["simulate", "--policies", "fcfs", "--trace", "/dev/zero"],
    ["simulate", "--policies", "fcfs", "--trace", "/"],
    ["trace", "/"],
    ["trace", "/dev/zero"],
    ["replay", "/dev/zero", "--virtual"],
    ["replay", "/", "--virtual"],
    ["crash", "/dev/zero"],
    ["crash", "/"],
    ["bench", "one-batch", "--batch", "2147483647"],
)
TRACES = (
    '{"timestamp":0,"input_length":2000000000,"output_length":2000000000,"hash_ids":[1]}\n',
    '{"timestamp":0,"input_length":10,"output_length":10,"hash_ids":[1]}\n{"timestamp":1000000000000000,"input_length":10,"output_length":10,"hash_ids":[1]}\n',
    "[" * 1_000_000,
    '{"timestamp":' + "1" * 1_000_000 + "}",
)


def small_stacks(_):
    for kib in (64, 256):
        done = subprocess.run(["sh", "-c", f'ulimit -s {kib}; exec "$0" version', BINARY], capture_output=True, text=True, timeout=30, check=False)
        need(done.returncode == 4 and "ulimit -s" in done.stderr, f"stacks of {kib} KiB: status {done.returncode}: {done.stderr[-300:]}")


def tools(_):
    for words in TOOLS:
        run(words, refused=True)
    for text in TRACES:
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write(text)
            file.flush()
            status, said = run(["simulate", "--policies", "fcfs", "--trace", file.name])
            need(status or "-" not in re.sub(r"[a-zA-Z-]*[a-zA-Z][a-zA-Z-]*|--+", "", said), f"a time below zero: {said[-300:]}")
    return f"{len(TOOLS) + len(TRACES)} commands"


CASES = (
    ("A12 tools", tools),
    ("A12 small stacks", small_stacks),
    *((f"A6 a template: {name}", template(text)) for name, text in TEMPLATES.items()),
    *((name, tokenizer(members, request)) for name, (members, request) in TOKENIZERS.items()),
)
