#include "cluster/etcd_http.h"

#include <utility>

#include "cluster/etcd_json.h"

namespace hocket {
namespace {

// Another server may answer, so every fault is `io`: a wrong certificate is no reason to ask none.
std::unexpected<Error> broken(const std::string& server, const Error& why) {
  if (why.code == ErrorCode::bad_value)
    return fail(error(ErrorCode::io, "{}: the server is not etcd: {}", server, why.message)
                    .with_fix("--cluster-store names etcd's client ports: etcd://... in the "
                              "clear, etcds://... with TLS"));
  Error all = error(ErrorCode::io, "{}: {}", server, why.message);
  if (why.code == ErrorCode::unauthorized)
    all.fix =
        "--cluster-store-cacert FILE names the certificate's issuer; the certificate must "
        "have the name or address that --cluster-store gives";
  if (why.code == ErrorCode::payload_too_large)
    all.fix =
        "the NAME of --cluster-store etcd://HOST:2379/NAME begins keys of this cluster alone: "
        "choose one that no other keys begin with";
  return fail(std::move(all));
}

}  // namespace

Result<EtcdConnection> EtcdConnection::dial(const HostPort& server,
                                            const std::vector<SocketAddress>& addresses,
                                            const std::shared_ptr<const TlsContext>& tls,
                                            TimePoint until) {
  auto made = BlockingHttpConnection::dial(addresses, tls, server.host, until);
  if (!made) return broken(to_text(server), made.error());
  tune_socket(made->socket(), std::chrono::seconds(3));
  return EtcdConnection(*std::move(made), to_text(server));
}

// Sends the request and reads the head of its answer.
Result<void> EtcdConnection::ask(std::string_view path, std::string_view json, TimePoint until) {
  // A server that has no leader ends a watch then, which would be silent otherwise.
  const std::string request = fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n"
      "Grpc-Metadata-hasleader: true\r\nContent-Length: {}\r\n\r\n{}",
      path, server_, json.size(), json);
  HOCKET_TRY_VOID(http_.send(request, kMaxEtcdAnswerBytes, until));
  return http_.read_head(until);
}

Result<EtcdConnection::Answer> EtcdConnection::post(std::string_view path, std::string_view json,
                                                    TimePoint until) {
  if (const auto asked = ask(path, json, until); !asked) return broken(server_, asked.error());
  while (!http_.is_done()) {
    const auto came = http_.read(until);
    if (!came) return broken(server_, came.error());
    if (!*came) return fail(ErrorCode::io, "{}: no answer in time", server_);
  }
  return Answer{.status = http_.status(), .body = http_.take_body()};
}

Result<void> EtcdConnection::begin(std::string_view path, std::string_view json, TimePoint until) {
  line_.clear();
  if (const auto asked = ask(path, json, until); !asked) return broken(server_, asked.error());
  if (http_.status() == 200) {
    http_.lift_body_limit();  // lines() takes what has arrived, and limits each line
    return {};
  }
  while (!http_.is_done()) {
    const auto came = http_.read(until);
    if (!came || !*came) break;
  }
  return fail(read_etcd_error(http_.status(), http_.take_body()));
}

Result<std::vector<std::string>> EtcdConnection::lines() {
  std::vector<std::string> whole;
  for (;;) {
    line_ += http_.take_body();
    for (size_t end = 0; (end = line_.find('\n')) != std::string::npos; line_.erase(0, end + 1))
      if (end > 0) whole.push_back(line_.substr(0, end));
    if (line_.size() > kMaxEtcdAnswerBytes)
      return fail(ErrorCode::io, "{}: a line of its watch is longer than {} bytes", server_,
                  kMaxEtcdAnswerBytes);
    if (!whole.empty()) return whole;  // the rest is read at the next call
    if (http_.is_done()) return fail(ErrorCode::io, "{}: it ended the watch", server_);
    const auto came = http_.read(TimePoint::min());
    if (!came) return broken(server_, came.error());
    if (!*came) return whole;
  }
}

}  // namespace hocket
