#include <algorithm>
#include <utility>

#include "compute/kernels/attention.h"
#include "compute/kernels/attention_run.h"

namespace hocket {
namespace {

// Items, each a task and a KV head, that every worker gets where a sequence has enough rows.
constexpr int kItemsOfWorker = 4;

// Returns the most tokens that one task takes. Large tasks read their keys less often, but there
// must be enough of them for all workers.
int task_tokens(const AttentionSequence& sequence, int group, const KvShape& shape,
                int num_workers) {
  if (shape.kind == KvShape::Kind::latent)
    return sequence.form == MlaForm::expanded ? kExpandedTokens : std::max(1, kQueryRows / group);
  if (!shape.reads_in_place()) return std::max(1, kManyQueryRows / group);
  const int enough = sequence.num_rows * shape.num_heads / (kItemsOfWorker * num_workers);
  return std::max(1, std::clamp(enough, kQueryRows / group, kManyQueryRows / group));
}

// Returns true if the sequence has so few rows that several such sequences may make one task.
bool may_share(const AttentionSequence& sequence, int group, const KvShape& shape,
               int num_workers) {
  if (shape.kind == KvShape::Kind::latent && sequence.form == MlaForm::expanded) return false;
  return sequence.first_position >= kSoftmaxBlock &&
         2 * sequence.num_rows <= task_tokens(sequence, group, shape, num_workers);
}

// Returns the leading keys, in whole softmax blocks, that are in the same pages of both sequences
// and that all rows of both see.
int shared_keys(const AttentionSequence& a, const AttentionSequence& b, int page_tokens) {
  const int64_t same = std::ranges::mismatch(a.pages, b.pages).in1 - a.pages.begin();
  const int64_t seen = std::min(a.first_position, b.first_position);
  return static_cast<int>(std::min(seen, same * page_tokens) / kSoftmaxBlock * kSoftmaxBlock);
}

// One call of AttentionPlan::build.
class Cut {
 public:
  Cut(AttentionPlan& plan, int group, const KvShape& shape)
      : plan_(plan), group_(group), shape_(shape) {}

  void run() {
    std::vector<int>& members = plan_.members;
    plan_.tasks.clear();
    members.clear();
    for (int s = 0; s < std::ssize(plan_.sequences); ++s)
      plan_.shares_keys&& may_share(plan_.sequences[s], group_, shape_, plan_.num_workers)
          ? members.push_back(s)
          : add_one(s);
    // Sorted by pages, neighbours share the most keys:
    //   members   a a a b b b b c
    //   tasks     |-----|-------| c     each run has its own number of shared keys
    std::ranges::sort(members, [&](int a, int b) {
      return std::ranges::lexicographical_compare(plan_.sequences[a].pages,
                                                  plan_.sequences[b].pages);
    });
    for (int begin = 0; begin < std::ssize(members);) begin = add_run(begin);
  }

 private:
  void add_one(int s) {
    const int num_rows = plan_.sequences[s].num_rows;
    const int step = task_tokens(plan_.sequences[s], group_, shape_, plan_.num_workers);
    for (int row = 0; row < num_rows; row += step)
      plan_.tasks.push_back(
          {.sequence = s, .row_begin = row, .num_rows = std::min(step, num_rows - row)});
  }

  // Makes tasks of the members from `begin` on, as long as one more member saves reading. Returns
  // their end.
  int add_run(int begin) {
    const std::vector<int>& members = plan_.members;
    int keys = 0, end = begin + 1, rows = plan_.sequences[members[begin]].num_rows;
    for (; end < std::ssize(members); ++end) {
      const AttentionSequence& last = plan_.sequences[members[end - 1]];
      const AttentionSequence& next = plan_.sequences[members[end]];
      int with_next = shared_keys(last, next, shape_.page_tokens);
      if (end > begin + 1) with_next = std::min(with_next, keys);
      if (with_next == 0 || (end - begin) * with_next < (end - begin - 1) * keys) break;
      // Stop if the next member shares more with the one after it, in a task of their own.
      if (end + 1 < std::ssize(members) &&
          shared_keys(next, plan_.sequences[members[end + 1]], shape_.page_tokens) > 2 * with_next)
        break;
      keys = with_next;
      rows += next.num_rows;
    }
    add_tasks(begin, end, rows, keys);
    return end;
  }

  // Cuts members [begin, end), which have `rows` rows in all, into tasks of about the same size, as
  // large as possible without leaving a worker idle.
  void add_tasks(int begin, int end, int rows, int keys) {
    const std::vector<int>& members = plan_.members;
    const int most =
        std::clamp(rows * shape_.num_heads / (2 * plan_.num_workers), 1,
                   task_tokens(plan_.sequences[members[begin]], group_, shape_, plan_.num_workers));
    const int num_tasks = (rows + most - 1) / most, wanted = (rows + num_tasks - 1) / num_tasks;
    while (begin < end) {
      AttentionPlan::Task task = {
          .sequence = members[begin], .num_members = 0, .first_member = begin, .shared_keys = keys};
      for (; begin < end; ++begin, ++task.num_members) {
        const int more = plan_.sequences[members[begin]].num_rows;
        if (task.num_members > 0 && task.num_rows + more > wanted) break;
        task.num_rows += more;
      }
      task.num_members == 1 ? add_one(task.sequence) : plan_.tasks.push_back(task);
    }
  }

  AttentionPlan& plan_;
  const int group_;
  const KvShape& shape_;
};

}  // namespace

void AttentionPlan::reserve(int max_sequences, int max_rows) {
  sequences.reserve(max_sequences);
  members.reserve(max_sequences);
  tasks.reserve(max_rows);
}

void AttentionPlan::build(int num_heads, const KvShape& shape) {
  HOCKET_CHECK(shape.num_heads >= 1 && num_heads % shape.num_heads == 0);
  Cut(*this, num_heads / shape.num_heads, shape).run();
  // The forms are apart because latent attention runs them apart. Within a form the longest
  // tasks come first, so no worker starts a long one when the others are done.
  const auto order = [&](const Task& t) {
    return std::pair(sequences[t.sequence].form, -int64_t{num_keys(t)} * t.num_rows);
  };
  std::ranges::sort(tasks, [&](const Task& a, const Task& b) { return order(a) < order(b); });
}

AttentionPlan::Task AttentionPlan::member(const Task& task, int index) const {
  if (task.num_members == 1) return task;
  const int s = members[task.first_member + index];
  return {.sequence = s, .num_rows = sequences[s].num_rows};
}

int AttentionPlan::num_keys(const Task& task) const {
  int most = 0;
  for (int i = 0; i < task.num_members; ++i) {
    const Task rows = member(task, i);
    most = std::max(most, sequences[rows.sequence].first_position + rows.row_begin + rows.num_rows);
  }
  return most;
}

int AttentionPlan::first_key(const Task& task, const VisibleKeys& visible) const {
  int least = num_keys(task);
  for (int i = 0; i < task.num_members; ++i) {
    const Task rows = member(task, i);
    const int position = sequences[rows.sequence].first_position + rows.row_begin;
    least = std::min(least, visible.first_key(position));
  }
  return least;
}

}  // namespace hocket
