#!/usr/bin/env python3
"""Adds an MTP layer to a finished qwen3_moe model: trains the layer alone, the body stays as it is.

    train_mtp.py --base hocket-tiny-qwen3-moe --data data --out hocket-tiny-with-mtp --minutes 25

The layer starts as a copy of the body's last layer, and learns to predict what the body predicts (not the corpus: a draft holds if
it is the body's own choice). It is trained as it is used: chained, so that each pass after the first reads the pass before, with
the loss of all passes. --data is a folder of make_corpus.py; the tokenizer is that of the base folder.

The out folder is the base folder with the layer's tensors, one key in config.json and the layer's first drafts in expected.json.
The body's tensors keep their bytes and the recorded answers stay. OUT.acceptance.json says how often drafts hold, by position, when
the stored weights answer questions of test.jsonl greedily. --minutes 0 on a folder with a layer only measures it.
"""
import argparse
import json
import math
import os
import shutil
import time

import numpy as np
import torch
import torch.nn.functional as F

import chatml
import export
import hf_io
import model as M
import train
from tokenizer import Tokenizer

POSITIONS = 4                                                         # drafts of a chain that are trained and measured
PASS_WEIGHTS = (1.0, 0.8, 0.6, 0.5)                                   # a later draft counts only if those before it hold
SHARPNESS = 2.0                                                       # on the body's logits: the first choice matters most
CHAINED_ROW = 1024                                                    # longer rows train one pass: masks grow with their square


# ------------------------------------------------------------------------------------------------ the layer

def with_layer(base):
    """Returns the base model with an MTP layer: its own if it has one, else a copy of its last layer."""
    c = base.c
    if base.mtp is not None:
        return base
    net = M.Model(M.Config(**{**vars(c), "mtp": 1})).init_weights(1)
    net.load_state_dict(base.state_dict(), strict=False)
    net.mtp.layer.load_state_dict(base.model.layers[-1].state_dict())
    net.mtp.norm.load_state_dict(base.model.norm.state_dict())
    net.mtp.proj.weight.data[:, c.hidden:] = torch.eye(c.hidden)      # the layer first sees the hidden row as it is
    return net


def freeze_body(net):
    """Returns the parameters of the layer, which alone are trained, as (name, parameter)."""
    for p in net.parameters():
        p.requires_grad_(False)
    for p in net.mtp.parameters():
        p.requires_grad_(True)
    return [("mtp." + n, p) for n, p in net.mtp.named_parameters()]


def chain_losses(net, tok, pos, doc, w, steps):
    """-> list over passes of (loss, share of first choices that are the body's), and the mean load-balancing loss."""
    with torch.no_grad():
        h = getattr(net, "fast_hidden", net.hidden)(tok, pos, doc)
        sel = ((w[:, 1:] > 0) & (pos[:, 1:] >= 2)).nonzero()          # the body at (row, i) predicts token i+1, which counts
        row, at = sel[:, 0], sel[:, 1]
        wanted = net.lm_head(h[row, at]).float()
        first, soft = wanted.argmax(-1), (wanted * SHARPNESS).softmax(-1)
        weight = w[row, at + 1]
    out, aux = [], []
    for s, hm in enumerate(net.mtp_chain(tok, h, steps, pos, doc)):
        ok = pos[row, at] >= 1 + s                                    # row at-1-s lies in the same document
        logits = net.lm_head(hm[row[ok], at[ok] - 1 - s]).float()
        ce = -(soft[ok] * logits.log_softmax(-1)).sum(-1)
        out.append(((ce * weight[ok]).sum() / weight[ok].sum().clamp(min=1e-6), (logits.detach().argmax(-1) == first[ok]).float().mean()))
        aux.append(net.mtp.layer.mlp.aux)
    return out, torch.stack(aux).mean()


# ------------------------------------------------------------------------------------------------ acceptance

@torch.no_grad()
def hits(net, ids, n):
    """Which drafts of a chain from each generated token on are the next tokens. ids: n prompt tokens and the answer ->
    bool [answer - 1, POSITIONS]; drafts behind the end count as wrong."""
    all_ids = torch.tensor([ids])
    out = torch.zeros(len(ids) - n - 1, POSITIONS, dtype=torch.bool)
    h = net.hidden(all_ids)
    for s, hm in enumerate(net.mtp_chain(all_ids, h, POSITIONS)):
        rows = torch.arange(n - 1, max(n - 1, len(ids) - 2 - s))      # row j drafts token j+2+s
        if len(rows):
            out[:len(rows), s] = net.lm_head(hm[0, rows]).argmax(-1) == all_ids[0, rows + 2 + s]
    return out


