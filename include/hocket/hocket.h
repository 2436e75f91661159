/* hocket as a library: a model in this process, without a server.
 *
 *     hocket_options* options = hocket_options_new();
 *     hocket_options_set(options, "model-path", "models/hocket-tiny-qwen3-moe");
 *     hocket_engine* engine = NULL;
 *     if (hocket_engine_open(options, &engine)) return puts(hocket_error_message());
 *     hocket_tokens prompt = {0};
 *     hocket_chat_tokens(engine, messages_json, NULL, &prompt);
 *     hocket_request request = {.struct_size = sizeof request};
 *     hocket_request_init(engine, &request);
 *     request.prompt = prompt.data, request.prompt_count = prompt.count;
 *     hocket_generate(engine, &request, print_text, NULL);
 *     hocket_tokens_free(&prompt);
 *     hocket_engine_close(engine);
 *     hocket_options_free(options);
 *
 * Errors. A function that returns int returns HOCKET_OK or the number of an error: 41 is HK041, as
 * the program prints it. hocket_error_message() and hocket_error_fix() say more, in the thread that
 * got the error, until its next call. Nothing here throws or prints to stdout; only a bug of
 * hocket's own ends the process.
 *
 * Threads. An engine may be used by any thread, many at a time, until hocket_engine_close, which is
 * the last call with it. Requests run side by side. Events of all requests of an engine come in one
 * thread of its own, one after the other; an event handler that is slow slows all of them. It may
 * call everything but hocket_generate and hocket_engine_close, which would wait for itself.
 * Options, token lists and texts belong to one thread at a time. A process that has opened an
 * engine must not fork without exec.
 *
 * Versions. HOCKET_API_VERSION rises when something is added; what is there keeps its meaning while
 * the library's name (libhocket.so.0) does. Structs begin with their size, which the caller sets,
 * so that they can grow at the end.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HOCKET_API_VERSION 3

#if defined(__GNUC__)
#define HOCKET_API __attribute__((visibility("default")))
#else
#define HOCKET_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum {
  HOCKET_OK = 0,
  HOCKET_ERROR_BAD_VALUE = 3,         /* an option, or a null pointer */
  HOCKET_ERROR_MODEL_NOT_FOUND = 20,  /* 20 to 29: files of the model */
  HOCKET_ERROR_OUT_OF_MEMORY = 40,    /* 40, 41: weights, KV cache */
  HOCKET_ERROR_INVALID_REQUEST = 100, /* 100 and above: a request */
  HOCKET_ERROR_CONTEXT_LENGTH = 101,  /* prompt and answer are longer than the context */
  HOCKET_ERROR_QUEUE_FULL = 105,      /* max-queued-requests wait already */
  HOCKET_ERROR_SHUTTING_DOWN = 106,   /* the engine was closed */
  HOCKET_ERROR_NO_TOKENIZER = 109,    /* the folder has none: send and take token ids */
  HOCKET_ERROR_TEMPLATE_FAILED = 110, /* the chat template refused the messages, or there is none */
  HOCKET_ERROR_INTERNAL = 199
};

/* What of a form comes first: thoughts, free, up to the mark that ends them. The text of the answer
 * has both, with the marks. */
enum {
  HOCKET_NO_THOUGHTS = 0,       /* the form begins at once */
  HOCKET_THOUGHTS_POSSIBLE = 1, /* if the model writes the mark that opens them */
  HOCKET_THOUGHTS_OPEN = 2      /* the prompt has opened them */
};

/* How a request ended; HOCKET_GOES_ON until its last event. */
enum {
  HOCKET_GOES_ON = 0,
  HOCKET_STOP = 1,      /* an end token, a stop token or a stop text */
  HOCKET_LENGTH = 2,    /* max_new_tokens */
  HOCKET_CANCELLED = 3, /* by hocket_cancel, its event handler, or hocket_engine_close */
  HOCKET_FAILED = 4     /* see error */
};

/* The form of an answer's text, and what hocket_request.grammar then holds. Before each token all
 * that would leave the form are masked, so the answer has it unless max_new_tokens cuts it off. */
