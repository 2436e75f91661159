#include <array>

#include "compute/models/family.h"

namespace hocket {

const ModelFamily* find_family(std::string_view architecture) {
  static constexpr std::array<const ModelFamily*, 2> kFamilies = {&kQwen3, &kQwen3Moe};
  for (const ModelFamily* family : kFamilies)
    if (family->architecture == architecture) return family;
  return nullptr;
}

}  // namespace hocket
