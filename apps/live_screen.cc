#include "apps/live_screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

namespace hocket {
namespace {

constexpr std::string_view kBegin = "\x1b[?1049h\x1b[?25l";  // another screen, no cursor
constexpr std::string_view kEnd = "\x1b[?25h\x1b[?1049l";
constexpr std::string_view kTop = "\x1b[H", kRestOfLine = "\x1b[K", kRestOfScreen = "\x1b[J";

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(STDOUT_FILENO, text.data(), text.size());
    if (count <= 0) return;  // the terminal is gone; SIGHUP ends wait()
    text.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace

struct LiveScreen::Terminal {
  sigset_t signals{}, before{};
  int signal_file = -1;
  std::optional<termios> keys_before;  // nullopt: stdin is no terminal
};

LiveScreen::LiveScreen() : terminal_(std::make_unique<Terminal>()) {
  Terminal& t = *terminal_;
  sigemptyset(&t.signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH})
    sigaddset(&t.signals, signal);
  pthread_sigmask(SIG_BLOCK, &t.signals, &t.before);
  t.signal_file = signalfd(-1, &t.signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (termios keys{}; tcgetattr(STDIN_FILENO, &keys) == 0) {
    t.keys_before = keys;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &keys);
  }
  write_all(kBegin);
}

LiveScreen::~LiveScreen() {
  Terminal& t = *terminal_;
  write_all(kEnd);
  if (t.keys_before) tcsetattr(STDIN_FILENO, TCSANOW, &*t.keys_before);
  if (t.signal_file >= 0) close(t.signal_file);
  pthread_sigmask(SIG_SETMASK, &t.before, nullptr);
}

LiveScreen::Size LiveScreen::size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {};
  return {.columns = size.ws_col, .rows = size.ws_row};
}

void LiveScreen::draw(std::string_view page) const {
  while (page.ends_with('\n')) page.remove_suffix(1);
  std::string text(kTop);
  for (size_t at = 0; at <= page.size();) {
    const size_t end = std::min(page.find('\n', at), page.size());
    if (at > 0) text += "\r\n";
    text += page.substr(at, end - at);
    text += kRestOfLine;
    at = end + 1;
  }
  text += kRestOfScreen;
  write_all(text);
}

bool LiveScreen::wait(double seconds) const {
  const Terminal& t = *terminal_;
  pollfd files[] = {{t.signal_file, POLLIN, 0},
                    {t.keys_before ? STDIN_FILENO : -1, POLLIN, 0}};  // poll() ignores -1
  const double ms = std::clamp(std::ceil(seconds * 1e3), 0.0, 1e9);
  if (poll(files, std::size(files), static_cast<int>(ms)) <= 0) return true;
  signalfd_siginfo info{};
  if (read(t.signal_file, &info, sizeof info) == sizeof info) return info.ssi_signo == SIGWINCH;
  char key = 0;
  if (files[1].revents == 0) return true;
  return read(STDIN_FILENO, &key, 1) == 1 && key != 'q' && key != 'Q';
}

}  // namespace hocket
