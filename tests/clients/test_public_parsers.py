"""Parsers of other servers read the recorded answers of tests/answers, and must find the calls that hocket finds.

The parsers come from SGLang's and vLLM's packages if they are installed, or from their unpacked wheels in the folder that
HOCKET_ORACLES names (`pip download --no-deps sglang vllm`, unpacked into one folder). Only the parsers are loaded; stand-ins replace
their other imports, from PyTorch to web frameworks. hocket's own test checks hocket against the same recorded calls
(src/text/answers/recorded_answers_test.cc)."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import sys
import types

import pytest

RECORDED = json.loads((pathlib.Path(__file__).resolve().parents[1] / "answers" / "recorded.json").read_text())

# For each oracle: the package with its parsers, then by family the module and class of the parser.
PARSERS = {
    "sglang": ("sglang.srt.function_call", {
        "hermes": ("hermes_detector", "HermesDetector"),
        "qwen3_coder": ("qwen3_coder_detector", "Qwen3CoderDetector"),
        "mimo": ("mimo_detector", "MiMoDetector"),
        "glm45": ("glm4_moe_detector", "Glm4MoeDetector"),
        "glm47": ("glm47_moe_detector", "Glm47MoeDetector"),
        "minimax_m2": ("minimax_m2", "MinimaxM2Detector"),
        "kimi_k2": ("kimik2_detector", "KimiK2Detector"),
        "gpt_oss": ("gpt_oss_detector", "GptOssDetector"),
        "deepseek_v3": ("deepseekv3_detector", "DeepSeekV3Detector"),
        "deepseek_v31": ("deepseekv31_detector", "DeepSeekV31Detector"),
        "llama3_json": ("llama32_detector", "Llama32Detector"),
        "pythonic": ("pythonic_detector", "PythonicDetector"),
        "gemma4": ("gemma4_detector", "Gemma4Detector"),
        "mistral": ("mistral_detector", "MistralDetector"),
    }),
    "vllm": ("vllm.tool_parsers", {
        "hermes": ("hermes_tool_parser", "Hermes2ProToolParser"),
        "deepseek_v3": ("deepseekv3_tool_parser", "DeepSeekV3ToolParser"),
        "deepseek_v31": ("deepseekv31_tool_parser", "DeepSeekV31ToolParser"),
        "llama3_json": ("llama_tool_parser", "Llama3JsonToolParser"),
        "pythonic": ("pythonic_tool_parser", "PythonicToolParser"),
    }),
}
BOTH = ("sglang", "vllm")

# Answers that hocket parses differently on purpose.
DISAGREEMENTS = [
    (BOTH, "arguments first, and as a string", "arguments that are JSON in a string: they hand on a string, we the object in it"),
    (BOTH, "marks, quotes and braces in a string", "they end a call at the first end mark, even inside a string"),
    (BOTH, "end mark and brace forgotten", "they lose the call, we make up for its end"),
    (BOTH, "a brace too many", "they lose the call"),
    (BOTH, "raw line ends and wild escapes", "they lose the call, we mend its JSON"),
    (BOTH, "halves of pairs", "half a surrogate pair is no text: U+FFFD here, kept there"),
    (BOTH, "arguments that are none", "a list is handed on as arguments; here it is text"),
    (BOTH, "a broken call, then a good one", "they lose the good one too"),
    (BOTH, "marks forgotten", "they need every mark"),
    (("vllm",), "no arguments", "a call without arguments is none there"),
    (("sglang",), "a tool that is none", "dropped there unless a variable says otherwise; here the client is told, as vLLM does"),
    (("sglang",), "every type", "Python's True stays text there"),
    (("sglang",), "without the outer mark, no parameters", "they need the outer mark"),
    (("sglang",), "JSON after all", "no other family's form is read there"),
    (("sglang",), "GLM on one line", "they need a line's end after the name"),
    (("sglang",), "pythonic", "the call with a tuple in it is lost there"),
    (("vllm",), "pythonic, marked, long strings", "the marks are another parser's there"),
    (("sglang",), "Mistral, by name", "they stop at the second call"),
    (("sglang",), "cut in a value", "half a value is handed on as if it were whole"),
    (("sglang",), "prose between parameters", "the call is handed on without what follows the prose"),
    (("sglang",), "GLM 4.7 writes lines", "line ends at the end of a value are dropped there"),
    (("sglang",), "GLM 4.7 on lines after all", "the older family's form is not read there"),
    (("sglang",), "text where a value should be", "the call is handed on without the argument"),
    (("sglang",), "Kimi, ids in short", "an id without a number is none there"),
    (("sglang",), "Kimi, an id without its number", "an id without a number is none there"),
    (("sglang",), "Kimi, marks forgotten", "they need every mark"),
    (("sglang",), "MiniMax, every type", "a $ref is not followed there"),
    (("sglang",), "MiniMax writes code", "a value ends at its first end mark there, and loses line ends at its ends"),
    (("sglang",), "MiniMax on one line, other quotes", "they need double quotes"),
    (("sglang",), "MiniMax, forgotten ends", "they need every mark"),
    (("sglang",), "MiniMax, a tool that is none", "dropped there"),
    (("sglang",), "MiniMax, prose in a call", "the call is handed on without the prose"),
    (("sglang",), "gpt-oss calls at once", "they look for the head that the prompt has begun"),
    (("sglang",), "gpt-oss, the recipient first", "a recipient before the channel is not read there"),
    (("sglang",), "gpt-oss, a call without arguments", "they need arguments"),
    (("sglang",), "gpt-oss, a tool that is none", "dropped there"),
    (("sglang",), "gpt-oss, a known tool without its space", "they need the word functions"),
    (("sglang",), "Gemma, every type", "null, and the marks of a key, stay text there"),
    (("sglang",), "Gemma with quotes and blanks", "quotes are no marks there"),
    (("sglang",), "Gemma like Python", "they need braces"),
    (("sglang",), "Gemma, first marks forgotten", "the end of the text is taken as its beginning"),
    (("sglang",), "Gemma, all marks forgotten", "a text ends at its first comma there"),
    (("sglang",), "Gemma, text that looks like a number", "a city's number stays a number there"),
    (("sglang",), "Gemma, ends forgotten", "they need every mark"),
    (("sglang",), "Gemma, JSON after all", "no other family's form is read there"),
    (("sglang",), "Gemma, no value", "the call is handed on with an empty text"),
    (("sglang",), "Gemma, no key", "the call is handed on without it"),
    (("sglang",), "Gemma, no value in a list", "the call is handed on with an empty text"),
    (("sglang",), "no value", "a call whose argument has no value is handed on without it"),
]


class Any:
    """A stand-in for other imports of the parsers: it accepts any call, has any attribute, and is false."""

    def __init__(self, *_, **fields):
        self.__dict__.update(fields)

    def __init_subclass__(cls, **_):
        pass

    def __class_getitem__(cls, _):
        return cls

    def __call__(self, *_, **__):
        return Any()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Any()

    def __bool__(self):
        return False


class StandIn(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        # Upper-case names are constants of settings, which are not set.
        value = None if name.isupper() else Any() if name.islower() else type(name, (Any,), {})
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the parsers of one package unchanged, and stand-ins for the rest of it and for large libraries."""

    LARGE = ("openai", "torch", "transformers", "xgrammar")
    SHARED = ("sglang.srt.parser.harmony_parser",)  # parsers use it and it imports nothing large

    def __init__(self, package, folder):
        self.package, self.folder = package, folder

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] not in (self.package.split(".")[0], *self.LARGE):
            return None
        file = self.folder / (name.replace(".", "/") + ".py")
        if (name.startswith(self.package + ".") or name in self.SHARED) and file.exists():
            return importlib.util.spec_from_file_location(name, file)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


