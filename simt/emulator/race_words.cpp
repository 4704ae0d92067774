#include <fmt/format.h>

#include "simt/emulator/copies.h"
#include "simt/emulator/detector.h"
#include "simt/emulator/symbols.h"

namespace simt::race {

std::string thread_name(const OpRecord& op, const Stamp& stamp) {
  if (op.kind != OpRecord::Kind::kernel) return {};
  const auto t = static_cast<unsigned>(stamp.thread);
  const std::string block =
      fmt::format("block ({},{},{})", stamp.block % op.grid.x, stamp.block / op.grid.x % op.grid.y,
                  stamp.block / op.grid.x / op.grid.y);
  if (t >= BlockOrder::kFirstAgent) return "asynchronous work of " + block;
  return fmt::format("thread ({},{},{}) of {}", t % op.block.x, t / op.block.x % op.block.y,
                     t / op.block.x / op.block.y, block);
}

std::string op_name(const OpRecord& op) {
  switch (op.kind) {
    case OpRecord::Kind::kernel: return fmt::format("kernel {} on stream {}", op.name, op.stream_id);
    case OpRecord::Kind::copy:
      return fmt::format("the copy of {} bytes from {} at {}:{} on stream {}", op.bytes,
                         copy_name(op.direction), op.site.file, op.site.line, op.stream_id);
    case OpRecord::Kind::fill:
      return fmt::format("the memset of {} bytes at {}:{} on stream {}", op.bytes, op.site.file, op.site.line,
                         op.stream_id);
    case OpRecord::Kind::message: return fmt::format("a message on stream {}", op.stream_id);
    case OpRecord::Kind::other: break;
  }
  return "work";
}

std::string place(const Stamp& stamp) {
  return stamp.pc ? " at " + line_of(reinterpret_cast<const void*>(std::uintptr_t{stamp.pc})) : std::string();
}

std::string how(const Stamp& stamp, bool write, bool past) {
  const std::string_view verb = write ? (past ? "wrote" : "writes") : (past ? "read" : "reads");
  const bool async = stamp.under_way || (stamp.by_proxy && stamp.thread < BlockOrder::kFirstAgent);
  return fmt::format("{}{}{}{}", verb, stamp.atomic ? " atomically" : "", async ? " asynchronously" : "",
                     place(stamp));
}

void say(std::string text) {
  Detector& now = detector();
  if (now.report.empty()) now.report = std::move(text);
}

// What would have made an order.
static std::string missing_between(const Stamp& before, const Stamp& after) {
  constexpr unsigned kWarp = 32;
  if (before.block != after.block) return "ordering";
  if (before.thread >= BlockOrder::kFirstAgent)
    return fmt::format("{}", detector().agents[before.thread - BlockOrder::kFirstAgent]);
  if (before.under_way) return "wait for it";
  return before.thread / kWarp == after.thread / kWarp ? "__syncwarp or barrier" : "barrier";
}

void clash(const Stamp& before, bool before_wrote, const Stamp& after, bool after_writes, bool shared) {
  Detector& now = detector();
  if (!now.report.empty()) return;
  const OpRecord& op = now.ops[now.op];
  if (before.op != now.op) {
    const OpRecord& other = now.ops[before.op];
    say(fmt::format("race between streams: {}{} {}, {} {} {}, with no event that orders them", op_name(op),
                    op.kind == OpRecord::Kind::kernel ? ": " + thread_name(op, after) : "",
                    how(after, after_writes, false), op_name(other), thread_name(other, before),
                    how(before, before_wrote, true)));
    return;
  }
  say(fmt::format("kernel {}: race in {} memory: {} {}, {} {}, with no {} in between", op.name,
                  shared ? "shared" : "global", thread_name(op, after), how(after, after_writes, false),
                  thread_name(op, before), how(before, before_wrote, true), missing_between(before, after)));
}

void unfenced(const Stamp& write, const Stamp& after, bool after_writes, bool shared) {
  const OpRecord& op = detector().ops[detector().op];
  say(fmt::format("kernel {}: {} memory: {} {}, {} {}, with no fence.proxy.async in between", op.name,
                  shared ? "shared" : "global", thread_name(op, after), how(after, after_writes, false),
                  thread_name(op, write), how(write, true, true)));
}

}  // namespace simt::race
