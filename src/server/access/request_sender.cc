#include "server/access/request_sender.h"

#include <utility>

namespace hocket {
namespace {

// Returns null if no check has let the request in. Every sender that HTTP carries is of this type.
const RequestSender* sender_of(const HttpRequest& request) {
  return static_cast<const RequestSender*>(request.sender.get());
}

}  // namespace

void admit_sender(HttpAdmission& admission, RequestSender sender) {
  if (sender.principal->alone) admission.memory_owner = sender.principal->name;
  if (sender.meter != nullptr) admission.on_end = [meter = sender.meter] { meter->end(); };
  admission.sender = std::make_shared<const RequestSender>(std::move(sender));
}

const Principal* principal_of(const HttpRequest& request) {
  const RequestSender* sender = sender_of(request);
  return sender == nullptr ? nullptr : sender->principal.get();
}

std::string_view principal_name(const HttpRequest& request) {
  const Principal* principal = principal_of(request);
  return principal == nullptr ? std::string_view("anonymous") : principal->name;
}

std::shared_ptr<RequestMeter> meter_of(const HttpRequest& request) {
  const RequestSender* sender = sender_of(request);
  return sender == nullptr ? nullptr : sender->meter;
}

bool is_from_rank(const HttpRequest& request) {
  const RequestSender* sender = sender_of(request);
  return sender != nullptr && sender->is_rank;
}

}  // namespace hocket
