"""Runs a model in this process: one thread of the library delivers the generated text to Python iterators."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import itertools
import json
import math
import queue
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any, AsyncIterator, Callable, Iterable, Iterator, Mapping, Optional, Sequence, Union

from . import _library as lib
from ._library import HocketError, check, library

Message = Mapping[str, Any]
Prompt = Union[str, Sequence[int], Sequence[Message]]  # text as it stands, token ids, or a chat


class ChatTokens(list[int]):
    """The token ids of a chat. It remembers whether an answer with a form begins with reasoning."""

    reasoning: int = 0  # a value of hocket_request.reasoning; what is cut from the list or joined to it is a plain list

    @property
    def thoughts(self) -> int:
        """The old name of `reasoning`, which the next version lacks."""
        return self.reasoning

    @thoughts.setter
    def thoughts(self, value: int) -> None:
        self.reasoning = value


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters, by OpenAI's names. None: the model's default; max_tokens: the rest of the context.

    At most one of json_schema and the fields after it may be given: it constrains the text. JSON is an object, or its text."""

    max_tokens: Optional[int] = None
    min_tokens: Optional[int] = None
    temperature: Optional[float] = None
    top_p: Optional[float] = None
    top_k: Optional[int] = None
    min_p: Optional[float] = None
    frequency_penalty: Optional[float] = None
    presence_penalty: Optional[float] = None
    repetition_penalty: Optional[float] = None
    seed: Optional[int] = None
    ignore_eos: bool = False
    stop: Union[str, Sequence[str], None] = None
    stop_token_ids: Sequence[int] = ()
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: Optional[int] = None
    skip_special_tokens: bool = True
    priority: Optional[int] = None  # larger first, with enable_priority_scheduling=True
    json_schema: Union[str, Mapping[str, Any], None] = None
    regex: Optional[str] = None
    ebnf: Optional[str] = None
    lark: Optional[str] = None
    choice: Optional[Sequence[str]] = None
    structural_tag: Union[str, Mapping[str, Any], None] = None


@dataclass(frozen=True)
class Piece:
    """The tokens and text that one step added. `text` may be empty: a character may still be incomplete."""

    text: str
    token: Optional[int]
    logprob: Optional[float]
    top_logprobs: dict[int, float]
    finish_reason: Optional[str]  # the last piece has it: "stop", "length", "abort"
    prompt_tokens: int = 0  # the last piece has it, as the rest
    cached_tokens: int = 0
    stop_token: Optional[int] = None
    stop_text: Optional[str] = None
    error: Optional[HocketError] = None


@dataclass(frozen=True)
class Output:
    """A whole answer."""

    text: str
    tokens: list[int]
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    stop_token: Optional[int]
    stop_text: Optional[str]
    logprobs: list[float]  # one for each of `tokens`, where asked for
    top_logprobs: list[dict[int, float]]


@dataclass(frozen=True)
class ModelInfo:
    name: str
    vocab_size: int
    context_length: int
    max_running_requests: int
    max_total_tokens: int
    num_ranks: int
    weight_bytes: int
    kv_bytes: int
    load_seconds: float
    has_tokenizer: bool
    has_chat_template: bool


Listener = Callable[[Piece], bool]  # False: no more


def _piece(event: lib.Event) -> Piece:
    text = ctypes.string_at(event.text, event.text_length).decode()
    token = event.token if event.token >= 0 else None
    logprob = None if math.isnan(event.logprob) else event.logprob
    top = {event.top_tokens[i]: event.top_logprobs[i] for i in range(event.top_count)}
    if not event.finish:
        return Piece(text, token, logprob, top, None)
    error = None
    if event.error:
        error = HocketError(event.error, event.error_message.decode(), event.error_fix.decode())
    return Piece(
        text,
        token,
        logprob,
        top,
        lib.FINISH[event.finish],
        event.prompt_tokens,
        event.cached_tokens,
        event.stop_token if event.stop_token >= 0 else None,
        event.stop_text.decode() if event.stop_text else None,
        error,
    )


