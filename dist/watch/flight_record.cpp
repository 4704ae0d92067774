#include "dist/watch/flight_record.h"

#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace athanor::dist {
namespace {

// Release and acquire: a reader that sees a field of a later entry also sees the changed mark.
template <class T> void put(T& place, std::type_identity_t<T> value) {
  std::atomic_ref(place).store(value, std::memory_order_release);
}
template <class T> T get(const T& place) {
  return std::atomic_ref(const_cast<T&>(place)).load(std::memory_order_acquire);
}

/// Writes text to a file through a small buffer, without allocations or locales.
class Lines {
 public:
  explicit Lines(int file) : file_(file) {}

  Lines& text(std::string_view text) {
    for (const char c : text) {
      if (used_ == buffer_.size()) flush();
      buffer_[used_++] = c;
    }
    return *this;
  }
  Lines& quoted(std::string_view value) {
    text("\"");
    for (const char c : value) {
      if (c == '"' || c == '\\') text("\\");
      text({static_cast<unsigned char>(c) < 0x20 ? " " : &c, 1});
    }
    return text("\"");
  }
  Lines& number(std::int64_t value) {
    std::array<char, 24> digits;
    const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    return text({digits.data(), static_cast<std::size_t>(end - digits.data())});
  }
  Lines& field(std::string_view name, std::int64_t value) {
    return text(",\"").text(name).text("\":").number(value);
  }
  Lines& field(std::string_view name, std::string_view value) {
    return text(",\"").text(name).text("\":").quoted(value);
  }
  bool flush() {
    for (std::size_t done = 0; done < used_ && good_;) {
      const ssize_t wrote = ::write(file_, buffer_.data() + done, used_ - done);
      if (wrote > 0) done += static_cast<std::size_t>(wrote);
      good_ = wrote > 0 || errno == EINTR;
    }
    used_ = 0;
    return good_;
  }

 private:
  int file_;
  bool good_ = true;
  std::size_t used_ = 0;
  std::array<char, 2048> buffer_;
};

/// At most `most` bytes, without partial characters, which are invalid in JSON.
std::string_view cut(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) --most;
  return text.substr(0, most);
}

std::int64_t since(std::chrono::nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}
// Intervals must not jump when the system clock is set.
const std::int64_t kSteadyToUnix = since(std::chrono::system_clock::now().time_since_epoch()) -
                                   since(std::chrono::steady_clock::now().time_since_epoch());

}  // namespace

// `mark` is seq + 1, or 0 while the entry is being written.
struct FlightRecord::Slot {
  std::int64_t mark, count, bucket, launch_us, start_us, last_us, end_us, bytes;
  int waits_for;
  const char* name;
  DType dtype;
};

std::int64_t FlightRecord::now_us() noexcept {
  return since(std::chrono::steady_clock::now().time_since_epoch()) + kSteadyToUnix;
}

// calloc allocates pages on first write: a thousand simulated ranks use only what they need.
FlightRecord::FlightRecord(int rank, int world_size)
    : rank_(rank),
      world_size_(world_size),
      began_us_(now_us()),
      slots_(static_cast<Slot*>(std::calloc(kEntries, sizeof(Slot))), std::free) {
  if (!slots_) throw std::bad_alloc();
  gethostname(host_.data(), host_.size() - 1);
}
FlightRecord::~FlightRecord() = default;

std::int64_t FlightRecord::size() const {
  return get(begun_);
}

void FlightRecord::begin(std::int64_t seq, const Call& call, std::int64_t launch_us) {
  Slot& slot = slots_[static_cast<std::size_t>(seq % kEntries)];
  put(slot.mark, 0);
  const std::int64_t now = now_us();
  put(slot.name, call.name);
  put(slot.dtype, call.dtype);
  put(slot.count, call.count);
  put(slot.bucket, call.bucket);
  put(slot.launch_us, launch_us ? launch_us : now);
  put(slot.start_us, now);
  put(slot.last_us, now);
  put(slot.end_us, 0);
  put(slot.bytes, 0);
  put(slot.waits_for, -1);
  put(slot.mark, seq + 1);
  put(begun_, seq + 1);
}

// The newest entry, or that of `seq`, if it is not done; else null.
FlightRecord::Slot* FlightRecord::current(std::int64_t seq) const {
  const std::int64_t begun = seq < 0 ? get(begun_) : seq + 1;
  if (begun == 0) return nullptr;
  Slot& slot = slots_[static_cast<std::size_t>((begun - 1) % kEntries)];
  return get(slot.mark) == begun && get(slot.end_us) == 0 ? &slot : nullptr;
}

