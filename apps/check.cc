// hocket check: compares this engine's numbers with those of Hugging Face, one line a quantity.
#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/loaded_model.h"
#include "compute/weights/hf_config.h"
#include "compute/weights/progress_bar.h"
#include "engine/check/checker.h"
#include "engine/check/quality.h"
#include "text/tokens/golden_cases.h"

namespace hocket {
namespace {

class Report {
 public:
  enum class Output : uint8_t { table, json };
  explicit Report(Output output) : output_(output) {}

  void add(const std::vector<CheckLine>& lines) {
    for (const CheckLine& line : lines) add(line);
  }

  void add(const CheckLine& line) {
    count(line.ok);
    if (output_ == Output::json) {
      // JSON has no infinity: a NaN among the numbers leaves `worst` null.
      return print({{"dtype", line.dtype},
                    {"way", line.way},
                    {"quantity", line.quantity},
                    {"compared", line.compared},
                    {line.measure, line.worst},
                    {"atol", line.tolerance.atol},
                    {"rtol", line.tolerance.rtol},
                    {"ok", line.ok},
                    {"first_failure", line.first_failure}});
    }
    fmt::print("{:<8} {:<12} {:<26} {:>6} numbers  {:<5} {:<9.3g} of {:<18} {}\n", line.dtype,
               line.way, line.quantity, line.compared, line.measure, line.worst,
               tolerance(line.tolerance), line.ok ? "ok" : "FAILED");
    explain(line.first_failure);
  }

  void add(const std::vector<GoldenLine>& lines) {
    for (const GoldenLine& line : lines) {
      count(line.failed == 0);
      if (output_ == Output::json) {
        print({{"quantity", line.name},
               {"compared", line.cases},
               {"failed", line.failed},
               {"ok", line.failed == 0},
               {"first_failure", line.first_failure}});
        continue;
      }
      fmt::print("{:<48} {:>6} cases    {} failed {:>29}\n", line.name, line.cases, line.failed,
                 line.failed == 0 ? "ok" : "FAILED");
      explain(line.first_failure);
    }
  }

  bool empty() const { return num_ok_ + num_failed_ == 0; }
  // Prints the totals of a table and returns the exit status.
  int close() const {
    if (output_ == Output::table) fmt::print("{} quantities ok, {} FAILED\n", num_ok_, num_failed_);
    return num_failed_ == 0 ? 0 : 1;
  }

 private:
  static std::string tolerance(const Tolerance& t) {
    if (t.atol == 0 && t.rtol == 0) return "0";
    return t.rtol == 0 ? fmt::format("{:.3g}", t.atol)
                       : fmt::format("{:.0e} + {:.0e} |x|", t.atol, t.rtol);
  }
  static void print(const nlohmann::json& object) { fmt::print("{}\n", object.dump()); }
  static void explain(const std::string& failure) {
    if (!failure.empty()) fmt::print("    {}\n", failure);
  }
  void count(bool ok) { ++(ok ? num_ok_ : num_failed_); }

