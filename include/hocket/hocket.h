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
 * got the error, until its next call. No function throws or prints to stdout; only a bug in hocket
 * itself ends the process.
 *
 * Threads. Any thread may use an engine, many at a time, until hocket_engine_close, which is the
 * last call with it. Requests run side by side. The engine has one thread that calls the event
 * handlers of all its requests, one after the other; a slow handler delays all of them. A handler
 * may call every function except hocket_generate and hocket_engine_close, which would wait for
 * themselves. Options, token lists and texts belong to one thread at a time. A process that has
 * opened an engine must not fork without exec.
 *
 * Versions. HOCKET_API_VERSION rises when something is added. Existing parts keep their meaning as
 * long as the library's name (libhocket.so.0) stays. Structs begin with their size, which the
 * caller sets, so that they can grow at the end.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HOCKET_API_VERSION 4

#if defined(__GNUC__)
#define HOCKET_API __attribute__((visibility("default")))
#define HOCKET_EXTENSION __extension__ /* unions without a name in C99 */
#else
#define HOCKET_API
#define HOCKET_EXTENSION
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
  HOCKET_ERROR_NO_TOKENIZER = 109,    /* no tokenizer in the folder: use token ids */
  HOCKET_ERROR_TEMPLATE_FAILED = 110, /* the chat template refused the messages, or there is none */
  HOCKET_ERROR_INTERNAL = 199
};

/* Reasoning before an answer of a form: free text up to the mark that ends it. The text of the
 * answer has both, with the marks. */
enum {
  HOCKET_NO_REASONING = 0,       /* the form begins at once */
  HOCKET_REASONING_POSSIBLE = 1, /* it comes if the model writes its opening mark */
  HOCKET_REASONING_OPEN = 2,     /* the prompt has begun it */
  /* Deprecated: the names before version 4. */
  HOCKET_NO_THOUGHTS = HOCKET_NO_REASONING,
  HOCKET_THOUGHTS_POSSIBLE = HOCKET_REASONING_POSSIBLE,
  HOCKET_THOUGHTS_OPEN = HOCKET_REASONING_OPEN
};

/* The end of a request; HOCKET_GOES_ON until its last event. */
enum {
  HOCKET_GOES_ON = 0,
  HOCKET_STOP = 1,      /* an end token, a stop token or a stop text */
  HOCKET_LENGTH = 2,    /* max_new_tokens */
  HOCKET_CANCELLED = 3, /* by hocket_cancel, its event handler, or hocket_engine_close */
  HOCKET_FAILED = 4     /* see error */
};

/* The form of an answer's text, and the content of hocket_request.grammar. Before each token, all
 * tokens that would leave the form are masked, so the answer has the form unless max_new_tokens
 * cuts it off. */
enum {
  HOCKET_FREE_TEXT = 0,
  HOCKET_JSON_SCHEMA = 1,   /* a JSON schema; "{}": any JSON */
  HOCKET_REGEX = 2,         /* for the whole text, in Rust's syntax without look-around */
  HOCKET_EBNF = 3,          /* as llama.cpp (GBNF) and xgrammar write it; begins at `root` */
  HOCKET_LARK = 4,          /* as llguidance reads it */
  HOCKET_CHOICE = 5,        /* a JSON array of texts; one of them is the answer */
  HOCKET_STRUCTURAL_TAG = 6 /* free text in which triggers begin parts of a form, in JSON */
};

typedef struct hocket_options hocket_options;
typedef struct hocket_engine hocket_engine;

/* The library allocates these, the caller frees them. data[length] of a text is 0. */
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
  const char* model_name; /* valid as long as the engine lives */
  int32_t vocab_size;
  int32_t context_length;       /* tokens, prompt and answer together */
  int32_t max_running_requests; /* further requests wait */
  int32_t num_ranks;
  int64_t max_total_tokens; /* capacity of the KV cache */
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
  double temperature; /* 0: always the most likely token */
  double top_p, min_p;
  double frequency_penalty, presence_penalty, repetition_penalty;
  int32_t top_k;               /* 0: all */
  int32_t ignore_eos;          /* 1: the model's end tokens do not end the answer */
  uint64_t seed;               /* the same seed gives the same answer, whatever else runs */
  int32_t logprobs;            /* -1: none; n: for the token and the n likeliest (at most 20) */
  int32_t keep_special_tokens; /* 1: control tokens are part of the text */
  const int32_t* stop_tokens;
  size_t stop_token_count;
  const char* const* stop_texts; /* each ends the answer and is no part of it; at most 64 */
  size_t stop_text_count;
  const int32_t* bias_tokens; /* ascending; bias[i] is added to the logit of bias_tokens[i] */
  const float* bias;
  size_t bias_count;
  /* Since version 2. */
  const char* grammar;  /* in the form of grammar_kind; NULL for HOCKET_FREE_TEXT */
  int32_t grammar_kind; /* the request waits while its grammar is compiled */
  int32_t priority;     /* larger goes first, with the option enable-priority-scheduling */
  /* Since version 3. */
  HOCKET_EXTENSION union {
    int32_t reasoning; /* before the form; hocket_chat_prompt gives the value for a prompt */
    int32_t thoughts;  /* deprecated: its name before version 4 */
  };
  int32_t reserved; /* 0 */
} hocket_request;

