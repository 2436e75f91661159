#include "engine/engine_info.h"

#include <fmt/core.h>

namespace hocket {

std::string form_of(const EngineInfo& info) {
  std::string form(weight_format_name(info.weight_format));
  if (info.kv_dtype != info.dtype) form += fmt::format("-kv-{}", dtype_name(info.kv_dtype));
  if (info.combine_groups > 1) form += fmt::format("-groups-{}", info.combine_groups);
  if (info.dispatch_dtype == DType::int8) form += "-dispatch-int8";
  if (info.prompt_role == TokenRole::generated) form += "-mla-absorbed";
  return form;
}

}  // namespace hocket
