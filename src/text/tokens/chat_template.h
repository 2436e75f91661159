// Renders a conversation to the prompt that a model was trained on, with its Jinja chat template as
// Hugging Face runs it (rust/). A request's text cannot become a control token: see RenderedPrompt.
// Owner: the loader. Thread: any; const calls share it.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/tokens/tokenizer.h"

struct HkTemplate;

namespace hocket {

struct ChatInput {
  nlohmann::ordered_json messages;                                   // array of objects
  nlohmann::ordered_json tools;                                      // array, or null
  nlohmann::ordered_json documents;                                  // array, or null
  nlohmann::ordered_json kwargs = nlohmann::ordered_json::object();  // extra variables
  bool add_generation_prompt = true;
  // The prompt ends with the last message's text, its turn left open.
  bool continue_final_message = false;
  // Time that strftime_now prints; default: the clock.
  std::optional<std::chrono::local_seconds> now;
};

class ChatTemplate {
 public:
  // Loads chat_template.jinja, else the key chat_template of tokenizer_config.json: one template,
  // or a list of named ones, of which only "default" and "tool_use" (with tools) are used. Returns
  // nullopt if there is neither. Errors: bad_template.
  static Result<std::optional<ChatTemplate>> load(const std::filesystem::path& model_dir,
                                                  const Tokenizer& tokenizer);
  // Reads the file of --chat-template FILE.
  static Result<ChatTemplate> from_file(const std::filesystem::path& file,
                                        const Tokenizer& tokenizer);
  // Without a tokenizer, control tokens in a request's text are not broken, and bos_token and
  // eos_token are undefined.
  static Result<ChatTemplate> from_source(std::string_view source, const Tokenizer* tokenizer);

  // Renders the prompt. Message keys whose value is null are dropped; `thinking` and `reasoning` of
  // a message are visible as `reasoning_content`, too. Errors: invalid_request; template_failed
  // with the text given to raise_exception, or with one sentence if the template is wrong or does
  // not end.
  Result<RenderedPrompt> render(const ChatInput& input) const;

  // Returns the Jinja text; several templates follow one another.
  const std::string& source() const { return source_; }

 private:
  struct Free {
    void operator()(HkTemplate* t) const;
  };
  using Handle = std::unique_ptr<HkTemplate, Free>;

  ChatTemplate() = default;
  static Result<Handle> compile(std::string_view source, const Tokenizer* tokenizer);
  static Result<std::optional<ChatTemplate>> from_config(const nlohmann::json& value,
                                                         const Tokenizer& tokenizer);

  Handle default_;
  Handle tool_use_;  // null: default_ also renders with tools
  std::string source_;
};

}  // namespace hocket