def _output(pieces: list[Piece]) -> Output:
    last = pieces[-1]
    told = [p for p in pieces if p.token is not None]
    with_logprobs = [p for p in told if p.logprob is not None]
    return Output(
        text="".join(p.text for p in pieces),
        tokens=[p.token for p in told if p.token is not None],
        finish_reason=last.finish_reason or "",
        prompt_tokens=last.prompt_tokens,
        cached_tokens=last.cached_tokens,
        stop_token=last.stop_token,
        stop_text=last.stop_text,
        logprobs=[p.logprob for p in with_logprobs if p.logprob is not None],
        top_logprobs=[p.top_logprobs for p in with_logprobs],
    )


def _ints(values: Iterable[int]) -> Any:
    listed = list(values)
    return (ctypes.c_int32 * len(listed))(*listed)


def _form(wanted: Sampling) -> Optional[tuple[int, bytes]]:
    """The kind of grammar and its text; None: free text."""
    given = [name for name in lib.GRAMMARS if getattr(wanted, name) is not None]
    if len(given) > 1:
        raise TypeError(f"an answer has one form, not both {given[0]} and {given[1]}")
    if not given:
        return None
    value = getattr(wanted, given[0])
    text = value if isinstance(value, str) else json.dumps(list(value) if given[0] == "choice" else value)
    return lib.GRAMMARS[given[0]], text.encode()


class Stream(Iterator[Piece]):
    """A streaming answer. Closing it, deleting it or leaving its loop early cancels the request."""

    def __init__(self, engine: Engine, prompt: Prompt, sampling: Sampling) -> None:
        self._ended = True
        self._engine = engine
        self._pieces: queue.SimpleQueue[Piece] = queue.SimpleQueue()
        self._request = engine._begin(prompt, sampling, self._listener(self._pieces))
        self._ended = False

    @staticmethod
    def _listener(pieces: queue.SimpleQueue[Piece]) -> Listener:
        def keep(piece: Piece) -> bool:
            pieces.put(piece)
            return True

        return keep

    def __next__(self) -> Piece:
        if self._ended:
            raise StopIteration
        piece = self._pieces.get()
        self._ended = piece.finish_reason is not None
        if piece.error:
            raise piece.error
        return piece

    def close(self) -> None:
        if not self._ended:
            self._ended = True
            self._engine._cancel(self._request)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


_open_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for engine in list(_open_engines):
        engine.close()


def _calls(engine: Engine) -> Any:
    """The engine's handler as a C function, which does not keep the engine alive."""
    weak = weakref.ref(engine)

    def on_event(event: Any, number: int) -> int:
        alive = weak()
        return 1 if alive is None else alive._on_event(event, number)

    return lib.Handler(on_event)


