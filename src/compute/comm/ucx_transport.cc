#include "compute/comm/ucx_transport.h"

#include "base/check.h"

#ifndef HOCKET_HAS_UCX

namespace hocket {

namespace {

std::unexpected<Error> absent() {
  return fail(error(ErrorCode::io, "this build is without UCX")
                  .with_fix("install libucx-dev and build again with -DHOCKET_UCX=ON"));
}

}  // namespace

Result<std::unique_ptr<UcxTransport>> UcxTransport::create(int, int, const UcxOptions&) {
  return absent();
}
Result<std::string> ucx_version() {
  return absent();
}

}  // namespace hocket

#else

#include "compute/comm/ucx_end.h"
#include "core/rank_set.h"

namespace hocket {

Result<std::string> ucx_version() {
  HOCKET_TRY(const UcxLibrary* ucx, ucx_library());
  return ucx->ucp_get_version_string();
}

Result<std::unique_ptr<UcxTransport>> UcxTransport::create(int rank, int num_ranks,
                                                           const UcxOptions& options) {
  HOCKET_CHECK(rank >= 0 && rank < num_ranks);
  HOCKET_CHECK(num_ranks <= RankSet::kMaxRank + 1);
  HOCKET_TRY(const UcxLibrary* ucx, ucx_library());
  auto end = std::make_unique<UcxEnd>(*ucx, rank, num_ranks, options);
  HOCKET_TRY_VOID(end->open());
  return end;
}

}  // namespace hocket

#endif
