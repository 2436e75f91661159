// hocket run: answers one prompt, or chats in the terminal, without a server.
#include <fmt/core.h>
#include <unistd.h>

#include <iostream>
#include <random>

#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/loaded_model.h"
#include "base/log.h"
#include "text/tokens/detokenizer.h"

namespace hocket {
namespace {

struct RunOptions {
  ServerSettings settings;
  std::string prompt, system;
  bool raw = false;
  int max_tokens = 0;       // 0: the rest of the context
  double temperature = -1;  // -1: the model's default
  double top_p = -1;
  uint64_t seed = 0;  // 0: a random one
};

std::vector<FlagGroup> run_flags(RunOptions& o) {
  std::vector<FlagGroup> groups = model_flags(o.settings);
  groups.insert(
      groups.begin(),
      {"Run",
       {{"prompt", &o.prompt, "the question; a chat in the terminal if absent", "p"},
        {"system", &o.system, "system message", ""},
        {"raw", &o.raw, "give the prompt to the model as it stands, without chat template", ""},
        {"max-tokens", &o.max_tokens, "length of an answer; 0: the rest of the context", ""},
        {"temperature", &o.temperature, "-1: the model's default", ""},
        {"top-p", &o.top_p, "-1: the model's default", ""},
        {"seed", &o.seed, "0: a random one", ""}}});
  return groups;
}

class Conversation {
 public:
  Conversation(LoadedModel& model, const RunOptions& options) : model_(model), options_(options) {
    if (!options.system.empty()) add("system", options.system);
    model_.engine->start(outbox_);
  }
  ~Conversation() { model_.engine->stop(); }
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  // Prints the answer as it arrives. Errors: those of the template, the tokenizer and the engine.
  Result<void> ask(const std::string& text) {
    HOCKET_TRY(std::vector<TokenId> prompt, prompt_for(text));
    RequestInput input{.id = Engine::next_request_id(), .prompt = std::move(prompt)};
    HOCKET_TRY(input.sampling, sampling(std::ssize(input.prompt)));
    HOCKET_TRY_VOID(model_.engine->submit(std::move(input)));
    HOCKET_TRY(const std::string answer, print_answer());
    if (!options_.raw) add("assistant", answer);
    return {};
  }

 private:
  void add(const std::string& role, const std::string& content) {
    messages_.push_back({{"role", role}, {"content", content}});
  }

  Result<std::vector<TokenId>> prompt_for(const std::string& text) {
    if (options_.raw) return model_.tokenizer->encode(text);
    if (!model_.chat_template)
      return fail(error(ErrorCode::template_failed, "the model has no chat template")
                      .with_fix("--chat-template FILE, or --raw"));
    add("user", text);
    HOCKET_TRY(const RenderedPrompt rendered,
               model_.chat_template->render({.messages = messages_}));
    return model_.tokenizer->encode(rendered);
  }

  Result<SamplingParams> sampling(int64_t prompt_len) const {
    const EngineInfo& info = model_.engine->info();
    const GenerationDefaults& defaults = info.generation_defaults;
    const auto rest = info.context_length - prompt_len;
    if (rest < 1)
      return fail(ErrorCode::context_length_exceeded,
                  "the conversation has {} tokens, the context is {}", prompt_len,
                  info.context_length);
    SamplingParams p;
    p.temperature =
        options_.temperature >= 0 ? options_.temperature : defaults.temperature.value_or(1.0);
    p.top_p = options_.top_p >= 0 ? options_.top_p : defaults.top_p.value_or(1.0);
    p.top_k = defaults.top_k.value_or(0);
    p.min_p = defaults.min_p.value_or(0.0);
    p.repetition_penalty = defaults.repetition_penalty.value_or(1.0);
    p.seed = options_.seed != 0 ? options_.seed : std::random_device{}();
    p.max_new_tokens = static_cast<int>(
        options_.max_tokens > 0 ? std::min<int64_t>(options_.max_tokens, rest) : rest);
    return p;
  }

  Result<std::string> print_answer() {
    Detokenizer detokenizer(*model_.tokenizer, SpecialTokens::skip);
    std::string answer;
    const auto print = [&](std::string_view piece) {
      answer += piece;
      fmt::print("{}", piece);
      std::fflush(stdout);
    };
    while (true) {
      const std::optional<RequestOutput> output = outbox_.wait_pop(std::chrono::seconds(1));
      if (!output) continue;
      if (value(output->token) >= 0) print(detokenizer.step(output->token));
      if (!output->summary) continue;
      print(detokenizer.flush());
      fmt::print("\n");
      if (output->summary->finish == FinishReason::error)
        return std::unexpected(std::move(output->summary->error));
      return answer;
    }
  }

  LoadedModel& model_;
  const RunOptions& options_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  Outbox outbox_{1024};
};

Result<int> chat(Conversation& conversation) {
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal) fmt::print("Type a message; an empty line or Ctrl-D ends.\n");
  std::string line;
  while (true) {
    if (terminal) fmt::print("> ");
    std::fflush(stdout);
    if (!std::getline(std::cin, line) || line.empty()) return 0;
    HOCKET_TRY_VOID(conversation.ask(line));
  }
}

Result<int> run_model(const Arguments& arguments) {
  RunOptions options;
  options.settings.memory.max_running_requests = 1;
  HOCKET_TRY(const bool go,
             parse_flags({.command = "run",
                          .about = "answer one prompt, or chat in the terminal, without a server",
                          .groups = run_flags(options)},
                         arguments));
  if (!go) return 0;
  log::set_level(log::Level::warning);
  HOCKET_TRY_VOID(choose_model(options.settings));
  HOCKET_TRY(LoadedModel model, load_model(options.settings));
  if (!model.tokenizer)
    return fail(error(ErrorCode::bad_tokenizer, "{} has no tokenizer.json",
                      options.settings.model.model_path)
                    .with_fix("--tokenizer-path DIR"));
  Conversation conversation(model, options);
  if (options.prompt.empty()) return chat(conversation);
  HOCKET_TRY_VOID(conversation.ask(options.prompt));
  return 0;
}

}  // namespace

int run(const Arguments& arguments) {
  const Result<int> done = run_model(arguments);
  return done ? *done : report(done.error());
}

}  // namespace hocket
