#include "engine/plan/engine_info.h"

#include <fmt/core.h>

#include "base/log.h"

namespace hocket {

std::string form_of(const EngineInfo& info) {
  std::string form(weight_format_name(info.weight_format));
  if (info.kv_dtype != info.dtype) form += fmt::format("-kv-{}", dtype_name(info.kv_dtype));
  if (info.combine_groups > 1) form += fmt::format("-groups-{}", info.combine_groups);
  if (info.dispatch_dtype == DType::int8) form += "-dispatch-int8";
  if (info.combine_dtype == DType::int8) form += "-combine-int8";
  if (info.prompt_form == MlaForm::absorbed) form += "-mla-absorbed";
  if (!info.answer_begins.empty()) form += "-mla-answers";
  for (const TokenId id : info.answer_begins) form += fmt::format("-{}", value(id));
  return form;
}

std::string tokenizer_misfit(int tokenizer_size, int vocab_size) {
  if (tokenizer_size <= vocab_size) return {};
  std::string why = fmt::format("its tokenizer has {} ids, and the model logits for {}",
                                tokenizer_size, vocab_size);
  log::warning("no structured output: {}; use the tokenizer.json of this model", why);
  return why;
}

}  // namespace hocket