def tokens_a_step(runs, k):
    """Tokens of an answer's steps behind the first, with k drafts in each. runs: leading drafts that hold, by generated token."""
    at = steps = 0
    while at < len(runs):
        at, steps = at + 1 + min(k, runs[at]), steps + 1
    return at, steps


@torch.no_grad()
def acceptance(net, tests, tok, per_family, max_new):
    """Answers test prompts greedily -> what holds, by position and family."""
    stop, taken, by_family, total = {tok.specials[chatml.IM_END], tok.specials[chatml.EOT]}, {}, {}, np.zeros((2, POSITIONS))
    speed = np.zeros((POSITIONS, 2))
    for r in tests.records:
        f = r["family"]
        if taken.get(f, 0) >= per_family:
            continue
        taken[f] = taken.get(f, 0) + 1
        ids = r["prompt_ids"] + net.generate([r["prompt_ids"]], max_new, stop)[0]
        if len(ids) < len(r["prompt_ids"]) + 2:
            continue
        hit = hits(net, ids, len(r["prompt_ids"])).long().cumprod(1)
        runs = hit.sum(1).tolist()
        mine = by_family.setdefault(f, np.zeros((2, POSITIONS)))
        for s in range(POSITIONS):
            tried = hit[:max(0, len(runs) - s)]                       # a draft behind the end is never verified
            tried = len(tried) if s == 0 else int(tried[:, s - 1].sum())
            mine[:, s] += (int(hit[:, s].sum()), tried)
        for k in range(1, POSITIONS + 1):
            speed[k - 1] += tokens_a_step(runs, k)
    for m in by_family.values():
        total += m
    share = lambda m: [round(float(a / b), 3) if b else None for a, b in zip(*m)]
    return dict(by_position=share(total), verified=[int(x) for x in total[1]], tokens_a_step={k + 1: round(float(a / b), 2) for k, (a, b) in enumerate(speed)},
                by_family={f: share(m) for f, m in sorted(by_family.items())})


# ------------------------------------------------------------------------------------------------ writing

