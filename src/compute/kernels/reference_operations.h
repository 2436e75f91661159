// The reference bodies of whole operations: their contracts in plain loops, one row and one key at
// a time. Those of products and rows are in ref/.
#pragma once

namespace hocket {
struct AttentionCall;
struct DeltaNetCall;
struct LatentAttentionCall;
class Backend;
}  // namespace hocket

namespace hocket::ref {
void attention(Backend& backend, const AttentionCall& call);
void latent_attention(Backend& backend, const LatentAttentionCall& call);
void delta_net(Backend& backend, const DeltaNetCall& call);
}  // namespace hocket::ref
