#include "trainer/signals.h"

#include <array>
#include <csignal>
#include <cstring>
#include <mutex>

#include <unistd.h>

#include "dist/launch/bootstrap.h"
#include "dist/watch/watchdog.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

constexpr std::array kEnding{SIGINT, SIGTERM, SIGHUP};

constexpr int kSaves = SIGUSR1;

volatile std::sig_atomic_t caught_signal = 0, save_requested = 0, was_guarded = 0;
std::array<struct sigaction, kEnding.size()> before{};
struct sigaction before_saves {};
std::mutex guards_mutex;
int guards = 0;  // several, if ranks are threads: the first installs, the last restores

/// Only what a signal handler may call.
void say(const char* text) {
  (void)!::write(STDERR_FILENO, text, std::strlen(text));
}

/// The handler of say_what_ended().
void end_with_a_line(int signal) {
  say("ended by SIG");
  say(signal == SIGINT ? "INT" : signal == SIGTERM ? "TERM" : "HUP");
  say(was_guarded ? "\n" : " before the first step; nothing was saved\n");
  ::_exit(128 + signal);
}

void note(int signal) {
  if (caught_signal == 0) caught_signal = signal;
  for (std::size_t i = 0; i < kEnding.size(); ++i) {
    const auto other = before[i].sa_handler;  // an earlier handler
    const bool none =
        (before[i].sa_flags & SA_SIGINFO) || other == SIG_DFL || other == SIG_IGN || other == end_with_a_line;
    if (kEnding[i] == signal && !none) other(signal);
  }
}

void note_save(int) {
  save_requested = 1;
}

}  // namespace

SignalGuard::SignalGuard() {
  const std::scoped_lock lock(guards_mutex);
  if (guards++ > 0) return;
  caught_signal = 0;
  was_guarded = 1;
  struct sigaction action {};
  action.sa_handler = note;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kEnding.size(); ++i) {
    sigaction(kEnding[i], nullptr, &before[i]);
    // A closing terminal sends SIGHUP twice: from the system and from the shell.
    action.sa_flags = static_cast<int>(kEnding[i] == SIGHUP ? SA_RESTART : SA_RESETHAND | SA_RESTART);
    if (before[i].sa_handler != SIG_IGN) sigaction(kEnding[i], &action, nullptr);
  }
  save_requested = 0;
  action.sa_handler = note_save;
  action.sa_flags = SA_RESTART;
  sigaction(kSaves, &action, &before_saves);
  // One that came just before, to the Watchdog alone.
  if (caught_signal == 0) caught_signal = dist::Watchdog::signal();
}

SignalGuard::~SignalGuard() {
  const std::scoped_lock lock(guards_mutex);
  if (--guards > 0) return;
  for (std::size_t i = 0; i < kEnding.size(); ++i) sigaction(kEnding[i], &before[i], nullptr);
  sigaction(kSaves, &before_saves, nullptr);
}

int SignalGuard::caught() const {
  return caught_signal;
}

bool SignalGuard::take_save_request() const {
  const bool requested = save_requested != 0;
  if (requested) save_requested = 0;
  return requested;
}

void say_what_ended() {
  try {
    if (!dist::find_rank_info().alone()) return;  // their launcher says it
  } catch (const ArgumentError&) {                // reported when the ranks are joined
    return;
  }
  struct sigaction action {};
  action.sa_handler = end_with_a_line;
  sigemptyset(&action.sa_mask);
  for (const int signal : kEnding) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler == SIG_DFL) sigaction(signal, &action, nullptr);
  }
}

}  // namespace athanor
