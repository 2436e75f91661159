// Requests as spans of OpenTelemetry, in OTLP's JSON.
//
//   POST /v1/chat/completions        as the client sees it: from arrival to the last byte
//   |- text                          parsing, template, tokens
//   |- queue, prefill, decode        of each answer of the request
//
// Ids are hexadecimal, 64-bit numbers are strings. Attributes are those of the conventions for HTTP
// and for generative AI where there are some, and hocket.* else; never a prompt or an answer.
// Source: opentelemetry-proto 1.x, "OTLP/HTTP, JSON Protobuf Encoding".   Thread: any.
#pragma once

#include <string>
#include <vector>

#include "server/observe/request_record.h"

namespace hocket {

// Which server the spans come from.
struct SpanSource {
  std::string model, instance;
};

// One text a span: an object of "spans".
std::vector<std::string> spans_of(const RequestRecord& record);
// A body for the collector.
std::string export_request(const SpanSource& source, const std::vector<std::string>& spans);

}  // namespace hocket