void FlightRecord::moved(std::int64_t bytes) {
  if (Slot* slot = current()) {
    put(slot->bytes, get(slot->bytes) + bytes);
    put(slot->last_us, now_us());
  }
}

void FlightRecord::waits_for(int rank, std::int64_t seq) {
  if (Slot* slot = current(seq)) put(slot->waits_for, rank);
}

void FlightRecord::end(std::int64_t seq) {
  if (Slot* slot = current(seq)) {
    put(slot->waits_for, -1);
    put(slot->end_us, now_us());
  }
}

FlightRecord::Entry FlightRecord::at(std::int64_t seq) const {
  if (seq < 0) return {};
  const Slot& slot = slots_[static_cast<std::size_t>(seq % kEntries)];
  if (get(slot.mark) != seq + 1) return {};
  const Entry entry{.seq = seq,
                    .call = {get(slot.name), get(slot.dtype), get(slot.count), get(slot.bucket)},
                    .launch_us = get(slot.launch_us),
                    .start_us = get(slot.start_us),
                    .last_us = get(slot.last_us),
                    .end_us = get(slot.end_us),
                    .bytes = get(slot.bytes),
                    .waits_for = get(slot.waits_for)};
  return get(slot.mark) == seq + 1 ? entry : Entry{};
}

std::string describe_wait(const FlightRecord& record) {
  const FlightRecord::Entry last = record.oldest_open();
  if (last.seq < 0) return fmt::format("rank {} has not reached its first collective", record.rank());
  std::string call = fmt::format("{} #{}", last.call.name, last.seq);
  if (last.call.bucket >= 0) call += fmt::format(", bucket {}", last.call.bucket);
  const auto seconds = [&](std::int64_t since_us) {
    return static_cast<double>((FlightRecord::now_us() - since_us) / 100'000) / 10;
  };
  if (!last.under_way())
    return fmt::format("rank {} is in no collective: its last, {}, was done {} s ago", record.rank(), call,
                       seconds(last.end_us));
  return fmt::format("rank {} waits for {} in {}, for {} s", record.rank(),
                     last.waits_for < 0 ? "others" : fmt::format("rank {}", last.waits_for), call,
                     seconds(last.last_us));
}

int create_private(const char* path) noexcept {
  ::unlink(path);
  return ::open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

bool FlightRecord::write(const char* path, std::string_view reason, std::string_view error) const noexcept {
  // Writes a separate file and renames it when complete: a process killed while writing keeps the old one.
  std::array<char, 4200> unfinished{};
  const std::size_t length = std::strlen(path);
  if (length + sizeof kUnfinished > unfinished.size()) return false;
  std::memcpy(unfinished.data(), path, length);
  std::memcpy(unfinished.data() + length, kUnfinished, sizeof kUnfinished);
  const int file = create_private(unfinished.data());
  if (file < 0) return false;
  const std::int64_t begun = size();
  Lines lines(file);
  lines.text("{\"flight\":1").field("rank", rank_).field("world_size", world_size_);
  lines.field("host", host_.data())
      .field("pid", getpid())
      .field("reason", reason)
      .field("error", cut(error, 4096));
  lines.field("began_us", began_us_).field("now_us", now_us()).field("begun", begun).text("}\n");
  std::int64_t written = 0;
  for (std::int64_t seq = begun - 1; seq >= 0 && seq >= begun - kEntries; --seq) {
    const Entry entry = at(seq);
    if (entry.seq < 0) continue;
    const std::string_view name(entry.call.name);
    const std::size_t space = name.rfind(' ');
    lines.text("{\"seq\":").number(entry.seq);
    lines.field("op", name.substr(space + 1))
        .field("algorithm", space < name.size() ? name.substr(0, space) : "");
    lines.field("dtype", name_of(entry.call.dtype)).field("count", entry.call.count);
    lines.field("payload", entry.call.bytes());
    lines.field("bucket", entry.call.bucket).field("launch_us", entry.launch_us);
    lines.field("start_us", entry.start_us).field("last_us", entry.last_us).field("end_us", entry.end_us);
    lines.field("bytes", entry.bytes).field("waits_for", entry.waits_for).text("}\n");
    ++written;
  }
  lines.text("{\"entries\":").number(written).text("}\n");
  const bool good = lines.flush();
  return ::close(file) == 0 && good && ::rename(unfinished.data(), path) == 0;
}

}  // namespace athanor::dist