enum {
  HOCKET_FREE_TEXT = 0,
  HOCKET_JSON_SCHEMA = 1,   /* a JSON schema; "{}": any JSON */
  HOCKET_REGEX = 2,         /* of the whole text, in Rust's syntax without look-around */
  HOCKET_EBNF = 3,          /* as llama.cpp (GBNF) and xgrammar write it; begins at `root` */
  HOCKET_LARK = 4,          /* as llguidance reads it */
  HOCKET_CHOICE = 5,        /* a JSON array of texts, of which one is the answer */
  HOCKET_STRUCTURAL_TAG = 6 /* free text in which triggers begin parts of a form, in JSON */
};

typedef struct hocket_options hocket_options;
typedef struct hocket_engine hocket_engine;

/* Made by the library, freed by the caller. data[length] of a text is 0. */
typedef struct hocket_tokens {
  int32_t* data;
  size_t count;
} hocket_tokens;
typedef struct hocket_text {
  char* data;
  size_t length;
} hocket_text;

typedef struct hocket_info {
  size_t struct_size;
  const char* model_name; /* as long as the engine lives */
  int32_t vocab_size;
  int32_t context_length;       /* tokens, prompt and answer together */
  int32_t max_running_requests; /* computed together; others wait */
  int32_t num_ranks;
  int64_t max_total_tokens; /* that the KV cache holds */
  int64_t weight_bytes, kv_bytes;
  double load_seconds;
  int32_t has_tokenizer, has_chat_template;
} hocket_info;

#define HOCKET_NO_PRIORITY INT32_MIN

/* One request. hocket_request_init fills it; arrays and texts are read before the call returns. */
typedef struct hocket_request {
  size_t struct_size;
  const int32_t* prompt;
  size_t prompt_count;
  int32_t max_new_tokens; /* 0: the rest of the context */
  int32_t min_new_tokens;
  double temperature; /* 0: the most likely token, always */
  double top_p, min_p;
  double frequency_penalty, presence_penalty, repetition_penalty;
  int32_t top_k;               /* 0: all */
  int32_t ignore_eos;          /* 1: the model's end tokens do not end it */
  uint64_t seed;               /* the same seed gives the same answer, whatever else runs */
  int32_t logprobs;            /* -1: none; n: of the token, and of the n likeliest (20 at most) */
  int32_t keep_special_tokens; /* 1: control tokens are part of the text */
  const int32_t* stop_tokens;
  size_t stop_token_count;
  const char* const* stop_texts; /* end the answer, are no part of it; 64 at most */
  size_t stop_text_count;
  const int32_t* bias_tokens; /* ascending; bias[i] is added to the logit of bias_tokens[i] */
  const float* bias;
  size_t bias_count;
  /* Since version 2. */
  const char* grammar;  /* what grammar_kind says; NULL where it is HOCKET_FREE_TEXT */
  int32_t grammar_kind; /* compiled beside the engine: the request waits for it */
  int32_t priority;     /* larger first, with the option enable-priority-scheduling */
  /* Since version 3. */
  int32_t thoughts; /* before what has a form: as hocket_chat_prompt says of the prompt */
  int32_t reserved; /* 0 */
} hocket_request;

/* News of a request. Pointers hold until the handler returns. */
typedef struct hocket_event {
  size_t struct_size;
  uint64_t request;
  int32_t token;    /* -1: none with this event */
  int32_t finish;   /* HOCKET_GOES_ON, or how it ended: this is its last event */
  const char* text; /* whole characters that became certain; text[text_length] is 0 */
  size_t text_length;
  float logprob; /* of the token; NaN where not asked for */
  int32_t top_count;
  const int32_t* top_tokens; /* likeliest first */
  const float* top_logprobs;
  /* Of the last event. */
  int32_t prompt_tokens, cached_tokens, generated_tokens;
  int32_t stop_token;    /* that ended it; -1: none */
  const char* stop_text; /* that ended it; NULL: none */
  int32_t error;         /* of HOCKET_FAILED */
  const char* error_message;
  const char* error_fix;
} hocket_event;

/* Anything but 0 cancels the request; its last event comes nevertheless. */
typedef int (*hocket_event_handler)(const hocket_event* event, void* user);

/* The version of the library that runs: HOCKET_API_VERSION, and the program's ("0.1.0"). */
HOCKET_API int hocket_api_version(void);
HOCKET_API const char* hocket_version(void);

/* Of this thread's last call that failed; "" where there is nothing. */
HOCKET_API const char* hocket_error_message(void);
HOCKET_API const char* hocket_error_fix(void);

