// The terminal for a view that is drawn again and again: a screen of its own without a cursor, keys
// that are read at once, and all of it given back at the end, however the end comes.
#pragma once

#include <csignal>
#include <memory>
#include <string_view>

namespace hocket {

class LiveScreen {
 public:
  // Pre: stdout is a terminal. While it lives, signals that would end the process end wait()
  // instead.   Thread: the main one, before any other is made.
  LiveScreen();
  ~LiveScreen();
  LiveScreen(const LiveScreen&) = delete;
  LiveScreen& operator=(const LiveScreen&) = delete;

  struct Size {
    int columns = 80, rows = 24;
  };
  static Size size();

  // Lines, in place of what was there.
  void draw(std::string_view page) const;
  // Up to `seconds`; less when the window's size changes. False: q, Ctrl-C or a signal ends it.
  bool wait(double seconds) const;

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
};

}  // namespace hocket
