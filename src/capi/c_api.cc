// Implements the functions of include/hocket/hocket.h with OfflineEngine.
#include <hocket/hocket.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <future>
#include <new>

#include "base/log.h"
#include "capi/c_structs.h"
#include "capi/options.h"
#include "core/version.h"

// NOLINTBEGIN(readability-identifier-naming): named by the header
struct hocket_options {
  hocket::EmbeddedSettings settings;
};
struct hocket_engine {
  std::unique_ptr<hocket::OfflineEngine> offline;
};
// NOLINTEND(readability-identifier-naming)

namespace hocket {
namespace {

static_assert(HOCKET_ERROR_BAD_VALUE == static_cast<int>(ErrorCode::bad_value));
static_assert(HOCKET_ERROR_MODEL_NOT_FOUND == static_cast<int>(ErrorCode::model_not_found));
static_assert(HOCKET_ERROR_OUT_OF_MEMORY == static_cast<int>(ErrorCode::out_of_memory));
static_assert(HOCKET_ERROR_INVALID_REQUEST == static_cast<int>(ErrorCode::invalid_request));
static_assert(HOCKET_ERROR_CONTEXT_LENGTH == static_cast<int>(ErrorCode::context_length_exceeded));
static_assert(HOCKET_ERROR_QUEUE_FULL == static_cast<int>(ErrorCode::queue_full));
static_assert(HOCKET_ERROR_SHUTTING_DOWN == static_cast<int>(ErrorCode::shutting_down));
static_assert(HOCKET_ERROR_NO_TOKENIZER == static_cast<int>(ErrorCode::no_tokenizer));
static_assert(HOCKET_ERROR_TEMPLATE_FAILED == static_cast<int>(ErrorCode::template_failed));
static_assert(HOCKET_ERROR_INTERNAL == static_cast<int>(ErrorCode::internal));

thread_local Error last_error;
std::atomic<bool> level_is_chosen = false;

int fail_with(Error e) {
  last_error = std::move(e);
  return static_cast<int>(last_error.code);
}

// Runs `body`, which returns a Result; an exception becomes an error, too.
template <class Body>
int guarded(Body&& body) noexcept {
  try {
    last_error = {};
    const Result<void> done = body();
    return done ? static_cast<int>(HOCKET_OK) : fail_with(done.error());
  } catch (const std::bad_alloc&) {
    last_error.message = "out of memory";  // so short that it is stored without allocating
    return static_cast<int>(last_error.code = ErrorCode::out_of_memory);
  } catch (const std::exception& e) {
    return fail_with(error(ErrorCode::internal, "{}", e.what()));
  } catch (...) {
    return fail_with(error(ErrorCode::internal, "an unknown exception"));
  }
}

template <class T>
T* copy_out(const T* from, size_t count) {
  T* copy = new T[count + 1]{};
  std::copy(from, from + count, copy);
  return copy;
}

Result<void> hand_out(const std::vector<TokenId>& ids, hocket_tokens* tokens) {
  static_assert(sizeof(TokenId) == sizeof(int32_t));
  tokens->data = copy_out(reinterpret_cast<const int32_t*>(ids.data()), ids.size());
  tokens->count = ids.size();
  return {};
}

Result<void> submit(hocket_engine* engine, const hocket_request* request,
                    OfflineEngine::Listener listener, uint64_t* id) {
  HOCKET_TRY_VOID(need(engine, "engine"));
  OfflineEngine& offline = *engine->offline;
  HOCKET_TRY(TextRequest read, read_request(offline, request));
  const RequestId own = Engine::next_request_id();
  if (id != nullptr) *id = value(own);
  return offline.submit(own, std::move(read), std::move(listener));
}

Result<void> not_in_handler(const hocket_engine& engine, const char* what) {
  if (!engine.offline->in_listener()) return {};
  return fail(error(ErrorCode::invalid_request,
                    "{} was called by an event handler, and would wait for itself", what)
                  .with_fix("hocket_submit, or another thread"));
}

Result<void> generate(hocket_engine* engine, const hocket_request* request,
                      hocket_event_handler on_event, void* user) {
  HOCKET_TRY_VOID(need(engine, "engine"));
  HOCKET_TRY_VOID(not_in_handler(*engine, "hocket_generate"));
  std::promise<Result<void>> promise;
  std::future<Result<void>> outcome = promise.get_future();
  auto listen = [promise = std::move(promise),
                 caller = HandlerCaller(on_event, user)](const TextEvent& event) mutable {
    const bool wants_more = caller(event);
    if (event.ending == nullptr) return wants_more;
    const bool failed = event.ending->finish == FinishReason::error;
    promise.set_value(failed ? Result<void>(fail(event.ending->error)) : Result<void>());
    return wants_more;
  };
  HOCKET_TRY_VOID(submit(engine, request, std::move(listen), nullptr));
  return outcome.get();
}

}  // namespace
}  // namespace hocket

using namespace hocket;  // NOLINT(google-build-using-namespace): the functions below are C's

int hocket_api_version() {
  return HOCKET_API_VERSION;
}

const char* hocket_version() {
  return kVersion.data();
}

const char* hocket_error_message() {
  return last_error.message.c_str();
}

const char* hocket_error_fix() {
  return last_error.fix.c_str();
}

int hocket_set_log_level(const char* level) {
  return guarded([&]() -> Result<void> {
    HOCKET_TRY_VOID(need(level, "level"));
    HOCKET_TRY(const log::Level parsed, log::parse_level(level));
    level_is_chosen = true;
    log::set_level(parsed);
    return {};
  });
}

hocket_options* hocket_options_new() {
  return new (std::nothrow) hocket_options;
}

