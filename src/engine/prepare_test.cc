// A step that is played in two halves has its rows in another order; the outputs for each request,
// and the model's results for it, must be the same.
#include "engine/prepare.h"

#include <cstring>
#include <deque>
#include <random>

#include "base/log.h"
#include "compute/forward/split.h"
#include "engine/tests/forms.h"

namespace hocket {
namespace {

using namespace testing;

constexpr int kPageTokens = 16;

// A step of requests that have pages of their own.
struct Step {
  std::deque<Request> requests;
  Batch batch;
  int used_pages = 0;

  Request& add_request(int num_tokens, int prompt_len, std::mt19937& random) {
    Request& request = requests.emplace_back();
    request.id = RequestId{requests.size()};
    for (int i = 0; i < num_tokens; ++i)
      request.tokens.push_back(TokenId{static_cast<int>(random() % kVocabulary)});
    request.prompt_len = prompt_len;
    request.sampling.temperature = 0;
    for (int i = 0; i < num_tokens; i += kPageTokens) request.pages.push_back(PageId{used_pages++});
    return request;
  }

  void add_chunk(std::mt19937& random) {
    const int rows = 1 + static_cast<int>(random() % 40);
    Request& request = add_request(rows, rows, random);
    request.sampling.prompt_logprobs_from = 0;
    request.sampling.num_top_logprobs = 0;
    const bool reports = random() % 2 == 0;
    batch.slices.push_back({.request = &request,
                            .len = rows,
                            .is_sampled = random() % 2 == 0,
                            .logprobs_from = reports ? 0 : -1});
    batch.num_rows += rows;
  }

  void add_answer_with_drafts(std::mt19937& random) {
    const int length = 2 + static_cast<int>(random() % 60);
    const int forced = static_cast<int>(random() % std::min(3, length - 1));
    const int drafts = 1 + static_cast<int>(random() % kMaxDrafts);
    Request& request = add_request(length + drafts, 1, random);
    Slice slice{.request = &request,
                .begin = length - 1 - forced,
                .len = 1 + forced + drafts,
                .is_sampled = true,
                .num_drafts = drafts};
    std::copy_n(request.tokens.begin() + length, drafts, slice.drafts.begin());
    request.tokens.resize(static_cast<size_t>(length));
    batch.slices.push_back(slice);
    batch.num_rows += slice.len, batch.num_multirow_rows += slice.len;
    ++batch.num_multirow_slices, batch.num_drafts += drafts;
  }

