// The terminal for a view that is redrawn: it switches to the alternate screen, hides the cursor
// and reads keys without Enter. The destructor restores all of that, also after a signal.
#pragma once

#include <csignal>
#include <memory>
#include <string_view>

namespace hocket {

class LiveScreen {
 public:
  // Requires that stdout is a terminal. While this object lives, SIGINT, SIGTERM, SIGHUP and
  // SIGQUIT end wait() instead of the process.   Thread: the main one, before it makes another.
  LiveScreen();
  ~LiveScreen();
  LiveScreen(const LiveScreen&) = delete;
  LiveScreen& operator=(const LiveScreen&) = delete;

  struct Size {
    int columns = 80, rows = 24;
  };
  static Size size();

  // Replaces the screen's content by the lines of `page`.
  void draw(std::string_view page) const;
  // Waits up to `seconds`, less if a key is pressed or the window's size changes. Returns false if
  // the view shall end: after q, Ctrl-C, a signal or the end of stdin.
  bool wait(double seconds) const;

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
};

}  // namespace hocket