/* One event of a request. Its pointers are valid until the handler returns. */
typedef struct hocket_event {
  size_t struct_size;
  uint64_t request;
  int32_t token;    /* -1: this event has no token */
  int32_t finish;   /* HOCKET_GOES_ON; any other value marks the last event */
  const char* text; /* whole characters that became certain; text[text_length] is 0 */
  size_t text_length;
  float logprob; /* for the token; NaN unless asked for */
  int32_t top_count;
  const int32_t* top_tokens; /* likeliest first */
  const float* top_logprobs;
  /* Set in the last event only. */
  int32_t prompt_tokens, cached_tokens, generated_tokens;
  int32_t stop_token;    /* the token that ended the answer; -1: none */
  const char* stop_text; /* the text that ended the answer; NULL: none */
  int32_t error;         /* for HOCKET_FAILED */
  const char* error_message;
  const char* error_fix;
} hocket_event;

/* Returns 0 to go on; any other value cancels the request, whose last event still comes. */
typedef int (*hocket_event_handler)(const hocket_event* event, void* user);

/* Return the version of the running library: its HOCKET_API_VERSION, and the program's ("0.1.0").
 */
HOCKET_API int hocket_api_version(void);
HOCKET_API const char* hocket_version(void);

/* Return the message and the fix of this thread's last error; "" if there is none. */
HOCKET_API const char* hocket_error_message(void);
HOCKET_API const char* hocket_error_fix(void);

/* Sets the level of log lines on stderr, for the whole process: "debug", "info", "warning" (the
 * default here), "error", "off".
 *
 * The library leaves the program's signals as they are. A program whose stderr may be a pipe should
 * ignore SIGPIPE, or it ends when the pipe's reader ends; one that runs below `ulimit -f` should
 * ignore SIGXFSZ, or it ends when a file reaches that limit. The write then fails with an error. */
HOCKET_API int hocket_set_log_level(const char* level);

/* Options have the names of the program's flags, such as "context-length"; `hocket run --help`
 * lists them. A switch is "true" or "false". Errors: HOCKET_ERROR_BAD_VALUE, which names the
 * nearest option.
 *
 * One option exists only here: "grammar-trials" is the path of the program `hocket`, whose
 * processes try each grammar first, with limits of time and memory, as the server does. Without it
 * a grammar is compiled in this process, and nothing can stop one that takes too much time or
 * memory. A program that accepts grammars from strangers should set it. */
HOCKET_API hocket_options* hocket_options_new(void);
HOCKET_API int hocket_options_set(hocket_options* options, const char* name, const char* value);
HOCKET_API void hocket_options_free(hocket_options* options);
/* Returns the name of option `index`, from 0 on; NULL after the last. */
HOCKET_API const char* hocket_option_name(size_t index);

/* Loads the model. A setting that the engine changes by itself is reported as a warning on stderr.
 * The caller still owns the options. */
HOCKET_API int hocket_engine_open(const hocket_options* options, hocket_engine** engine);
/* Cancels running requests, waits for the last events and frees the engine. NULL is allowed.
 * Errors: HOCKET_ERROR_INVALID_REQUEST inside an event handler; the engine then stays open. */
HOCKET_API int hocket_engine_close(hocket_engine* engine);
/* Fills `info`; the caller sets info->struct_size. */
HOCKET_API int hocket_engine_info(const hocket_engine* engine, hocket_info* info);

/* Converts text to tokens. Control tokens spelled in the text become those tokens, and the model's
 * token for the beginning (bos) is added. */
HOCKET_API int hocket_tokenize(const hocket_engine* engine, const char* text, size_t length,
                               hocket_tokens* tokens);
/* Converts a chat to tokens with the model's template, up to the beginning of the answer.
 * messages_json: an array as in OpenAI's chat API. extra_json: NULL, or an object with any of
 * `tools` (array), `chat_template_kwargs` (object), `add_generation_prompt`,
 * `continue_final_message` (booleans). Control tokens spelled in messages stay text. Sizes are
 * limited as in the server's requests (32 MiB of JSON, 64 levels deep). Errors:
 * HOCKET_ERROR_CONTEXT_LENGTH if the chat is far longer than the context. */
HOCKET_API int hocket_chat_tokens(const hocket_engine* engine, const char* messages_json,
                                  const char* extra_json, hocket_tokens* tokens);
/* Does the same and sets `reasoning` (may be NULL) for hocket_request.reasoning: an answer of a
 * form begins with reasoning if the prompt leaves it open, or if the model opens it itself and the
 * chat asks it to think or its template always does. Since version 3. */
HOCKET_API int hocket_chat_prompt(const hocket_engine* engine, const char* messages_json,
                                  const char* extra_json, hocket_tokens* tokens,
                                  int32_t* reasoning);
/* Converts tokens to text, without control tokens. */
HOCKET_API int hocket_detokenize(const hocket_engine* engine, const int32_t* tokens, size_t count,
                                 hocket_text* text);
HOCKET_API void hocket_tokens_free(hocket_tokens* tokens);
HOCKET_API void hocket_text_free(hocket_text* text);

/* Fills a request with the model's defaults (generation_config.json), a random seed and no prompt.
 * The caller sets request->struct_size. */
HOCKET_API int hocket_request_init(const hocket_engine* engine, hocket_request* request);

/* Submits the request and returns. Sets `*id` (may be NULL) before the first event. After an error
 * no event comes; otherwise exactly the last event has a finish. */
HOCKET_API int hocket_submit(hocket_engine* engine, const hocket_request* request,
                             hocket_event_handler on_event, void* user, uint64_t* id);
/* Submits the request and returns after its last event. Errors: those of hocket_submit, and the
 * error of an event with HOCKET_FAILED. */
HOCKET_API int hocket_generate(hocket_engine* engine, const hocket_request* request,
                               hocket_event_handler on_event, void* user);
/* Cancels a request: its last event has HOCKET_CANCELLED, unless it has already ended. Ignores
 * unknown ids. */
HOCKET_API void hocket_cancel(hocket_engine* engine, uint64_t id);

#ifdef __cplusplus
}
#endif
