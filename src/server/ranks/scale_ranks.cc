#include "server/ranks/scale_ranks.h"

namespace hocket {

Json to_json(const RankSet& ranks) {
  Json list = Json::array();
  for (int rank = 0; rank <= RankSet::kMaxRank; ++rank)
    if (ranks.has(rank)) list.push_back(rank);
  return list;
}

Result<ScaleRanks> parse_scale_ranks(const Json& body) {
  Fields fields(body);
  ScaleRanks wanted;
  int keep = 0;
  fields.read("decided", wanted.is_decided);
  if (fields.read("keep", keep, 1, RankSet::kMaxRank + 1)) wanted.keep = keep;
  if (const Json* const ranks = fields.array("leave", RankSet::kMaxRank + 1))
    for (const Json& rank : *ranks) {
      if (rank.is_number_unsigned() && rank.get<uint64_t>() <= RankSet::kMaxRank)
        wanted.leave.add(rank.get<int>());
      else
        fields.fail_field("leave", "has an entry that is no rank");
    }
  if (fields.ok() && wanted.keep.has_value() == (wanted.leave.size() > 0))
    fields.fail(error(ErrorCode::invalid_request, "either leave or keep is needed, and not both")
                    .with_fix(R"(send {"leave": [RANK, ...]} or {"keep": NUMBER})")
                    .with_param("leave"));
  return fields.finish_with(wanted);
}

Result<Json> leaving_answer(const RankSet& told, std::span<const PeerAnswer> answers,
                            const RankSet& drains) {
  const auto is_failure = [&](const PeerAnswer& peer) {
    return told.has(peer.rank) && peer.status != 200 && !drains.has(peer.rank);
  };
  RankSet failed, silent;
  for (const PeerAnswer& peer : answers)
    if (is_failure(peer)) (peer.status == 0 && peer.was_sent ? silent : failed).add(peer.rank);
  const std::string why = error_texts(answers, is_failure);
  const RankSet leaving = told.without(failed).without(silent);
  if (failed.size() == told.size())
    return fail(error(ErrorCode::lost_rank, "none of these ranks leaves: {}", why)
                    .with_fix("/readyz says which ranks are there"));
  Json answer{{"leaving", to_json(leaving)}};
  if (failed.size() > 0) answer["staying"] = to_json(failed);
  if (silent.size() > 0) answer["unanswered"] = to_json(silent);
  if (!why.empty()) answer["why"] = why;
  return answer;
}

}  // namespace hocket
