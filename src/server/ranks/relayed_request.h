// Records and traces a request that another rank answers.   Thread: client, or the thread that
// forwards the request.
#pragma once

#include "server/observe/request_recorder.h"
#include "server/ranks/relay.h"

namespace hocket {

// Adds the trace header. The other rank's spans become children of this rank's span, or of the
// client's span if this rank sends no spans.
void add_trace(const HttpRequest& request, const RequestRecorder* recorder, HttpHeaders& headers);
// Records how the other rank's answer ended. A request that it refused, or that was there when it
// was lost, continues on this rank.
void record_relayed(RelayEnd how, const Relay& relay, RequestRecorder& recorder);

}  // namespace hocket
