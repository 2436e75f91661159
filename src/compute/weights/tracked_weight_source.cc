#include "compute/weights/tracked_weight_source.h"

#include <algorithm>
#include <map>

#include "compute/weights/json_fields.h"

namespace hocket {
namespace {

// Returns "model.layers.*.mlp" for "model.layers.12.mlp".
std::string with_stars(std::string_view name) {
  std::string pattern;
  for (size_t at = 0; at < name.size();) {
    const size_t end = std::min(name.find('.', at), name.size());
    const std::string_view part = name.substr(at, end - at);
    const bool is_number =
        !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    pattern += is_number ? "*" : part;
    if (end < name.size()) pattern += '.';
    at = end + 1;
  }
  return pattern;
}

}  // namespace

Result<StoredTensor> TrackedWeightSource::find(std::string_view name) const {
  Result<StoredTensor> found = files_->find(name);
  if (found) {
    const MutexLock lock(mutex_);
    read_.emplace(name);
  }
  return found;
}

std::vector<std::string> TrackedWeightSource::unread() const {
  std::vector<std::string> all = files_->names();
  const MutexLock lock(mutex_);
  std::vector<std::string> names;
  for (std::string& name : all)
    if (!read_.contains(name)) names.push_back(std::move(name));
  return names;
}

std::vector<UnreadTensors> unread_tensors(const WeightSource& source,
                                          const std::function<bool(std::string_view)>& is_known) {
  std::map<std::string, UnreadTensors> groups;
  for (const std::string& name : source.unread()) {
    if (is_known(name)) continue;
    const Result<StoredTensor> tensor = source.find(name);
    UnreadTensors& group = groups[with_stars(name)];
    ++group.count;
    if (!tensor) continue;
    for (const auto bytes : stored_bytes(*tensor)) group.bytes += std::ssize(bytes);
  }
  std::vector<UnreadTensors> all;
  for (auto& [pattern, group] : groups) {
    group.names = shown(pattern);
    all.push_back(std::move(group));
  }
  return all;
}

}  // namespace hocket
