"""include/hocket/hocket.h by ctypes: structs and functions as they stand there, and their errors as exceptions."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

API_VERSION = 3
NAME = "libhocket.so.0"
GRAMMARS = {"json_schema": 1, "regex": 2, "ebnf": 3, "lark": 4, "choice": 5, "structural_tag": 6}
FINISH = {1: "stop", 2: "length", 3: "abort", 4: "error"}


class HocketError(Exception):
    """Raised when libhocket refuses a call: `code` is the number of HKnnn, `fix` what to change, perhaps empty."""

    def __init__(self, code: int, message: str, fix: str = "") -> None:
        super().__init__(f"HK{code:03}: {message}" + (f" (fix: {fix})" if fix else ""))
        self.code, self.message, self.fix = code, message, fix


class Tokens(ctypes.Structure):
    _fields_ = [("data", POINTER(c_int32)), ("count", c_size_t)]


class Text(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("length", c_size_t)]


class Info(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("model_name", c_char_p),
        ("vocab_size", c_int32),
        ("context_length", c_int32),
        ("max_running_requests", c_int32),
        ("num_ranks", c_int32),
        ("max_total_tokens", c_int64),
        ("weight_bytes", c_int64),
        ("kv_bytes", c_int64),
        ("load_seconds", c_double),
        ("has_tokenizer", c_int32),
        ("has_chat_template", c_int32),
    ]


class Request(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("prompt", POINTER(c_int32)),
        ("prompt_count", c_size_t),
        ("max_new_tokens", c_int32),
        ("min_new_tokens", c_int32),
        ("temperature", c_double),
        ("top_p", c_double),
        ("min_p", c_double),
        ("frequency_penalty", c_double),
        ("presence_penalty", c_double),
        ("repetition_penalty", c_double),
        ("top_k", c_int32),
        ("ignore_eos", c_int32),
        ("seed", c_uint64),
        ("logprobs", c_int32),
        ("keep_special_tokens", c_int32),
        ("stop_tokens", POINTER(c_int32)),
        ("stop_token_count", c_size_t),
        ("stop_texts", POINTER(c_char_p)),
        ("stop_text_count", c_size_t),
        ("bias_tokens", POINTER(c_int32)),
        ("bias", POINTER(c_float)),
        ("bias_count", c_size_t),
        ("grammar", c_char_p),
        ("grammar_kind", c_int32),
        ("priority", c_int32),
        ("reasoning", c_int32),
        ("reserved", c_int32),
    ]


class Event(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("request", c_uint64),
        ("token", c_int32),
        ("finish", c_int32),
        ("text", c_void_p),
        ("text_length", c_size_t),
        ("logprob", c_float),
        ("top_count", c_int32),
        ("top_tokens", POINTER(c_int32)),
        ("top_logprobs", POINTER(c_float)),
        ("prompt_tokens", c_int32),
        ("cached_tokens", c_int32),
        ("generated_tokens", c_int32),
        ("stop_token", c_int32),
        ("stop_text", c_char_p),
        ("error", c_int32),
        ("error_message", c_char_p),
        ("error_fix", c_char_p),
    ]


Handler = ctypes.CFUNCTYPE(c_int, POINTER(Event), c_void_p)

SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "hocket_api_version": (c_int, []),
    "hocket_version": (c_char_p, []),
    "hocket_error_message": (c_char_p, []),
    "hocket_error_fix": (c_char_p, []),
    "hocket_set_log_level": (c_int, [c_char_p]),
    "hocket_options_new": (c_void_p, []),
    "hocket_options_set": (c_int, [c_void_p, c_char_p, c_char_p]),
    "hocket_options_free": (None, [c_void_p]),
    "hocket_option_name": (c_char_p, [c_size_t]),
    "hocket_engine_open": (c_int, [c_void_p, POINTER(c_void_p)]),
    "hocket_engine_close": (c_int, [c_void_p]),
    "hocket_engine_info": (c_int, [c_void_p, POINTER(Info)]),
    "hocket_tokenize": (c_int, [c_void_p, c_char_p, c_size_t, POINTER(Tokens)]),
    "hocket_chat_prompt": (c_int, [c_void_p, c_char_p, c_char_p, POINTER(Tokens), POINTER(c_int32)]),
    "hocket_detokenize": (c_int, [c_void_p, POINTER(c_int32), c_size_t, POINTER(Text)]),
    "hocket_tokens_free": (None, [POINTER(Tokens)]),
    "hocket_text_free": (None, [POINTER(Text)]),
    "hocket_request_init": (c_int, [c_void_p, POINTER(Request)]),
    "hocket_submit": (c_int, [c_void_p, POINTER(Request), Handler, c_void_p, POINTER(c_uint64)]),
    "hocket_cancel": (None, [c_void_p, c_uint64]),
}


def _open() -> ctypes.CDLL:
    inside = Path(__file__).parent / "lib" / NAME
    place = os.environ.get("HOCKET_LIBRARY") or (str(inside) if inside.exists() else NAME)
    try:
        library = ctypes.CDLL(place)
    except OSError as why:
        raise ImportError(f"{place} cannot be loaded: {why}; install libhocket0, or name the library in HOCKET_LIBRARY") from why
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    if library.hocket_api_version() < API_VERSION:
        raise ImportError(f"{place} has version {library.hocket_api_version()} of its interface, {API_VERSION} is needed")
    return library


library = _open()


def check(code: int) -> None:
    if code:
        raise HocketError(code, library.hocket_error_message().decode(), library.hocket_error_fix().decode())


def version() -> str:
    """Returns the version of the library: "0.1.0"."""
    found: bytes = library.hocket_version()
    return found.decode()
