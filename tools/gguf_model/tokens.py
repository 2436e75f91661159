#!/usr/bin/env python3
"""Makes tokenizers of the kinds that no folder of tests/golden/tokenizers has, as GGUF files and as the publishers' own programs read them.

    tools/gguf_model/tokens.py tests/golden/gguf_tokenizers

NAME.gguf holds the metadata alone, NAME.json the ids that another program gives each text of tests/golden/tokenizers:

- sentencepiece: a byte-pair model that sentencepiece trains on these texts, which gives the ids. sentencepiece/tokenizer.json is what transformers
  makes of the model.
- gemma4: the same tokens, with listed merges and no space before texts. gemma4/tokenizer.json has the form of Gemma's, and gives the ids.
- kimi_k2: the tokens of llama3 in the order of their ranks, without merges. tiktoken gives the ids, by the pattern published beside Kimi K2.
"""

import io
import json
import pathlib
import sys

import gguf
import sentencepiece
import tiktoken
import tokenizers
from transformers import LlamaTokenizer
from transformers.convert_slow_tokenizer import LlamaConverter

GOLDEN = pathlib.Path(__file__).parents[2] / "tests/golden/tokenizers"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
SPECIAL = ["<start>", "<end>"]  # control tokens behind the others
CAPITALS, SMALL = (r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}")
NOT_HAN, ENDS = r"&&[^\p{Han}]]", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI_PATTERN = "|".join([r"[\p{Han}]+",
                         rf"[^\r\n\p{{L}}\p{{N}}]?[{CAPITALS}{NOT_HAN}*[{SMALL}{NOT_HAN}+{ENDS}",
                         rf"[^\r\n\p{{L}}\p{{N}}]?[{CAPITALS}{NOT_HAN}+[{SMALL}{NOT_HAN}*{ENDS}",
                         r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


def golden_texts():
    texts = set()
    for file in GOLDEN.glob("*/reference.json"):
        texts |= {case["text"] for case in json.loads(file.read_text())["encode"]}
    return sorted(texts)


def write(target, name, model, pre, tokens, kinds, ids, bos, merges=None, scores=None, **flags):
    w = gguf.GGUFWriter(target / f"{name}.gguf", "llama")
    w.add_tokenizer_model(model)
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types(kinds)
    if scores:
        w.add_token_scores(scores)
    if merges:
        w.add_token_merges(merges)
    w.add_bos_token_id(bos)
    w.add_eos_token_id(bos + 1)
    if UNKNOWN in kinds:
        w.add_unk_token_id(kinds.index(UNKNOWN))
    if "add_space_prefix" in flags:
        w.add_add_space_prefix(flags["add_space_prefix"])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    (target / f"{name}.json").write_text(json.dumps(ids, indent=0, ensure_ascii=True) + "\n")


def sentencepiece_and_gemma(target, texts):
    file = io.BytesIO()
    # Texts are trained as they are; the trainer wants lines.
    lines = [line for text in texts for line in text.split("\n") if line]
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=file, model_type="bpe", vocab_size=900, byte_fallback=True,
                                             normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.98,
                                             user_defined_symbols=["<|mark|>"], minloglevel=2)
    (target / "sentencepiece.model").write_bytes(file.getvalue())
    sp = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
    size = sp.get_piece_size()
    tokens = [sp.id_to_piece(i) for i in range(size)]
    kind = lambda i: UNKNOWN if sp.is_unknown(i) else CONTROL if sp.is_control(i) else BYTE if sp.is_byte(i) else USER_DEFINED if i == tokens.index("<|mark|>") else NORMAL
    kinds, scores = [kind(i) for i in range(size)], [sp.get_score(i) for i in range(size)]
    write(target, "sentencepiece", "llama", "default", tokens, kinds, [{"text": t, "ids": sp.encode(t)} for t in texts], sp.bos_id(), scores=scores)

    slow = LlamaTokenizer(str(target / "sentencepiece.model"), legacy=True)
    fast = LlamaConverter(slow).converted()
    (target / "sentencepiece").mkdir(exist_ok=True)
    fast.save(str(target / "sentencepiece/tokenizer.json"))

    model = json.loads(fast.to_str())
    model["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    model["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    model["decoder"]["decoders"].pop()  # strips the space before texts
    (target / "gemma4").mkdir(exist_ok=True)
    (target / "gemma4/tokenizer.json").write_text(json.dumps(model, ensure_ascii=False, indent=1) + "\n")
    gemma = tokenizers.Tokenizer.from_file(str(target / "gemma4/tokenizer.json"))
    ids = [{"text": t, "ids": gemma.encode(t, add_special_tokens=False).ids} for t in texts]
    write(target, "gemma4", "gemma4", "gemma4", tokens, kinds, ids, sp.bos_id(), merges=[" ".join(m) for m in model["model"]["merges"]], scores=scores, add_space_prefix=False)
    (target / "sentencepiece.model").unlink()


def kimi(target, texts):
    vocab = json.loads((GOLDEN / "llama3/tokenizer.json").read_text())["model"]["vocab"]
    tokens = sorted(vocab, key=vocab.get)
    assert [vocab[t] for t in tokens] == list(range(len(tokens)))
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in printable)}
    byte_of = {letter: b for b, letter in letters.items()}
    ranks = {bytes(byte_of[letter] for letter in token): i for i, token in enumerate(tokens)}
    encoding = tiktoken.Encoding("kimi_k2", pat_str=KIMI_PATTERN, mergeable_ranks=ranks, special_tokens={})
    ids = [{"text": t, "ids": encoding.encode(t, disallowed_special=())} for t in texts]
    write(target, "kimi_k2", "gpt2", "kimi-k2", tokens + SPECIAL, [NORMAL] * len(tokens) + [CONTROL] * len(SPECIAL), ids, len(tokens))


def main():
    target = pathlib.Path(sys.argv[1])
    target.mkdir(exist_ok=True)
    texts = golden_texts()
    sentencepiece_and_gemma(target, texts)
    kimi(target, texts)


if __name__ == "__main__":
    main()