def write_folder(base, net, out):
    """Writes the base folder with the layer of net. The body's tensors are copied as bytes."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(base, out)
    tensors = {n: t for n, t in hf_io.load_file(os.path.join(base, "model.safetensors")).items() if not n.startswith("mtp.")}
    tensors.update({n: t.bfloat16() for n, t in hf_io.to_hf(net).items() if n.startswith("mtp.")})
    hf_io.save_file(tensors, os.path.join(out, "model.safetensors"))

    def change(name, edit):
        path = os.path.join(out, name)
        with open(path, encoding="utf-8") as f:
            content = json.load(f)
        edit(content)
        with open(path, "w", encoding="utf-8") as f:
            f.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    change("config.json", lambda c: c.update(mtp_num_hidden_layers=1))
    stored = hf_io.load_model(out).eval()

    @torch.no_grad()
    def add_drafts(expected):
        for r in expected["completions"]:
            ids = torch.tensor([r["prompt_token_ids"] + r["completion_token_ids"]])
            r.update(export.first_drafts(stored, ids, stored.hidden(ids), r["completion_token_ids"]))
    change("expected.json", add_drafts)
    for name in os.listdir(out):
        os.chmod(os.path.join(out, name), 0o644)
    return stored


# ------------------------------------------------------------------------------------------------ training

def parse_args():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--base", required=True, help="exported folder of the body")
    ap.add_argument("--data", default="data")
    ap.add_argument("--out", required=True)
    ap.add_argument("--minutes", type=float, default=25)
    ap.add_argument("--steps", type=int, default=0, help="fixed number of steps instead of --minutes")
    ap.add_argument("--tokens", type=int, default=4096, help="tokens per step, all processes together")
    ap.add_argument("--rows", default="256,512,3072", help="row lengths; a document goes to the shortest row that holds it")
    ap.add_argument("--long-from", type=float, default=0.4, help="share of the budget after which the last row length joins; 1 = never")
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--warmup", type=int, default=30)
    ap.add_argument("--wd", type=float, default=0.0)
    ap.add_argument("--clip", type=float, default=1.0)
    ap.add_argument("--aux", type=float, default=0.01, help="load-balancing loss of the layer's router")
    ap.add_argument("--dtype", default="auto", choices=("auto", "bf16", "fp32"))
    ap.add_argument("--procs", type=int, default=1, help="processes of one thread each")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--eval-per-family", type=int, default=20)
    ap.add_argument("--eval-tokens", type=int, default=160, help="longest answer that is measured")
    ap.add_argument("--log-every", type=int, default=20, help="steps")
    return ap.parse_args()


def main():
    args = parse_args()
    train.encode_corpus(args.data, os.path.join(args.base, "tokenizer.json"))
    train.keep_freed_memory()
    if args.procs == 1:
        return run(0, args, None)
    size = sum(p.numel() for p in with_layer(hf_io.load_model(args.base)).mtp.parameters())
    torch.multiprocessing.spawn(run, (args, train.Team(args.procs, size)), args.procs)


def fit(rank, args, team, net, data):
    params = freeze_body(net)
    bf16 = args.dtype == "bf16" or args.dtype == "auto" and train.has_bf16_cpu()
    opts = train.make_optimizer(net.mtp, args.lr, args.wd, True, bf16)
    params = [p for _, p in params]
    rows, weights = train.Rows(data, args, rank), np.array([0.0, 1.0, 1.0], np.float32)
    start, step, seen, acc, t_log, tok_log = time.time(), 0, 0, [], time.time(), 0
    p = 0.0
    while True:
        kind = rows.pick(p >= args.long_from)
        passes = POSITIONS if rows.lengths[kind] <= CHAINED_ROW else 1
        batch = rows.batch(kind, weights)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            parts, aux = chain_losses(net, *train.to_device(batch, "cpu"), passes)
            loss = sum(w * x for w, (x, _) in zip(PASS_WEIGHTS, parts)) / sum(PASS_WEIGHTS[:passes]) + args.aux * aux
        loss.backward()
        p = step / args.steps if args.steps else (time.time() - start) / (args.minutes * 60)
        p = team.mean(params, min(1.0, p)) if team else min(1.0, p)
        if p >= 1:
            return step, seen
        lr = args.lr * min(1.0, (step + 1) / args.warmup) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * p)))
        for o in opts:
            for g in o.param_groups:
                g["lr"] = lr
        norm = torch.nn.utils.clip_grad_norm_(params, args.clip)
        if torch.isfinite(norm):
            for o in opts:
                o.step()
        net.zero_grad(set_to_none=True)
        step, seen, tok_log = step + 1, seen + batch[0].size * args.procs, tok_log + batch[0].size * args.procs
        if passes == POSITIONS:
            acc.append([x.item() for x, _ in parts] + [y.item() for _, y in parts])
        if step % args.log_every == 0 and rank == 0 and acc:
            mean = np.mean(acc, 0)
            print(f"step {step} p {p:.3f} lr {lr:.2e} loss {np.round(mean[:POSITIONS], 3).tolist()} agree {np.round(mean[POSITIONS:], 3).tolist()} "
                  f"aux {aux.item():.2f} norm {norm.item():.2f} tok/s {tok_log / (time.time() - t_log):.0f} Mtok {seen / 1e6:.2f}", flush=True)
            acc, t_log, tok_log = [], time.time(), 0


def run(rank, args, team):
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    if team:
        team.rank = rank
    tok_path = os.path.join(args.base, "tokenizer.json")
    net = with_layer(hf_io.load_model(args.base)).eval()
    net.mtp.train()                                                   # its router counts its loads
    step, seen = 0, 0
    if args.steps or args.minutes:
        step, seen = fit(rank, args, team, net, train.encode_corpus(args.data, tok_path))
    if rank:
        return
    stored = write_folder(args.base, net, args.out)
    tok = Tokenizer(tok_path)
    tests = train.TestSet(os.path.join(args.data, "test.jsonl"), tok, 512, args.eval_per_family)
    found = dict(steps=step, tokens=seen, **acceptance(stored, tests, tok, args.eval_per_family, args.eval_tokens))
    with open(os.path.join(args.out + ".acceptance.json"), "w") as f:
        f.write(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