class Engine:
    """A loaded model. May be used by many threads; `close` it, or use it with `with`.

    Settings are the program's flags: Engine(path, context_length=8192, num_threads=4)."""

    def __init__(self, model_path: Any, *, log_level: str = "warning", **settings: Any) -> None:
        self._handle: Optional[int] = None
        self._lock = threading.RLock()
        self._listeners: dict[int, Listener] = {}  # by the number that the library hands back
        self._numbers = itertools.count(1)
        self._handler = _calls(self)  # lives as long as the library calls it
        check(library.hocket_set_log_level(log_level.encode()))
        options = library.hocket_options_new()
        try:
            for name, value in {"model_path": model_path, **settings}.items():
                word = str(value).lower() if isinstance(value, bool) else str(value)
                check(library.hocket_options_set(options, name.replace("_", "-").encode(), word.encode()))
            handle = ctypes.c_void_p()
            check(library.hocket_engine_open(options, ctypes.byref(handle)))
            self._handle = handle.value
            _open_engines.add(self)
        finally:
            library.hocket_options_free(options)

    def close(self) -> None:
        """Cancels what runs and frees the model. Waiting threads get the text generated so far, with finish_reason "abort"."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            self._closing = handle
            check(library.hocket_engine_close(handle))

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is None:
            return
        try:
            self.close()
        except HocketError:  # the last to hold it was an event: closing would wait for itself
            threading.Thread(target=lambda handle, _: library.hocket_engine_close(handle), args=(self._closing, self._handler)).start()

    @property
    def info(self) -> ModelInfo:
        found = lib.Info(struct_size=ctypes.sizeof(lib.Info))
        check(library.hocket_engine_info(self._open_handle(), ctypes.byref(found)))
        return ModelInfo(
            name=found.model_name.decode(),
            vocab_size=found.vocab_size,
            context_length=found.context_length,
            max_running_requests=found.max_running_requests,
            max_total_tokens=found.max_total_tokens,
            num_ranks=found.num_ranks,
            weight_bytes=found.weight_bytes,
            kv_bytes=found.kv_bytes,
            load_seconds=found.load_seconds,
            has_tokenizer=bool(found.has_tokenizer),
            has_chat_template=bool(found.has_chat_template),
        )

    # --- text and tokens ---

    def tokenize(self, text: str) -> list[int]:
        data = text.encode()
        return self._taken(lambda out: library.hocket_tokenize(self._open_handle(), data, len(data), out))

    def chat_tokens(self, messages: Sequence[Message], **extra: Any) -> ChatTokens:
        """`extra`: tools, chat_template_kwargs, add_generation_prompt, continue_final_message."""
        words = json.dumps(list(messages)).encode()
        more = json.dumps(extra).encode() if extra else None
        reasoning = ctypes.c_int32()
        chat = ChatTokens(self._taken(lambda out: library.hocket_chat_prompt(self._open_handle(), words, more, out, ctypes.byref(reasoning))))
        chat.reasoning = reasoning.value
        return chat

    def detokenize(self, tokens: Sequence[int]) -> str:
        text = lib.Text()
        check(library.hocket_detokenize(self._open_handle(), _ints(tokens), len(tokens), ctypes.byref(text)))
        try:
            return ctypes.string_at(text.data, text.length).decode()
        finally:
            library.hocket_text_free(ctypes.byref(text))

    # --- answers ---

    def generate(self, prompt: Prompt, sampling: Optional[Sampling] = None, **wishes: Any) -> Output:
        """The whole answer. Sampling as an object, or its fields by name."""
        return _output(list(self.stream(prompt, sampling, **wishes)))

    def generate_many(self, prompts: Iterable[Prompt], sampling: Optional[Sampling] = None, **wishes: Any) -> list[Output]:
        """The answers to all prompts, computed together, in their order."""
        streams = [self.stream(prompt, sampling, **wishes) for prompt in prompts]
        return [_output(list(one)) for one in streams]

    def stream(self, prompt: Prompt, sampling: Optional[Sampling] = None, **wishes: Any) -> Stream:
        """The answer piece by piece; the request begins now. Leaving the loop early cancels it."""
        return Stream(self, prompt, self._sampling(sampling, wishes))

    async def agenerate(self, prompt: Prompt, sampling: Optional[Sampling] = None, **wishes: Any) -> Output:
        return _output([piece async for piece in self.astream(prompt, sampling, **wishes)])

    async def astream(self, prompt: Prompt, sampling: Optional[Sampling] = None, **wishes: Any) -> AsyncIterator[Piece]:
        """As stream, for asyncio. Cancelling the task cancels the request."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[Piece] = asyncio.Queue()
        over = False

        def pass_on(piece: Piece) -> bool:
            if over:
                return False
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return False
            return True

        wanted = self._sampling(sampling, wishes)
        try:
            # Templates and tokens of a long prompt take a while: not in the loop's thread.
            await loop.run_in_executor(None, self._begin, prompt, wanted, pass_on)
            finished = False
            while not finished:
                piece = await pieces.get()
                finished = piece.finish_reason is not None
                if piece.error:
                    raise piece.error
                yield piece
        finally:
            over = True  # anything that still comes cancels the request

    # --- inside ---

    def _open_handle(self) -> int:
        if self._handle is None:
            raise HocketError(106, "the engine is closed")
        return self._handle

    @staticmethod
    def _taken(call: Callable[[Any], int]) -> list[int]:
        tokens = lib.Tokens()
        check(call(ctypes.byref(tokens)))
        try:
            return list(tokens.data[: tokens.count])
        finally:
            library.hocket_tokens_free(ctypes.byref(tokens))

    @staticmethod
    def _sampling(sampling: Optional[Sampling], wishes: dict[str, Any]) -> Sampling:
        if sampling is not None and wishes:
            raise TypeError("sampling is given twice: as an object and by " + ", ".join(wishes))
        return sampling if sampling is not None else Sampling(**wishes)

    def _tokens(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return self.tokenize(prompt)
        if isinstance(prompt, ChatTokens):
            return prompt
        items = list(prompt)
        if items and isinstance(items[0], Mapping):
            return self.chat_tokens(items)  # type: ignore[arg-type]
        return items  # type: ignore[return-value]

    def _request(self, prompt: Prompt, wanted: Sampling) -> lib.Request:
        request = lib.Request(struct_size=ctypes.sizeof(lib.Request))
        check(library.hocket_request_init(self._open_handle(), ctypes.byref(request)))
        tokens = self._tokens(prompt)
        request.prompt, request.prompt_count = _ints(tokens), len(tokens)
        request.reasoning = tokens.reasoning if isinstance(tokens, ChatTokens) else 0
        given = {
            "max_new_tokens": wanted.max_tokens,
            "min_new_tokens": wanted.min_tokens,
            "temperature": wanted.temperature,
            "top_p": wanted.top_p,
            "top_k": wanted.top_k,
            "min_p": wanted.min_p,
            "frequency_penalty": wanted.frequency_penalty,
            "presence_penalty": wanted.presence_penalty,
            "repetition_penalty": wanted.repetition_penalty,
            "seed": wanted.seed,
            "logprobs": wanted.logprobs,
            "priority": wanted.priority,
        }
        for name, value in given.items():
            if value is not None:
                setattr(request, name, value)
        request.ignore_eos = int(wanted.ignore_eos)
        request.keep_special_tokens = int(not wanted.skip_special_tokens)
        stops = [wanted.stop] if isinstance(wanted.stop, str) else list(wanted.stop or ())
        texts = (ctypes.c_char_p * len(stops))(*(stop.encode() for stop in stops))
        request.stop_texts, request.stop_text_count = texts, len(stops)
        request.stop_tokens, request.stop_token_count = _ints(wanted.stop_token_ids), len(wanted.stop_token_ids)
        bias = sorted(wanted.logit_bias.items())
        request.bias_tokens = _ints(token for token, _ in bias)
        request.bias = (ctypes.c_float * len(bias))(*(value for _, value in bias))
        request.bias_count = len(bias)
        if (form := _form(wanted)) is not None:
            request.grammar_kind, request.grammar = form
        return request

    def _begin(self, prompt: Prompt, wanted: Sampling, listener: Listener) -> int:
        request, number, identity = self._request(prompt, wanted), next(self._numbers), ctypes.c_uint64()
        with self._lock:  # against close()
            self._listeners[number] = listener
            code = library.hocket_submit(self._open_handle(), ctypes.byref(request), self._handler, number, ctypes.byref(identity))
            if code:
                del self._listeners[number]
            check(code)
        return identity.value

    def _on_event(self, event: Any, number: int) -> int:
        piece = _piece(event.contents)
        listener = self._listeners.pop(number) if piece.finish_reason else self._listeners[number]
        return 0 if listener(piece) else 1

    def _cancel(self, request: int) -> None:
        with self._lock:
            if self._handle is not None:
                library.hocket_cancel(self._handle, request)