  Output output_;
  int num_ok_ = 0, num_failed_ = 0;
};

// The outputs that a model's folder holds to be compared with: one of the two.
struct Expectation {
  std::optional<Reference> reference;
  std::vector<Recorded> recorded;
};

Result<Expectation> find_expectation(const std::filesystem::path& path) {
  HOCKET_TRY(const ModelConfig model, read_hf_config(path));
  const std::filesystem::path folder =
      std::filesystem::is_directory(path) ? path : path.parent_path();
  Expectation found;
  if (std::filesystem::exists(folder / "reference.json")) {
    HOCKET_TRY(found.reference, Reference::read(folder, model));
    return found;
  }
  if (std::filesystem::exists(folder / "expected.json")) {
    HOCKET_TRY(found.recorded, read_recorded(folder / "expected.json"));
    return found;
  }
  return fail(error(ErrorCode::model_not_found,
                    "{} has no reference outputs to check against: neither reference.json with "
                    "reference.safetensors, nor expected.json",
                    folder.string())
                  .with_fix("a folder as in tests/golden, or none for the bundled model"));
}

// Returns true if this form of the model computed the expected outputs. No form with int8 products,
// KV or rows did, and recorded answers come from the model before its files were quantized.
bool is_of_this_form(const Expectation& expected, const ModelChoice& choice) {
  const WeightFormat format = choice.weight_format();
  if (choice.kv_dtype == DType::int8 || choice.dispatch_dtype == DType::int8 ||
      choice.combine_dtype == DType::int8 || is_integer(format))
    return false;
  // Nothing bounds the difference of bf16 then.
  if (expected.reference && choice.dtype == DType::bf16 &&
      expected.reference->bf16_logits_max_abs == 0)
    return false;
  return expected.reference || choice.model.quant.layout == QuantConfig::Layout::none;
}

std::vector<std::string> dtypes_of(const ServerSettings& settings) {
  if (settings.model.dtype != "auto") return {settings.model.dtype};
  if (settings.model.quantization != "none" || settings.memory.kv_cache_dtype != "auto" ||
      settings.parallel.dispatch_dtype != "auto" || settings.parallel.combine_dtype != "auto")
    return {"bfloat16"};
  return {"float32", "bfloat16"};
}

// Returns of how many modules drafts are compared. A reference's are compared exactly, which only
// float32 allows; recorded ones have margins. A copy of the model may have lost its module.
int num_modules(const Expectation& expected, const ModelChoice& choice) {
  if (expected.reference) return choice.dtype == DType::f32 ? expected.reference->num_modules() : 0;
  return choice.model.num_mtp_layers > 0 && has_drafts(expected.recorded) ? 1 : 0;
}

// Compares one form of the model with the expected outputs and with a less rounded form.
Result<void> check_form(const ServerSettings& settings, const std::string& against,
                        const Expectation& expected, Report& report) {
  ProgressBar bar("weights");
  const auto progress = [&](const LoadProgress& p) { bar.update(p); };
  HOCKET_TRY(const ModelChoice choice, choose_model_form(settings));
  if (const int ranks = settings.parallel.ep_size; ranks > 1)
    fmt::print("on one rank, which has the bits of {} ranks\n", ranks);
  if (against.empty() && is_of_this_form(expected, choice)) {
    ServerSettings with_modules = settings;
    with_modules.model.max_mtp_modules = num_modules(expected, choice);
    HOCKET_TRY(
        const auto runner,
        Runner::create({.settings = with_modules, .progress = progress, .tokenizer_eos = {}}));
    HOCKET_TRY(const std::vector<CheckLine> lines,
               expected.reference ? check_reference(*runner, *expected.reference)
                                  : check_recorded(*runner, expected.recorded));
    report.add(lines);
  }
  const Roundings roundings = roundings_of(choice, against);
  if (!roundings.any()) return {};
  const auto scripts =
      expected.reference ? scripts_of(*expected.reference) : scripts_of(expected.recorded);
  HOCKET_TRY(const std::vector<CheckLine> lines,
             check_quality({settings, against, progress}, scripts));
  report.add(lines);
  return {};
}

Result<void> check_model(const ServerSettings& settings, const std::string& against,
                         Report& report) {
  HOCKET_TRY(const Expectation expected,
             find_expectation(against.empty() ? settings.model.model_path : against));
  for (const std::string& dtype : dtypes_of(settings)) {
    ServerSettings form = settings;
    form.model.dtype = dtype;
    HOCKET_TRY_VOID(check_form(form, against, expected, report));
  }
  if (report.empty())
    return fail(error(ErrorCode::bad_value,
                      "nothing beside {} says what it should compute in {}: its recorded answers "
                      "are those of the model before it was quantized",
                      settings.model.model_path, settings.model.dtype)
                    .with_fix("--against FOLDER, the model before it was quantized"));
  return {};
}

Result<void> check_golden(const std::filesystem::path& folder, Report& report) {
  bool any = false;
  const auto has = [&](const char* part) {
    const bool there = std::filesystem::exists(folder / part);
    any |= there;
    return there;
  };
  if (has("tokenizers")) {
    HOCKET_TRY(const auto lines, check_tokenizer_golden(folder / "tokenizers"));
    report.add(lines);
  }
  if (has("chat")) {
    HOCKET_TRY(const auto lines, check_chat_golden(folder / "chat"));
    report.add(lines);
  }
  if (has("sampling")) {
    HOCKET_TRY(const auto lines, check_sampling(folder / "sampling"));
    report.add(lines);
  }
  if (!any)
    return fail(ErrorCode::model_not_found, "{} has none of the folders tokenizers, chat, sampling",
                folder.string());
  return {};
}

Result<int> check_all(const Arguments& arguments) {
  ServerSettings settings;
  std::string golden, against;
  bool json = false;
  CommandLine line{.command = "check",
                   .about = "compare the engine with reference outputs beside the model",
                   .groups = model_flags(settings)};
  line.groups.push_back(
      {"Check",
       {{"golden", &golden, "folder with tokenizers, chat and sampling cases to check too", ""},
        {"against", &against, "folder of the model before it was quantized, with its outputs", ""},
        {"json", &json, "prints JSON, one object a line", ""}}});
  HOCKET_TRY(const bool go, parse_flags(line, arguments));
  if (!go) return 0;
  HOCKET_TRY_VOID(choose_isa());
  Report report(json ? Report::Output::json : Report::Output::table);
  // With --golden alone no model is loaded.
  if (golden.empty() || !settings.model.model_path.empty()) {
    HOCKET_TRY_VOID(choose_model(settings));
    HOCKET_TRY_VOID(check_model(settings, against, report));
  }
  if (!golden.empty()) HOCKET_TRY_VOID(check_golden(golden, report));
  return report.close();
}

}  // namespace

int check(const Arguments& arguments) {
  const Result<int> done = check_all(arguments);
  return done ? *done : report(done.error());
}

}  // namespace hocket
