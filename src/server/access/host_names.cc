#include "server/access/host_names.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "cluster/socket.h"
#include "server/access/split_words.h"
#include "server/http/request_target.h"

namespace hocket {
namespace {

bool is_host_name(std::string_view word) {
  constexpr std::string_view kChars =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return word.size() <= 253 && word.find_first_not_of(kChars) == word.npos;
}

std::string machine_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

bool ends_with_name(std::string_view name, std::string_view end) {
  return name.size() >= end.size() && same_name(name.substr(name.size() - end.size()), end);
}

// True for ":30000" and for an empty text.
bool is_port_or_none(std::string_view rest) {
  return rest.empty() ||
         (rest.front() == ':' && rest.find_first_not_of("0123456789", 1) == rest.npos);
}

}  // namespace

std::string_view name_in_host(std::string_view host) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    const bool is_whole = end != host.npos && end > 1 && is_port_or_none(host.substr(end + 1));
    return is_whole ? host.substr(1, end - 1) : host;
  }
  const size_t colon = std::min(host.find(':'), host.size());
  if (!is_port_or_none(host.substr(colon))) return host;
  host = host.substr(0, colon);
  if (host.ends_with('.')) host.remove_suffix(1);
  return host;
}

Result<HostNames> HostNames::parse(std::string_view list, std::string_view host) {
  HostNames out;
  if (const std::string own = machine_name(); !own.empty()) {
    const std::string first = own.substr(0, own.find('.'));
    out.names_ = {own, first, first + ".local"};
  }
  if (!host.empty()) out.names_.emplace_back(host);
  for (const std::string_view name : split_words(list, ", \t")) {
    if (name == "*")
      out.all_ = true;
    else if (is_host_name(name))
      out.names_.emplace_back(name);
    else
      return fail(error(ErrorCode::bad_value, "'{}' is not the name of a host", name)
                      .with_fix("--allowed-hosts llm.example,gateway or '*'; no scheme, no port")
                      .with_param("allowed-hosts"));
  }
  return out;
}

bool HostNames::allows(const HttpRequest& request) const {
  const std::string_view name = name_in_host(request.header("host"));
  return all_ || name.empty() || is_address(name) || same_name(name, "localhost") ||
         ends_with_name(name, ".localhost") ||
         std::ranges::any_of(names_, [&](const auto& known) { return same_name(known, name); });
}

bool is_loopback_host(const std::string& host) {
  const auto addresses = resolve({.host = host, .port = 0});
  return addresses && std::ranges::all_of(*addresses, &SocketAddress::is_loopback);
}

}  // namespace hocket
