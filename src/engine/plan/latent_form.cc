#include "engine/plan/latent_form.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/text_file.h"
#include "gguf/tokenizer_json.h"

namespace hocket {
namespace {

// Only files know the format of each matrix, and a count of operations does not depend on it.
ModelChoice without_formats(ModelChoice choice) {
  choice.model.quant = {};
  choice.model.num_mtp_layers = choice.model.num_mtp_loaded = 0;
  choice.quantize = WeightFormat::bf16;
  choice.headers = nullptr;
  return choice;
}

// Tokens behind which an answer follows, in the chat formats of models with latents.
constexpr std::string_view kAnswerBegins[] = {
    "<｜Assistant｜>",  "<｜tool▁output▁end｜>", "<｜tool▁outputs▁end｜>",  // DeepSeek
    "<|im_assistant|>",                                                     // Kimi
    "<|assistant|>",                                                        // GLM
    "[/INST]",          "[/TOOL_RESULTS]"};                                 // Mistral
constexpr size_t kMaxAnswerBegins = 8;

// Returns the text of tokenizer.json; empty if there is none that can be read, which the tokenizer
// says where it is loaded.
std::string read_tokenizer(const std::filesystem::path& path) {
  constexpr size_t kMaxBytes = size_t{256} << 20;
  Result<std::string> text;
  if (const auto gguf = gguf_file_of(path); !gguf.empty()) {
    const auto file = GgufFile::open(gguf, GgufExtent::header);
    if (!file) return {};
    text = gguf_tokenizer_json(**file);
  } else {
    text = read_text_file((path / kTokenizerFile).string(), kMaxBytes);
  }
  return text ? *std::move(text) : std::string();
}

// Returns the ids of the known tokens among `added_tokens`, in the file's sequence.
std::vector<TokenId> known_answer_begins(const std::filesystem::path& path, int vocab_size) {
  std::vector<TokenId> ids;
  simdjson::dom::parser parser;
  simdjson::dom::array tokens;
  if (parser.parse(read_tokenizer(path))["added_tokens"].get(tokens) != simdjson::SUCCESS)
    return ids;
  for (const simdjson::dom::element token : tokens) {
    uint64_t id = 0;
    std::string_view text;
    if (token["id"].get(id) != simdjson::SUCCESS || id >= static_cast<uint64_t>(vocab_size) ||
        token["content"].get(text) != simdjson::SUCCESS || ids.size() == kMaxAnswerBegins)
      continue;
    if (std::ranges::find(kAnswerBegins, text) != std::end(kAnswerBegins))
      ids.push_back(TokenId{static_cast<int>(id)});
  }
  return ids;
}

}  // namespace

Result<std::vector<TokenId>> choose_answer_begins(const ServerSettings& settings,
                                                  const ModelConfig& model) {
  const ModelSettings& from = settings.model;
  std::string_view form = settings.compute.mla_form;
  if (form == "auto")
    return known_answer_begins(from.tokenizer_path.empty() ? from.model_path : from.tokenizer_path,
                               model.vocab_size);
  std::vector<TokenId> ids;
  if (!form.starts_with(kAnswersPrefix)) return ids;
  form.remove_prefix(kAnswersPrefix.size());
  for (const char *at = form.data(), *end = at + form.size();; ++at) {
    int id = -1;
    const auto [behind, problem] = std::from_chars(at, end, id);
    if (problem != std::errc() || id < 0 || id >= model.vocab_size ||
        ids.size() == kMaxAnswerBegins || (behind != end && *behind != ','))
      return fail(error(ErrorCode::bad_value,
                        "--mla-form {} does not list 1 to {} ids below {}, with commas",
                        settings.compute.mla_form, kMaxAnswerBegins, model.vocab_size)
                      .with_param("mla-form")
                      .with_fix("--mla-form auto"));
    ids.push_back(TokenId{id});
    if (behind == end) return ids;
    at = behind;
  }
}

bool caches_whole_answers(const ModelConfig& model, MlaForm prompt_form) {
  return model.mla.kv_rank == 0 || prompt_form == MlaForm::absorbed;
}

double absorbed_cost_ratio(const ModelCost& cost) {
  PassShape pass = cost.prefill(kComparedPromptLen, 0);
  pass.form = MlaForm::expanded;
  const double expanded = cost.operations(pass).all();
  pass.form = MlaForm::absorbed;
  return cost.operations(pass).all() / expanded;
}

Result<LatentForm> describe_latents(const ServerSettings& settings, const ModelChoice& choice) {
  LatentForm form;
  if (choice.model.mla.kv_rank == 0 || settings.compute.mla_form != "auto") return form;
  HOCKET_TRY(const ModelCost cost, ModelCost::measure(without_formats(choice)));
  const std::string price =
      fmt::format("a prompt of {} tokens takes {:.2f} times the operations of the expanded form",
                  kComparedPromptLen, absorbed_cost_ratio(cost));
  if (choice.prompt_form == MlaForm::absorbed)
    form.change = {.flag = "--mla-form",
                   .from = "auto",
                   .to = "absorbed",
                   .why =
                       "beside delta nets a prefix may end inside an answer, whose rows are "
                       "absorbed; " +
                       price};
  else if (choice.answer_begins.empty() && !settings.scheduler.disable_radix_cache)
    form.note =
        "--mla-form auto: the prefix cache keeps no answers, so each turn of a conversation "
        "computes the answer before it again, since the tokenizer has no token that is known to "
        "open an answer; --mla-form absorbed keeps them, and " +
        price;
  return form;
}

}  // namespace hocket