int hocket_options_set(hocket_options* options, const char* name, const char* value) {
  return guarded([&]() -> Result<void> {
    HOCKET_TRY_VOID(need(options, "options"));
    HOCKET_TRY_VOID(need(name, "name"));
    HOCKET_TRY_VOID(need(value, "value"));
    return set_option(options->settings, name, value);
  });
}

void hocket_options_free(hocket_options* options) {
  delete options;
}

const char* hocket_option_name(size_t index) {
  return option_name(index);
}

int hocket_engine_open(const hocket_options* options, hocket_engine** engine) {
  return guarded([&]() -> Result<void> {
    HOCKET_TRY_VOID(need(options, "options"));
    HOCKET_TRY_VOID(need(engine, "engine"));
    *engine = nullptr;
    if (!level_is_chosen.exchange(true)) log::set_level(log::Level::warning);
    HOCKET_TRY(auto offline, OfflineEngine::open(options->settings));
    *engine = new hocket_engine{std::move(offline)};
    return {};
  });
}

int hocket_engine_close(hocket_engine* engine) {
  return guarded([&]() -> Result<void> {
    if (engine == nullptr) return {};
    HOCKET_TRY_VOID(not_in_handler(*engine, "hocket_engine_close"));
    delete engine;
    return {};
  });
}

int hocket_engine_info(const hocket_engine* engine, hocket_info* info) {
  return guarded([&]() -> Result<void> {
    HOCKET_TRY_VOID(need(engine, "engine"));
    const EngineInfo& all = engine->offline->info();
    hocket_info ours{};
    ours.model_name = all.served_model_name.c_str();
    ours.vocab_size = all.model.vocab_size;
    ours.context_length = all.context_length;
    ours.max_running_requests = all.max_running_requests;
    ours.num_ranks = all.num_ranks;
    ours.max_total_tokens = all.max_total_tokens;
    ours.weight_bytes = all.weight_bytes;
    ours.kv_bytes = all.kv_bytes;
    ours.load_seconds = all.load_seconds;
    ours.has_tokenizer = engine->offline->tokenizer() != nullptr ? 1 : 0;
    ours.has_chat_template = engine->offline->has_chat_template() ? 1 : 0;
    return hand_out(ours, info, "info");
  });
}

int hocket_tokenize(const hocket_engine* engine, const char* text, size_t length,
                    hocket_tokens* tokens) {
  return guarded([&]() -> Result<void> {
    HOCKET_TRY_VOID(need(engine, "engine"));
    HOCKET_TRY_VOID(need(text, "text"));
    HOCKET_TRY_VOID(need(tokens, "tokens"));
    HOCKET_TRY(const auto ids, engine->offline->tokenize({text, length}));
    return hand_out(ids, tokens);
  });
}

int hocket_chat_prompt(const hocket_engine* engine, const char* messages_json,
                       const char* extra_json, hocket_tokens* tokens, int32_t* reasoning) {
  return guarded([&]() -> Result<void> {
    HOCKET_TRY_VOID(need(engine, "engine"));
    HOCKET_TRY_VOID(need(messages_json, "messages_json"));
    HOCKET_TRY_VOID(need(tokens, "tokens"));
    HOCKET_TRY(const ChatTokens chat, engine->offline->chat_tokens(
                                          messages_json, extra_json == nullptr ? "" : extra_json));
    if (reasoning != nullptr) *reasoning = static_cast<int32_t>(chat.reasoning_start);
    return hand_out(chat.ids, tokens);
  });
}

int hocket_chat_tokens(const hocket_engine* engine, const char* messages_json,
                       const char* extra_json, hocket_tokens* tokens) {
  return hocket_chat_prompt(engine, messages_json, extra_json, tokens, nullptr);
}

int hocket_detokenize(const hocket_engine* engine, const int32_t* tokens, size_t count,
                      hocket_text* text) {
  return guarded([&]() -> Result<void> {
    HOCKET_TRY_VOID(need(engine, "engine"));
    HOCKET_TRY_VOID(need(text, "text"));
    if (count > 0) HOCKET_TRY_VOID(need(tokens, "tokens"));
    HOCKET_TRY(const std::string decoded, engine->offline->detokenize(token_ids(tokens, count)));
    text->data = copy_out(decoded.data(), decoded.size());
    text->length = decoded.size();
    return {};
  });
}

void hocket_tokens_free(hocket_tokens* tokens) {
  if (tokens == nullptr) return;
  delete[] tokens->data;
  *tokens = {};
}

void hocket_text_free(hocket_text* text) {
  if (text == nullptr) return;
  delete[] text->data;
  *text = {};
}

int hocket_request_init(const hocket_engine* engine, hocket_request* request) {
  return guarded([&]() -> Result<void> {
    HOCKET_TRY_VOID(need(engine, "engine"));
    return hand_out(default_request(*engine->offline), request, "request");
  });
}

int hocket_submit(hocket_engine* engine, const hocket_request* request,
                  hocket_event_handler on_event, void* user, uint64_t* id) {
  return guarded([&]() -> Result<void> {
    if (on_event == nullptr) return fail(ErrorCode::bad_value, "on_event is NULL");
    return submit(engine, request, HandlerCaller(on_event, user), id);
  });
}

int hocket_generate(hocket_engine* engine, const hocket_request* request,
                    hocket_event_handler on_event, void* user) {
  return guarded([&]() -> Result<void> {
    if (on_event == nullptr) return fail(ErrorCode::bad_value, "on_event is NULL");
    return generate(engine, request, on_event, user);
  });
}

void hocket_cancel(hocket_engine* engine, uint64_t id) {
  if (engine != nullptr) engine->offline->cancel(RequestId{id});
}
