#include "apps/plan_fit.h"

#include <fmt/format.h>

#include "base/show_bytes.h"

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;

std::optional<FittingHosts> hosts_for(const ForecastInput& input, const Forecast& now, int a_host) {
  const auto found = fitting_ranks(input, now, a_host);
  if (!found) return std::nullopt;
  return FittingHosts{found->ranks / a_host, found->ranks, found->context_length};
}

std::string contexts(int tokens) {
  return fmt::format("for contexts of {} tokens", tokens);
}

std::string hosts_text(const FittingHosts& found, std::string_view flags) {
  return fmt::format("; or {} hosts like this one, {}: --nnodes {} --ep-size {}{}{}", found.hosts,
                     contexts(found.context_length), found.hosts, found.ranks,
                     flags.empty() ? "" : " ", flags);
}

Json json_of(const std::optional<FittingHosts>& found) {
  if (!found) return {};
  return {
      {"hosts", found->hosts}, {"ranks", found->ranks}, {"context_length", found->context_length}};
}

}  // namespace

FittingPlans find_fitting_plans(const ForecastInput& input, const Forecast& now,
                                const std::optional<Advice>& advice, int a_host) {
  FittingPlans plans{.hosts = hosts_for(input, now, a_host), .advised_hosts = std::nullopt};
  if (!advice || advice->fits || advice->flags.empty()) return plans;
  ForecastInput advised = input;
  advised.settings = advice->settings;
  const Result<Forecast> then = forecast(advised, now.kv_len);
  if (then) plans.advised_hosts = hosts_for(advised, *then, a_host);
  if (plans.hosts && plans.advised_hosts && plans.advised_hosts->hosts >= plans.hosts->hosts)
    plans.advised_hosts.reset();
  return plans;
}

std::string fitting_text(const Advice& advice, const FittingPlans& plans) {
  std::string text = advice.flags;
  if (!advice.fits)
    text += fmt::format("{}{} of available memory", text.empty() ? "" : ", and ",
                        show_bytes(advice.needed_bytes));
  text += ", " + contexts(advice.context_length);
  if (plans.hosts) text += hosts_text(*plans.hosts, "");
  if (plans.advised_hosts) text += hosts_text(*plans.advised_hosts, advice.flags);
  return text;
}

void add_fitting_json(const FittingPlans& plans, Json& to) {
  to["fitting"] = json_of(plans.hosts);
  to["fitting_hosts"] = plans.hosts ? Json(plans.hosts->hosts) : Json();  // old name
  to["fitting_with_advice"] = json_of(plans.advised_hosts);
}

}  // namespace hocket
