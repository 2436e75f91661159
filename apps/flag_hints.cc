#include "apps/flag_hints.h"

#include <algorithm>
#include <iterator>

namespace hocket {
namespace {

constexpr std::pair<std::string_view, std::string_view> kTranslations[] = {
    {"--max-model-len", "--context-length (per request here, never divided by slots)"},
    {"-c", "--context-length (per request here, never divided by slots)"},
    {"--ctx-size", "--context-length (per request here, never divided by slots)"},
    {"--gpu-memory-utilization", "--mem-fraction-static"},
    {"--max-num-seqs", "--max-running-requests"},
    {"-np", "--max-running-requests"},
    {"--parallel", "--max-running-requests"},
    {"--max-num-batched-tokens", "--chunked-prefill-size"},
    {"-ctk", "--kv-cache-dtype (keys and values alike)"},
    {"-ctv", "--kv-cache-dtype (keys and values alike)"},
    {"--cache-type-k", "--kv-cache-dtype (keys and values alike)"},
    {"--cache-type-v", "--kv-cache-dtype (keys and values alike)"},
    {"--enable-hierarchical-cache", "--kv-cache-dir DIR: the second tier is files"},
    {"--hicache-storage-backend",
     "--kv-cache-dir DIR for files, --kv-cache-store redis://HOST:6379 for a Redis or Valkey"},
    {"--disaggregation-bootstrap-port", "--kv-cache-listen HOST:PORT"},
    {"--hicache-size", "--kv-cache-dir-gb"},
    {"--hicache-ratio", "--kv-cache-dir-gb: the size of the folder in GB, not a ratio of memory"},
    {"--hicache-io-backend", "nothing: pages are copied by the processor"},
    {"--hicache-mem-layout", "nothing: a page's file has all of its layers"},
    {"--hicache-storage-backend-extra-config",
     "nothing: --kv-cache-dir and --kv-cache-store name all that a store needs"},
    {"--disaggregation-transfer-backend",
     "nothing: pages travel over TCP to --kv-cache-listen, inside TLS by --cluster-tls"},
    {"--disaggregation-ib-device",
     "nothing: pages travel over TCP to --kv-cache-listen, inside TLS by --cluster-tls"},
    {"--num-reserved-decode-tokens",
     "nothing: prompts that peers compute wait their turn until the pool has room for them"},
    {"--speculative-draft-model-path",
     "nothing: draft models are not loaded; --speculative-algorithm NEXTN guesses with the "
     "model's own module"},
    {"-md",
     "nothing: draft models are not loaded; --speculative-algorithm NEXTN guesses with the "
     "model's own module"},
    {"--model-draft",
     "nothing: draft models are not loaded; --speculative-algorithm NEXTN guesses with the "
     "model's own module"},
    {"--draft-max", "--speculative-num-steps"},
    {"--draft-n", "--speculative-num-steps"},
    {"--draft", "--speculative-num-steps"},
    {"--draft-min",
     "nothing: hocket measures how many drafts pay; --speculative-num-steps N makes always N"},
    {"--draft-n-min",
     "nothing: hocket measures how many drafts pay; --speculative-num-steps N makes always N"},
    {"--draft-p-min",
     "nothing: hocket counts how often drafts are accepted, and verifies those that pay"},
    {"--spec-type", "--speculative-algorithm auto, NEXTN (draft-mtp) or NGRAM (ngram-*)"},
    {"--speculative-config",
     "--speculative-algorithm auto, NEXTN (mtp) or NGRAM (ngram), and --speculative-num-steps N "
     "(num_speculative_tokens)"},
    {"--eplb-config",
     "--enable-eplb, with --ep-num-redundant-experts N (num_redundant_experts) and "
     "--eplb-rebalance-num-iterations N (step_interval)"},
    {"--expert-distribution-recorder-buffer-size",
     "nothing: stat needs no buffer; of per_pass, POST /start_expert_distribution_record takes "
     "buffer_size"},
    {"--slot-save-path",
     "--kv-cache-dir DIR: prefixes are saved and found by themselves, and by /slots"},
    {"--quant", "--quantization"},
    {"--enable-expert-parallel", "--ep-size N"},
    {"--dp-size", "--ep-size N: each of its ranks takes requests, so the number of both is one"},
    {"--dp", "--ep-size N: each of its ranks takes requests, so the number of both is one"},
    {"--deepep-mode",
     "nothing: rows travel per rank where any rank computes prompts, and per expert or once to a "
     "rank where none does"},
    {"--data-parallel-size",
     "--ep-size N: each of its ranks takes requests, so the number of both is one"},
    {"--enable-dp-attention", "--ep-size N: its ranks always attend to requests of their own"},
    {"--tp-size", "--ep-size N: ranks share experts, and no matrix is cut"},
    {"--tensor-parallel-size", "--ep-size N: ranks share experts, and no matrix is cut"},
    {"--moe-a2a-backend",
     "nothing: rows travel over UCX between processes, in memory between threads; --ucx-tls and "
     "--ucx-net-devices choose its networks"},
    {"--elastic-ep-backend", "--tolerate-ranks K: K ranks may be lost, and the others serve on"},
    {"--ep-dispatch-algorithm",
     "nothing: each rank spreads the rows of a step over the places of an expert"},
    {"--eplb-rebalance-layers-per-chunk", "nothing: experts move layer by layer"},
    {"--eplb-min-rebalancing-utilization-threshold",
     "nothing: experts move if that saves more time than it costs"},
    {"--enable-expert-distribution-metrics", "nothing: /metrics is always there"},
    {"--log-requests-format", "--log-format, of all lines"},
    {"--enable-metrics", "nothing: /metrics is always there"},
    {"--allowed-origins", "--cors-origins"},
    {"--cors-allow-origin", "--cors-origins"},
    {"--ssl-cert-file", "--ssl-certfile"},
    {"--ssl-key-file", "--ssl-keyfile"},
    {"--ssl-ca-certs", "nothing: clients prove themselves by keys, see --api-key-file"},
    {"--max-concurrent-requests", "--max-running-requests, and --max-queued-requests"},
    {"--model-id", "--model-path DIR: a folder, nothing is downloaded"},
    {"-hf", "--model-path DIR: a folder, nothing is downloaded"},
    {"--hf-repo", "--model-path DIR: a folder, nothing is downloaded"},
    {"--timeout", "--write-timeout, --body-timeout or --running-timeout"},
    {"--enable-dbo",
     "nothing: --overlap auto is the default; --enable-two-batch-overlap forces two halves"},
    {"--dbo-decode-token-threshold",
     "nothing: --overlap auto measures from how many rows on two halves pay"},
    {"--dbo-prefill-token-threshold",
     "nothing: --overlap auto measures from how many rows on two halves pay"},
    {"--enable_prefill_microbatch_overlap",
     "nothing: --overlap auto is the default; --overlap-order-prefill two-batch forces two "
     "halves"},
    {"--enable_decode_microbatch_overlap",
     "nothing: --overlap auto is the default; --overlap-order-decode two-batch forces two "
     "halves"},
    {"--tp", "--ep-size N: ranks share experts, and no matrix is cut"},
    {"--ep", "--ep-size N"},
    {"--disable_cudagraph", "nothing: there are no graphs to disable"},
    {"--disable-cuda-graph", "nothing: there are no graphs to disable"},
    {"-m", "--model-path"},
    {"--model", "--model-path"},
    {"-t", "--cpu-bind or --num-threads"},
    {"--threads", "--cpu-bind or --num-threads"},
    {"SGLANG_CPU_OMP_THREADS_BIND", "--cpu-bind"},
    {"VLLM_CPU_OMP_THREADS_BIND", "--cpu-bind"},
    {"SGLANG_TORCH_PROFILER_DIR", "--admin-folder"},
    {"VLLM_TORCH_PROFILER_DIR", "--admin-folder"},
};

}  // namespace

std::span<const std::pair<std::string_view, std::string_view>> flag_hints() {
  return kTranslations;
}

std::optional<std::string_view> flag_hint(std::string_view name) {
  const auto* found =
      std::ranges::find(kTranslations, name, &std::pair<std::string_view, std::string_view>::first);
  if (found == std::end(kTranslations)) return std::nullopt;
  return found->second;
}

}  // namespace hocket