def folder_of(package):
    """Returns the folder that holds the package; None if there is none."""
    name = package.split(".")[0]
    unpacked = os.environ.get("HOCKET_ORACLES")
    if unpacked and (pathlib.Path(unpacked) / name).is_dir():
        return pathlib.Path(unpacked)
    found = importlib.util.find_spec(name)
    return pathlib.Path(found.origin).parents[1] if found and found.origin else None


class Letters:
    """A tokenizer for parsers that need one: every mark is a token."""

    bos_token = None

    def get_vocab(self):
        class Everything(dict):
            def get(self, key, default=None):
                return 1

            def __missing__(self, key):
                return 1

        return Everything()

    def encode(self, text, **_):
        return [ord(letter) for letter in text]

    def decode(self, ids, **_):
        return "".join(map(chr, ids))


def tools():
    return [Any(type="function", function=Any(name=t["name"], description=t["description"], parameters=t["parameters"] or {}, strict=False))
            for t in RECORDED["tools"]]


def calls_of(oracle, make, text):
    """Returns name and arguments of each call that the oracle finds."""
    if oracle == "sglang":
        return [(call.name, call.parameters) for call in make().detect_and_parse(text, tools()).calls]
    found = make(Letters(), tools()).extract_tool_calls(text, Any(tools=tools()))
    return [(call.function.name, call.function.arguments) for call in found.tool_calls or []]


@pytest.fixture(params=sorted(PARSERS))
def oracle(request):
    """Gives an oracle's name and its parsers by family. Unloads the oracle's modules afterwards."""
    package, families = PARSERS[request.param]
    folder = folder_of(package)
    if folder is None:
        pytest.skip(f"{request.param} is not installed, nor unpacked in $HOCKET_ORACLES")
    for needed in ("orjson", "partial_json_parser", "regex"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"the parsers of {request.param} need {needed}")
    before, finder = dict(sys.modules), Finder(package, folder)
    for name in list(sys.modules):
        if name.split(".")[0] in finder.LARGE:
            del sys.modules[name]
    sys.meta_path.insert(0, finder)
    yield request.param, {f: getattr(importlib.import_module(f"{package}.{m}"), c) for f, (m, c) in families.items()}
    sys.meta_path.remove(finder)
    sys.modules.clear()
    sys.modules.update(before)


def test_calls_are_those_that_others_find(oracle):
    name, parsers = oracle
    known = {answer for oracles, answer, _ in DISAGREEMENTS if name in oracles}
    compared, surprises = 0, []
    for answer in RECORDED["answers"]:
        parser = parsers.get(answer["format"])
        if parser is None or any("thought" in part for part in answer["parts"]):
            continue  # oracles have another parser for reasoning
        ours = [(part["call"], json.loads(part["arguments"])) for part in answer["parts"] if "call" in part]
        theirs = [(call, json.loads(arguments)) for call, arguments in calls_of(name, parser, answer["text"])]
        compared += 1
        if theirs != ours and answer["name"] not in known:
            surprises.append(f"{answer['name']}: {ours} here, {theirs} there")
    assert compared > 20
    assert not surprises, "\n".join(surprises)