/* What the engine writes to stderr: "debug", "info", "warning" (the default here), "error", "off".
 * Of the whole process.
 *
 * The library leaves the program's signals as they are. A program whose stderr may be a pipe
 * ignores SIGPIPE, or the end of its reader ends the program; one that runs below `ulimit -f`
 * ignores SIGXFSZ, or a file that reaches that limit does. What is written then fails with an
 * error. */
HOCKET_API int hocket_set_log_level(const char* level);

/* Settings by the names of the program's flags, as "context-length"; `hocket run --help` lists
 * them. A switch is "true" or "false". Errors: HOCKET_ERROR_BAD_VALUE, which names the nearest
 * option.
 *
 * One is the library's own. "grammar-trials" is the path of the program `hocket`: its processes try
 * each grammar first, with limits of time and memory, as the server does. Without it a grammar is
 * compiled in this process, and one that is too expensive takes its time and memory, which nothing
 * can stop. Whoever takes grammars from strangers sets it. */
HOCKET_API hocket_options* hocket_options_new(void);
HOCKET_API int hocket_options_set(hocket_options* options, const char* name, const char* value);
HOCKET_API void hocket_options_free(hocket_options* options);
/* The names, from index 0 on; NULL after the last. */
HOCKET_API const char* hocket_option_name(size_t index);

/* Loads the model. What the engine changed by itself is a warning on stderr. The options stay the
 * caller's. */
HOCKET_API int hocket_engine_open(const hocket_options* options, hocket_engine** engine);
/* Cancels what runs, waits for the last events, frees. NULL is nothing. Errors:
 * HOCKET_ERROR_INVALID_REQUEST inside an event handler, where nothing is done. */
HOCKET_API int hocket_engine_close(hocket_engine* engine);
/* info->struct_size is set by the caller. */
HOCKET_API int hocket_engine_info(const hocket_engine* engine, hocket_info* info);

/* Text to tokens: control tokens that are spelled in it are those tokens, and the model's own
 * beginning (bos) is added. */
HOCKET_API int hocket_tokenize(const hocket_engine* engine, const char* text, size_t length,
                               hocket_tokens* tokens);
/* A chat to tokens, by the model's template, up to where its answer begins. messages_json: an array
 * as of OpenAI's chat. extra_json: NULL, or an object with any of `tools` (array),
 * `chat_template_kwargs` (object), `add_generation_prompt`, `continue_final_message` (booleans).
 * Control tokens that are spelled in messages are text. Sizes are bounded as in the server's
 * requests (32 MiB of JSON, 64 levels deep); HOCKET_ERROR_CONTEXT_LENGTH where the chat is far
 * longer than the context. */
HOCKET_API int hocket_chat_tokens(const hocket_engine* engine, const char* messages_json,
                                  const char* extra_json, hocket_tokens* tokens);
/* The same, and whether an answer that has a form begins with thoughts, for
 * hocket_request.thoughts: where the prompt leaves them open, and where the model opens them itself
 * and is expected to (its template is told so, or needs not be). `thoughts` may be NULL. Since
 * version 3. */
HOCKET_API int hocket_chat_prompt(const hocket_engine* engine, const char* messages_json,
                                  const char* extra_json, hocket_tokens* tokens, int32_t* thoughts);
/* Tokens to text, without control tokens. */
HOCKET_API int hocket_detokenize(const hocket_engine* engine, const int32_t* tokens, size_t count,
                                 hocket_text* text);
HOCKET_API void hocket_tokens_free(hocket_tokens* tokens);
HOCKET_API void hocket_text_free(hocket_text* text);

/* The model's own defaults (generation_config.json), a seed nobody chose, and no prompt.
 * request->struct_size is set by the caller. */
HOCKET_API int hocket_request_init(const hocket_engine* engine, hocket_request* request);

/* Hands the request over and returns. `*id` (may be NULL) is set before its first event. After an
 * error no event comes; otherwise exactly one has a finish, and is the last. */
HOCKET_API int hocket_submit(hocket_engine* engine, const hocket_request* request,
                             hocket_event_handler on_event, void* user, uint64_t* id);
/* The same, and returns after the last event. Errors: those of hocket_submit, and what
 * HOCKET_FAILED has as error. */
HOCKET_API int hocket_generate(hocket_engine* engine, const hocket_request* request,
                               hocket_event_handler on_event, void* user);
/* Its last event says HOCKET_CANCELLED, unless it has ended by then. Unknown ids are ignored. */
HOCKET_API void hocket_cancel(hocket_engine* engine, uint64_t id);

#ifdef __cplusplus
}
#endif
