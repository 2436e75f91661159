// The story of a request that another rank answers.   Thread: forward, and who hands it on.
#pragma once

#include "server/observe/request_story.h"
#include "server/ranks/relay.h"

namespace hocket {

// The other rank's spans belong under this one's, or where nobody traces here, under the client's.
void add_trace(const HttpRequest& request, const RequestStory* story, HttpHeaders& headers);
// How the other rank's answer ended. One that was refused goes on here.
void tell_relayed(RelayEnd how, const Relay& relay, const Answer& answer);

}  // namespace hocket
