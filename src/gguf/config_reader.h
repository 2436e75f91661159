// Reads values of one architecture from the metadata of a GGUF file, for the functions that write
// its config.json. Private to the room.   Thread: any.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "gguf/assumption.h"
#include "gguf/file.h"

namespace hocket {

// Returns the number that was meant where a file holds the nearest float32 of a short decimal.
double gguf_decimal(double value);

// Keeps the first error. Keys are named without the architecture before them.
class GgufConfigReader {
 public:
  explicit GgufConfigReader(const GgufFile& file);

  const std::string& architecture() const { return architecture_; }
  bool has_tensor(std::string_view name) const { return file_.find(name).tensor != nullptr; }
  const GgufFile& file() const { return file_; }

  // A list with the same number for every layer stands for the number.
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const { return file_.metadata().flag(full(key)); }
  std::optional<std::string_view> text(std::string_view key) const {
    return file_.metadata().text(full(key));
  }
  bool has(std::string_view key) const { return file_.metadata().has(full(key)); }
  // Returns `layers` numbers: those of the list, or the one number for all. Keeps an error and
  // returns zeros if there are fewer.
  std::vector<double> for_layers(std::string_view key, int64_t layers);
  // Returns 0 and keeps an error if the value is missing.
  int64_t required(std::string_view key);

  void refuse(Error e) {
    if (!error_) error_ = std::move(e);
  }
  void refuse_unsupported(std::string_view what);
  const std::optional<Error>& status() const { return error_; }
  // Notes that `key` is missing, and what is taken instead.
  void assume(std::string_view key, std::string to, std::string why);
  void assume(GgufAssumption assumed) { assumptions_.push_back(std::move(assumed)); }
  const std::vector<GgufAssumption>& assumptions() const { return assumptions_; }

 private:
  std::string full(std::string_view key) const;

  const GgufFile& file_;
  std::string architecture_;
  std::optional<Error> error_;
  std::vector<GgufAssumption> assumptions_;
};

// These read values that several architectures share. `config` has those that all share already.
int64_t gguf_num_layers(const nlohmann::json& config);
// Reads the heads of grouped-query attention; those of latent attention have sizes of their own.
void read_gguf_heads(GgufConfigReader& reader, nlohmann::json& config);
// Returns true for each layer that has a gate of experts.
std::vector<bool> gguf_moe_layers(const GgufConfigReader& reader, const nlohmann::json& config);
// Returns a share of `dims` that gives `part` again when their product is rounded down.
double gguf_share(int64_t part, int64_t dims);
// Says that positions are not scaled where the file says nothing. Folders of some architectures
// mean YaRN where they leave the keys out; files mean none, since converters write it.
void state_gguf_rope_scaling(nlohmann::json& config);
// Returns divisors of the frequencies, one for each pair of rotated dims; at most `max_divisors`.
std::vector<double> gguf_divisors(GgufConfigReader& reader, size_t max_divisors);

// Reads experts by the keys of DeepSeek (config_latents.cc).
void read_gguf_deepseek_experts(GgufConfigReader& reader, nlohmann::json& config, bool sigmoid);

// Architectures with latent attention (config_latents.cc).
void read_gguf_deepseek2(GgufConfigReader& reader, nlohmann::json& config);
void read_gguf_mistral4(GgufConfigReader& reader, nlohmann::json& config);
void read_gguf_kimi_linear(GgufConfigReader& reader, nlohmann::json& config);

// Architectures whose layers differ in what they see (config_local.cc).
void read_gguf_gpt_oss(GgufConfigReader& reader, nlohmann::json& config);
void read_gguf_llama4(GgufConfigReader& reader, nlohmann::json& config);
void read_gguf_mimo2(GgufConfigReader& reader, nlohmann::json& config);
void read_gguf_step35(GgufConfigReader& reader, nlohmann::json& config);
void read_gguf_gemma4(GgufConfigReader& reader, nlohmann::json& config);

}  // namespace hocket