  void add_answer(std::mt19937& random, bool pending_sample) {
    const int length = 2 + static_cast<int>(random() % (random() % 4 == 0 ? 120 : 20));
    Request& request = add_request(length, 1 + static_cast<int>(random() % (length - 1)), random);
    batch.slices.push_back({.request = &request,
                            .begin = length - 1,
                            .len = 1,
                            .is_sampled = true,
                            .pending_sample = pending_sample ? batch.num_decode_rows : -1});
    ++batch.num_rows, ++batch.num_decode_rows;
  }
};

Step random_step(int num_chunks, int num_answers, bool has_pending, uint32_t seed) {
  std::mt19937 random(seed);
  Step step;
  step.batch.mode = num_chunks == 0    ? ForwardMode::decode
                    : num_answers == 0 ? ForwardMode::extend
                                       : ForwardMode::mixed;
  for (int i = 0; i < num_chunks; ++i) step.add_chunk(random);
  const int num_drafted = num_chunks > 0 ? (num_chunks * num_answers + 2) / 3 : num_answers / 4;
  for (int i = 0; i < num_drafted; ++i) step.add_answer_with_drafts(random);
  for (int i = 0; i < num_answers; ++i) step.add_answer(random, has_pending && random() % 2 == 0);
  return step;
}

void expect_same_sequences(const Flight& got, const Flight& want, const Step& step) {
  const auto sequence_of = [](const Flight& flight, int row) {
    for (const AttentionSequence& s : flight.forward.sequences)
      if (s.row_begin <= row && row < s.row_begin + s.num_rows) return s;
    ADD_FAILURE() << "row " << row << " is in no sequence";
    return AttentionSequence{};
  };
  for (size_t i = 0; i < step.batch.slices.size(); ++i)
    for (int j = 0; j < step.batch.slices[i].len; ++j) {
      const int to = got.row_begins[i] + j, from = want.row_begins[i] + j;
      EXPECT_EQ(value(got.forward.ids[to]), value(want.forward.ids[from]));
      EXPECT_EQ(got.forward.positions[to], want.forward.positions[from]);
      EXPECT_EQ(got.forward.slots[to].page, want.forward.slots[from].page);
      EXPECT_EQ(got.forward.slots[to].offset, want.forward.slots[from].offset);
      const AttentionSequence a = sequence_of(got, to), b = sequence_of(want, from);
      EXPECT_EQ(a.first_position + to - a.row_begin, b.first_position + from - b.row_begin);
      EXPECT_EQ(a.form, b.form);
      EXPECT_TRUE(std::ranges::equal(a.pages, b.pages));
    }
}

void expect_same_outputs(const Flight& got, const Flight& want) {
  ASSERT_EQ(got.forward.output_rows.size(), want.forward.output_rows.size());
  for (size_t i = 0; i < got.forward.output_rows.size(); ++i) {
    const int to = got.forward.output_rows[i], from = want.forward.output_rows[i];
    // Each page belongs to one request.
    EXPECT_EQ(got.forward.slots[to].page, want.forward.slots[from].page);
    EXPECT_EQ(got.forward.slots[to].offset, want.forward.slots[from].offset);
  }
  ASSERT_EQ(got.samples.size(), want.samples.size());
  for (size_t i = 0; i < got.samples.size(); ++i) {
    EXPECT_EQ(got.samples[i].logits_row, want.samples[i].logits_row);
    EXPECT_EQ(got.samples[i].params, want.samples[i].params);
    EXPECT_EQ(got.samples[i].draft, want.samples[i].draft);
    EXPECT_EQ(got.samples[i].newer.size(), want.samples[i].newer.size());
  }
  ASSERT_EQ(got.prompt_rows.size(), want.prompt_rows.size());
  for (size_t i = 0; i < got.prompt_rows.size(); ++i) {
    EXPECT_EQ(got.prompt_rows[i].request, want.prompt_rows[i].request);
    EXPECT_EQ(got.prompt_rows[i].output, want.prompt_rows[i].output);
  }
  ASSERT_EQ(got.pending_rows.size(), want.pending_rows.size());
  for (size_t i = 0; i < got.pending_rows.size(); ++i) {
    EXPECT_EQ(got.pending_rows[i].index, want.pending_rows[i].index);
    EXPECT_EQ(got.forward.positions[got.pending_rows[i].row],
              want.forward.positions[want.pending_rows[i].row]);
  }
}

void expect_no_answer_is_cut(const Flight& flight, const Step& step, int share) {
  const int cut = split_for(flight.forward, {.share = share}).first_rows;
  const size_t num_prompts = step.batch.slices.size() - step.batch.num_answers();
  for (size_t i = num_prompts; i < step.batch.slices.size(); ++i) {
    const int begin = flight.row_begins[i];
    EXPECT_FALSE(begin < cut && cut < begin + step.batch.slices[i].len) << cut;
  }
}

const std::pair<int, int> kStepShapes[] = {{0, 1}, {0, 2}, {0, 15}, {0, 24}, {1, 0},
                                           {3, 0}, {1, 1}, {1, 9},  {2, 20}, {3, 8}};

TEST(Prepare, PackedStepsSayTheSameOfEveryRequest) {
  uint32_t seed = 0;
  for (const auto& [chunks, answers] : kStepShapes)
    for (const bool has_pending : {false, true}) {
      const Step step = random_step(chunks, answers, has_pending, ++seed);
      PrepareOptions options{.page_tokens = kPageTokens};
      Flight want, got;
      prepare(step.batch, options, want);
      options.packing = {.share = 28, .keys_per_row = 10};
      prepare(step.batch, options, got);
      ASSERT_NO_FATAL_FAILURE(expect_same_sequences(got, want, step));
      ASSERT_NO_FATAL_FAILURE(expect_same_outputs(got, want));
      EXPECT_EQ(got.forward.fresh_pages.size(), want.forward.fresh_pages.size());
      ASSERT_EQ(got.forward.half_borders.has_value(), answers > 0);
      for (const int share : {8, 28, 32, 56}) expect_no_answer_is_cut(got, step, share);
      // The same again, into a used flight.
      const std::vector<int32_t> rows = got.row_begins;
      prepare(step.batch, options, got);
      EXPECT_EQ(got.row_begins, rows);
    }
}

TEST(Prepare, EachDraftIsARowAndIsSampled) {
  std::mt19937 random(5);
  Step step;
  step.batch.mode = ForwardMode::decode;
  for (int i = 0; i < 9; ++i) step.add_answer_with_drafts(random);
  Flight flight;
  prepare(step.batch, {.page_tokens = kPageTokens}, flight);
  const std::vector<TokenId>& ids = flight.forward.ids;
  size_t next = 0;
  for (size_t i = 0; i < step.batch.slices.size(); ++i) {
    const Slice& slice = step.batch.slices[i];
    const int known = slice.begin + slice.len - slice.num_drafts, first = flight.row_begins[i];
    for (int draft = 0; draft <= slice.num_drafts; ++draft, ++next) {
      ASSERT_LT(next, flight.samples.size());
      const SampleRow& sample = flight.samples[next];
      const int row = flight.forward.output_rows[static_cast<size_t>(sample.logits_row)];
      EXPECT_EQ(row, first + known + draft - 1 - slice.begin);
      EXPECT_EQ(flight.forward.positions[static_cast<size_t>(row)], known + draft - 1);
      EXPECT_EQ(sample.position(), known + draft);
      const bool is_last = draft == slice.num_drafts;
      EXPECT_EQ(sample.draft, is_last ? TokenId{-1} : ids[static_cast<size_t>(row + 1)]);
      EXPECT_TRUE(std::ranges::equal(sample.newer, std::span(slice.drafts).first(draft)));
    }
  }
  EXPECT_EQ(next, flight.samples.size());
}

// Checks rows and keys of the halves when decode rows are most of the step.
TEST(Prepare, HalvesHaveTheirShareOfRowsAndKeys) {
  for (const auto& [chunks, answers] : {std::pair(0, 40), std::pair(1, 40)}) {
    const Step step = random_step(chunks, answers, false, 77);
    constexpr int kShare = 22;
    Flight flight;
    prepare(
        step.batch,
        {.page_tokens = kPageTokens, .packing = HalfPacking{.share = kShare, .keys_per_row = 50}},
        flight);
    const ForwardBatch& batch = flight.forward;
    const int cut = split_for(batch, {.share = kShare}).first_rows;
    const double share = kShare / 64.0;
    EXPECT_NEAR(cut, share * batch.num_rows(), 4);
    const size_t first_answer = step.batch.slices.size() - step.batch.num_answers();
    double keys[2] = {};
    for (size_t i = first_answer; i < step.batch.slices.size(); ++i) {
      const Slice& slice = step.batch.slices[i];
      for (int key = slice.begin + 1; key <= slice.begin + slice.len; ++key)
        keys[flight.row_begins[i] >= cut ? 1 : 0] += key;
    }
    EXPECT_NEAR(keys[0] / (keys[0] + keys[1]), share, 0.1) << chunks;
  }
}

// Runs the model: with other rows beside and other halves, the logits have the same bits.
TEST(Prepare, TheModelComputesTheSame) {
  log::set_level(log::Level::error);
  for (const Form& form : {kMoe, kMla}) {
    ServerSettings settings = base_settings(form);
    settings.memory.page_size = kPageTokens;
    auto made = Runner::create({.settings = settings});
    ASSERT_TRUE(made.has_value()) << describe(made.error());
    Runner& runner = **made;
    uint32_t seed = 100;
    for (const auto& [chunks, answers] : kStepShapes) {
      const Step step = random_step(chunks, answers, false, ++seed);
      ASSERT_LE(step.used_pages, runner.plan().num_pages);
      std::vector<float> found[2];
      for (const bool packed : {false, true}) {
        PrepareOptions options{.page_tokens = kPageTokens,
                               .prompt_form = runner.info().prompt_form};
        if (packed) options.packing = HalfPacking{.share = 28, .keys_per_row = 10};
        Flight flight;
        prepare(step.batch, options, flight);
        runner.forward(flight.forward);
        const int outputs = static_cast<int>(flight.forward.output_rows.size());
        for (int i = 0; i < outputs; ++i) {
          const View<float> logits = runner.logits(i, 1);
          found[packed].insert(found[packed].end(), logits.row(0), logits.row(0) + logits.cols);
        }
      }
      ASSERT_EQ(found[0].size(), found[1].size());
      EXPECT_EQ(std::memcmp(found[0].data(), found[1].data(), found[0].size() * sizeof(float)), 0)
          << form.name << ": " << chunks << " chunks, " << answers << " answers";
    }
  }
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace hocket
