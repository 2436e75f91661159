// The sender of a request: a client, known by its principal, or another rank that forwards a
// client's request. The access check makes it; HTTP carries it to the handler unread.
// Thread: any.
#pragma once

#include <memory>
#include <string_view>

#include "server/access/principal.h"
#include "server/access/request_meter.h"
#include "server/http/http.h"

namespace hocket {

struct RequestSender : HttpSender {
  PrincipalPtr principal;                 // never null
  std::shared_ptr<RequestMeter> meter{};  // counts the tokens; null: no limits
  bool is_rank = false;                   // true: it arrived through the port for ranks
};

// Names the sender in the admission of its request, counts the request's memory for a principal
// whose key one client has, and ends the meter with the answer.
void admit_sender(HttpAdmission& admission, RequestSender sender);

// The functions below take a request that no check has let in, too: it has no principal, no meter,
// and comes from no rank.

// Returns null if there is none.
const Principal* principal_of(const HttpRequest& request);
// Returns the principal's name, "anonymous" if there is none.
std::string_view principal_name(const HttpRequest& request);
std::shared_ptr<RequestMeter> meter_of(const HttpRequest& request);
bool is_from_rank(const HttpRequest& request);

}  // namespace hocket
