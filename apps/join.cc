#include "apps/join.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>

#include "apps/flags.h"
#include "base/log.h"
#include "client/http_client.h"

namespace hocket {
namespace {

// The flags that all ranks must share (make_identity(), Runner::terms()), and those by which they
// find each other.
constexpr std::array kShared = std::to_array<std::string_view>({
    "cluster-store",
    "combine-dtype",
    "combine-groups",
    "context-length",
    "chunked-prefill-size",
    "disable-overlap-schedule",
    "dispatch-dtype",
    "dist-init-addr",
    "dtype",
    "dummy-seed",
    "enable-eplb",
    "enable-mixed-chunk",
    "enable-prefill-delayer",
    "enable-single-batch-overlap",
    "enable-two-batch-overlap",
    "ep-num-redundant-experts",
    "eplb-algorithm",
    "eplb-rebalance-num-iterations",
    "init-expert-location",
    "kv-cache-dtype",
    "load-format",
    "max-chunked-requests",
    "max-prefill-tokens",
    "max-running-requests",
    "mla-form",
    "nnodes",
    "overlap",
    "overlap-order-decode",
    "overlap-order-prefill",
    "overlap-plan",
    "overlap-schedule",
    "prefill-delayer-max-passes",
    "prefill-policy",
    "quantization",
    "speculative-algorithm",
    "speculative-num-draft-tokens",
    "speculative-num-steps",
    "tbo-token-distribution-threshold",
    "tolerate-ranks",
});
constexpr double kTermsPatienceSeconds = 10;

bool is_shared(std::string_view name) {
  return std::ranges::find(kShared, name) != kShared.end();
}

std::string text_of_value(const FlagTarget& target) {
  return std::visit(
      [](const auto* value) -> std::string {
        using T = std::remove_cvref_t<decltype(*value)>;
        if constexpr (std::is_same_v<T, std::vector<std::string>>)
          return "";
        else
          return fmt::format("{}", *value);
      },
      target);
}

bool is_given(const Arguments& arguments, const std::string& flag) {
  return std::ranges::any_of(arguments, [&](const std::string& one) {
    return one == flag || one.starts_with(flag + "=");
  });
}

Result<nlohmann::json> ask_terms(const ServerSettings& own) {
  const std::string& where = own.parallel.join;
  const bool has_scheme = where.find("://") != where.npos;
  HOCKET_TRY(auto there, BlockingHttpClient::read_url(has_scheme ? where : "http://" + where));
  const HttpSettings& keys = own.http;
  there.api_key = keys.admin_api_key.empty() ? keys.api_key : keys.admin_api_key;
  there.timeout_s = kTermsPatienceSeconds;
  BlockingHttpClient client(there);
  HOCKET_TRY(const HttpAnswer answer, client.get("/join_terms"));
  auto json = nlohmann::json::parse(answer.body, nullptr, false);
  if (answer.status == 401 || answer.status == 403)
    return fail(error(ErrorCode::unauthorized, "{} wants an admin's key before a rank joins", where)
                    .with_fix("--admin-api-key KEY, the same as there"));
  const bool has_error = json.is_object() && json.contains("error") && json["error"].is_object();
  if (answer.status != 200)
    return fail(ErrorCode::lost_rank, "{} takes no rank: {}", where,
                has_error ? json["error"].value("message", "") : std::to_string(answer.status));
  if (!json.is_object() || !json.contains("flags") || !json["flags"].is_object() ||
      json["flags"].size() > kShared.size() || !json.contains("rank") ||
      !json["rank"].is_number_unsigned())
    return fail(ErrorCode::bad_value, "the server at {} is no rank of hocket", where);
  return json;
}

}  // namespace

JoinFlags flags_to_join(const ServerSettings& settings, const LaunchPlan& plan) {
  ServerSettings mine = settings, untouched;
  mine.parallel.nnodes = plan.num_ranks;
  if (mine.parallel.cluster_store.empty()) mine.parallel.dist_init_addr = to_text(plan.init_addr);
  const std::vector<FlagGroup> now = settings_flags(mine), before = settings_flags(untouched);
  JoinFlags flags;
  for (size_t group = 0; group < now.size(); ++group)
    for (size_t i = 0; i < now[group].flags.size(); ++i) {
      const Flag& flag = now[group].flags[i];
      std::string value = text_of_value(flag.target);
      if (is_shared(flag.name) && value != text_of_value(before[group].flags[i].target))
        flags.emplace_back(flag.name, std::move(value));
    }
  return flags;
}

Result<Arguments> arguments_to_join(const ServerSettings& own, const Arguments& arguments) {
  HOCKET_TRY(const nlohmann::json terms, ask_terms(own));
  Arguments all = {"--node-rank", std::to_string(terms["rank"].get<uint64_t>())};
  for (const auto& [name, value] : terms["flags"].items()) {
    if (!is_shared(name) || !value.is_string())
      return fail(ErrorCode::bad_value, "{} names {}, which ranks do not share", own.parallel.join,
                  name);
    const std::string flag = "--" + name;
    if (is_given(arguments, flag)) continue;
    const auto text = value.get<std::string>();
    if (text == "true")
      all.push_back(flag);
    else
      all.push_back(flag + "=" + text);
  }
  log::info("join: rank {} of the service at {}, with its flags: {}", all[1], own.parallel.join,
            fmt::join(all, " "));
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

}  // namespace hocket
