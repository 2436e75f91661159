#include "apps/join.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <type_traits>
#include <variant>

#include "apps/flags.h"
#include "base/check.h"
#include "base/log.h"
#include "client/blocking_http_client.h"
#include "cluster/member.h"
#include "core/bounded_json.h"
#include "core/version.h"

namespace hocket {
namespace {

constexpr double kTermsPatienceSeconds = 10;
constexpr size_t kMaxTermsBytes = size_t{1} << 20;
constexpr size_t kMaxErrorText = 2048;  // bytes

// Returns the names of the flags that all ranks must share.
std::set<std::string, std::less<>> shared_names() {
  ServerSettings settings;
  std::set<std::string, std::less<>> names;
  for (const FlagGroup& group : settings_flags(settings))
    for (const Flag& flag : group.flags)
      if (flag.shared_by_ranks) names.insert(flag.name);
  return names;
}

std::string text_of_value(const Flag& flag) {
  return std::visit(
      [](const auto* value) -> std::string {
        using T = std::remove_cvref_t<decltype(*value)>;
        if constexpr (std::is_same_v<T, std::vector<std::string>>)
          return fmt::format("{}", fmt::join(*value, ","));
        else
          return fmt::format("{}", *value);
      },
      flag.target);
}

bool is_given(const Arguments& arguments, const std::string& flag) {
  return std::ranges::any_of(arguments, [&](const std::string& one) {
    return one == flag || one.starts_with(flag + "=");
  });
}

Error no_service(const std::string& where) {
  return error(ErrorCode::bad_value, "nothing at {} is a rank that others can join", where)
      .with_fix("--join HOST:PORT, the port where a rank of hocket " + std::string(kVersion) +
                " serves clients")
      .with_param("join");
}

// Returns a text of an answer that is an error; empty if it has none.
std::string error_field(const nlohmann::json& answer, const char* name) {
  const nlohmann::json failure =
      answer.is_object() ? answer.value("error", nlohmann::json()) : answer;
  if (!failure.is_object() || !failure.contains(name) || !failure[name].is_string()) return "";
  return in_one_line(failure[name].get<std::string>().substr(0, kMaxErrorText));
}

Result<nlohmann::json> ask_terms(const std::string& where, const HttpSettings& keys) {
  const bool has_scheme = where.find("://") != where.npos;
  HOCKET_TRY(auto there, BlockingHttpClient::read_url(has_scheme ? where : "http://" + where));
  there.api_key = keys.admin_api_key.empty() ? keys.api_key : keys.admin_api_key;
  there.timeout_s = there.max_body_s = kTermsPatienceSeconds;
  there.max_body_bytes = kMaxTermsBytes;
  BlockingHttpClient client(there);
  HOCKET_TRY(const HttpAnswer answer, client.get("/join_terms"));
  if (answer.status == 401 || answer.status == 403)
    return fail(error(ErrorCode::unauthorized, "{} wants an admin's key before a rank joins", where)
                    .with_fix("--admin-api-key KEY, the same as there"));
  if (answer.status == 404) return fail(no_service(where));
  auto json = parse_bounded_json<nlohmann::json>(answer.body);
  if (answer.status != 200) {
    const std::string why = error_field(json, "message");
    return fail(error(ErrorCode::lost_rank, "{} takes no rank: {}", where,
                      why.empty() ? fmt::format("it answers {}", answer.status) : why)
                    .with_fix(error_field(json, "hint")));
  }
  if (!json.is_object() || !json.contains("flags") || !json["flags"].is_object() ||
      !json.contains("rank") || !json["rank"].is_number_unsigned())
    return fail(no_service(where));
  return json;
}

}  // namespace

JoinFlags flags_to_join(const ServerSettings& settings, const Launch& launch) {
  ServerSettings mine = settings, untouched;
  mine.parallel.nnodes = launch.num_ranks;
  if (mine.parallel.cluster_store.empty()) mine.parallel.dist_init_addr = to_text(launch.init_addr);
  const std::vector<FlagGroup> now = settings_flags(mine), before = settings_flags(untouched);
  JoinFlags flags;
  for (size_t group = 0; group < now.size(); ++group)
    for (size_t i = 0; i < now[group].flags.size(); ++i) {
      const Flag& flag = now[group].flags[i];
      if (!flag.shared_by_ranks) continue;
      // The answer of /join_terms has one text for each flag, and a list would be several flags.
      HOCKET_CHECK(!std::holds_alternative<std::vector<std::string>*>(flag.target));
      std::string value = text_of_value(flag);
      if (value != text_of_value(before[group].flags[i]))
        flags.emplace_back(flag.name, std::move(value));
    }
  return flags;
}

Result<Arguments> arguments_to_join(const std::string& where, const HttpSettings& keys,
                                    const Arguments& arguments) {
  for (const char* const flag : {"--node-rank", "--nnodes", "--ep-size", "--ranks-per-node"})
    if (is_given(arguments, flag))
      return fail(
          error(ErrorCode::bad_value, "{} is given, and --join asks the service for it", flag)
              .with_fix(fmt::format("leave out {}", flag))
              .with_param("join"));
  HOCKET_TRY(const nlohmann::json terms, ask_terms(where, keys));
  Arguments all = {"--node-rank", std::to_string(terms["rank"].get<uint64_t>())};
  const auto shared = shared_names();
  for (const auto& [name, value] : terms["flags"].items()) {
    if (!shared.contains(name) || !value.is_string()) return fail(no_service(where));
    const std::string flag = "--" + name;
    if (is_given(arguments, flag)) continue;
    const auto text = value.get<std::string>();
    all.push_back(text == "true" ? flag : fmt::format("{}={}", flag, text));
  }
  log::info("join: rank {} of the service at {}, with its flags: {}", all[1], where,
            in_one_line(fmt::format("{}", fmt::join(all, " "))));
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

}  // namespace hocket
