#include "server/text_pool.h"

#include <chrono>
#include <optional>
#include <string>

namespace hocket {

TextPool::TextPool(int num_threads, size_t max_waiting) : tasks_(max_waiting) {
  for (int i = 0; i < num_threads; ++i)
    threads_.emplace_back(Thread::Options{.name = "text" + std::to_string(i)}, [this] { run(); });
}

TextPool::~TextPool() {
  tasks_.close();
  for (Thread& thread : threads_) thread.join();
}

void TextPool::run() {
  while (true) {
    std::optional<Task> task;
    {
      std::lock_guard turn(reader_);
      task = tasks_.wait_pop(std::chrono::seconds(1));
      if (!task && tasks_.closed()) return;
    }
    if (task) (*task)();
  }
}

}  // namespace hocket
