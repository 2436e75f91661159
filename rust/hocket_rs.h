// C face of libhocket_rs.a: tokenizer, chat template, grammar masks.
// Status: 0 ok, -1 error, -2 caught panic; the sentence is in hk_last_error (per thread).
// Threads: HkTokenizer, HkTemplate and HkGrammar may be shared; HkDetok and HkMatcher belong to
// one thread at a time. Handles keep what they need alive, so the order of freeing is free.
// Every HkBuf that was filled must be given to hk_buf_free. Text is UTF-8 without a final NUL.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  uint8_t* ptr;
  size_t len, cap;
} HkBuf;
typedef struct HkTokenizer HkTokenizer;
typedef struct HkDetok HkDetok;
typedef struct HkTemplate HkTemplate;
typedef struct HkGrammar HkGrammar;
typedef struct HkMatcher HkMatcher;
typedef struct HkStopRegex HkStopRegex;
typedef struct HkStopSearch HkStopSearch;

void hk_buf_free(HkBuf*);
// Copies the sentence into `out`, cut to `cap` and NUL-terminated; returns its full length.
size_t hk_last_error(char* out, size_t cap);
// Panics on purpose: shows that a panic inside the library comes back as -2.
int32_t hk_test_panic(size_t index);

// ---- tokenizer ----
int32_t hk_tokenizer_new(const char* json, size_t n, HkTokenizer** out);
void hk_tokenizer_free(HkTokenizer*);
// A pattern of the file that takes quadratic time on some texts; empty: none was found.
int32_t hk_tokenizer_slow_pattern(const HkTokenizer*, HkBuf* out);

// The vocabulary as a table. Token i has bytes[ends[i-1], ends[i]) and flags[i].
enum { HK_TOKEN_KNOWN = 1, HK_TOKEN_SPECIAL = 2, HK_TOKEN_CONTROL = 4 };
typedef struct {
  HkBuf bytes;      // what each token adds to the output
  HkBuf ends;       // uint32 for each id
  HkBuf flags;      // uint8 for each id
  bool byte_exact;  // decoding is nothing but joining these bytes
} HkVocabulary;
int32_t hk_tokenizer_vocabulary(const HkTokenizer*, HkVocabulary* out);

// `mark` is the character that disarms special tokens (0: none, see hk_template_render); it is
// removed before the text is cut into tokens. With special_as_text no special token is recognised.
typedef struct {
  bool add_special;
  bool special_as_text;
  uint32_t mark;
} HkEncode;
int32_t hk_encode(const HkTokenizer*, const char* s, size_t n, const HkEncode* how, HkBuf* out_u32);
int32_t hk_decode(const HkTokenizer*, const uint32_t* ids, size_t n, bool skip_special, HkBuf* out);

// Incremental decoding where tokens are not plain bytes (see HkVocabulary.byte_exact).
int32_t hk_detok_new(const HkTokenizer*, bool skip_special, HkDetok** out);
int32_t hk_detok_step(HkDetok*, uint32_t id, HkBuf* out);
int32_t hk_detok_flush(HkDetok*, HkBuf* out);
void hk_detok_free(HkDetok*);

// ---- chat template ----
// `variables` is a JSON object that every rendering sees (bos_token ...). `guard` may be null:
// then nothing is disarmed.
int32_t hk_template_new(const char* source, size_t n, const char* variables, size_t variables_n,
                        const HkTokenizer* guard, HkTemplate** out);
// `context` is a JSON object. Each control token that its strings spell is broken by the
// character *mark, which occurs nowhere else in `out`. `local_seconds`: seconds since 1970 on the
// local wall clock, what strftime_now prints. continue_final cuts after the last message's text.
typedef struct {
  int64_t local_seconds;
  bool continue_final;
} HkRender;
int32_t hk_template_render(const HkTemplate*, const char* context, size_t n, const HkRender* how,
                           HkBuf* out, uint32_t* mark);
void hk_template_free(HkTemplate*);

// ---- grammar ----
// `ends`: the model's end tokens, one at least. The tokenizer need not outlive the call.
int32_t hk_grammar_new(const HkTokenizer*, const char* tokenizer_json, size_t n, size_t vocab,
                       const uint32_t* ends, size_t ends_n, HkGrammar** out);
void hk_grammar_free(HkGrammar*);
// kind: "json_schema", "regex" or "lark".
int32_t hk_matcher_new(const HkGrammar*, const char* kind, size_t kind_n, const char* text,
                       size_t n, HkMatcher** out);
// In the state of its original, sharing nothing with it.
int32_t hk_matcher_copy(const HkMatcher*, HkMatcher** out);
// Bytes that the matcher holds. They grow with its calls; a matcher that holds 64 MiB gives errors
// only.
size_t hk_matcher_bytes(const HkMatcher*);
// One bit per token: bit i % 32 of word i / 32.
int32_t hk_matcher_mask(HkMatcher*, uint32_t* mask, size_t words);
int32_t hk_matcher_accept(HkMatcher*, uint32_t id);
int32_t hk_matcher_rollback(HkMatcher*, size_t n);
// Tokens that the grammar forces next; empty where there is a choice.
int32_t hk_matcher_forced(HkMatcher*, HkBuf* out_u32);
// Counts how many of the tokens may follow one behind the other; none of them is taken.
int32_t hk_matcher_allowed(HkMatcher*, const uint32_t* ids, size_t n, size_t* out);
// Bit 0: the text may end here; bit 1: nothing more may follow.
int32_t hk_matcher_state(HkMatcher*, uint32_t* bits);
void hk_matcher_free(HkMatcher*);

// ---- regular expressions that end an answer ----
// `json`: a list of patterns. One that matches the empty text is an error.
int32_t hk_stop_regex_new(const char* json, size_t n, HkStopRegex** out);
void hk_stop_regex_free(HkStopRegex*);
int32_t hk_stop_search_new(const HkStopRegex*, HkStopSearch** out);
// The text goes on. *pattern: the one whose match ended first (-1: none yet), and then *kept: how
// many of these bytes come before that end. An error where the search takes too much time.
int32_t hk_stop_search_push(HkStopSearch*, const char* text, size_t n, int32_t* pattern,
                            size_t* kept);
// The text has ended: the pattern that this end completes (-1: none).
int32_t hk_stop_search_end(HkStopSearch*, int32_t* pattern);
void hk_stop_search_free(HkStopSearch*);

#ifdef __cplusplus
}
#endif
