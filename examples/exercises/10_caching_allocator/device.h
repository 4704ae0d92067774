#pragma once

#include <cstdint>
#include <map>
#include <vector>

// A device with some memory and queues of work (streams), which runs nothing until it is told to.
class Device {
 public:
  explicit Device(std::int64_t bytes) : room_(bytes) {}

  /// A block, from 1; 0 if there is no room.
  std::int64_t allocate(std::int64_t bytes) {
    ++allocations;
    if (bytes > room_) return 0;
    room_ -= bytes;
    sizes_[++last_] = bytes;
    return last_;
  }
  /// Waits for the device, as cudaFree does.
  void free(std::int64_t block) {
    ++frees;
    wait();
    room_ += sizes_.at(block);
    sizes_.erase(block);
  }
  void wait() {
    ++waits;
    run_all();
  }
  /// Queues work on a stream.
  void work(int stream) { ++queued_[stream]; }
  /// Everything that has been queued there so far.
  struct Event {
    int stream = 0;
    std::int64_t number = 0;
  };
  Event record(int stream) { return {stream, queued_[stream]}; }
  bool done(const Event& event) { return done_[event.stream] >= event.number; }

  void run_all() { done_ = queued_; }
  std::int64_t size_of(std::int64_t block) const { return sizes_.at(block); }

  int allocations = 0, frees = 0, waits = 0;

 private:
  std::int64_t room_, last_ = 0;
  std::map<std::int64_t, std::int64_t> sizes_;
  std::map<int, std::int64_t> queued_, done_;
};
