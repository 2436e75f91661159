// Writes requests as spans of OpenTelemetry, in OTLP's JSON.
//
//   POST /v1/chat/completions        as the client sees it: from arrival to the last byte
//   |- text                          parsing, template, tokens
//   |- queue, prefill, decode        of each answer of the request
//
// Ids are hexadecimal, 64-bit numbers are strings. Attributes follow OpenTelemetry's conventions
// for HTTP and for generative AI; others are named hocket.*. No attribute holds a prompt or an
// answer.
// Source: opentelemetry-proto 1.x, "OTLP/HTTP, JSON Protobuf Encoding".   Thread: any.
#pragma once

#include <string>
#include <vector>

#include "server/observe/request_record.h"

namespace hocket {

// The model and server that the spans are of.
struct SpanSource {
  std::string model, instance;
};

// Returns one JSON text per span, each an object of the list "spans".
std::vector<std::string> spans_of(const RequestRecord& record);
// Returns a body for the collector.
std::string export_request(const SpanSource& source, const std::vector<std::string>& spans);

}  // namespace hocket
