#include "ranks.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

namespace engine {

// One lock and one condition for all: a failure must wake every rank, whomever it waits for.
struct Job {
  explicit Job(int size)
      : world_size(size),
        messages(static_cast<std::size_t>(size * size)),
        ended(static_cast<std::size_t>(size)) {}

  std::deque<std::vector<float>>& between(int from, int to) {
    if (from < 0 || from >= world_size || to < 0 || to >= world_size)
      throw std::invalid_argument("send and receive: ranks must be in [0, " + std::to_string(world_size) +
                                  "), but are " + std::to_string(from) + " and " + std::to_string(to));
    return messages[static_cast<std::size_t>(from * world_size + to)];
  }
  // failure: "" where the rank has returned.
  void end(int rank, const std::string& failure) {
    const std::lock_guard lock(mutex);
    ended[static_cast<std::size_t>(rank)] = true;
    if (!failure.empty() && first_failure.empty())
      first_failure = "rank " + std::to_string(rank) + " of " + std::to_string(world_size) + ": " + failure;
    changed.notify_all();
  }

  const int world_size;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::deque<std::vector<float>>> messages;
  std::vector<bool> ended;
  std::string first_failure;
};

void Rank::send(int to, std::span<const float> values) {
  std::vector<float> message(values.begin(), values.end());
  const std::lock_guard lock(job_.mutex);
  job_.between(rank_, to).push_back(std::move(message));
  ++sent_messages_;
  sent_bytes_ += static_cast<std::int64_t>(values.size_bytes());
  job_.changed.notify_all();
}

std::vector<float> Rank::receive(int from) {
  std::unique_lock lock(job_.mutex);
  std::deque<std::vector<float>>& waiting = job_.between(from, rank_);
  const auto ended = [&] { return job_.ended[static_cast<std::size_t>(from)]; };
  job_.changed.wait(lock, [&] { return !waiting.empty() || ended() || !job_.first_failure.empty(); });
  if (waiting.empty())
    throw PeerLost(job_.first_failure.empty()
                       ? "receive: rank " + std::to_string(from) + " has ended, and sends nothing more"
                       : "receive: a rank has failed (" + job_.first_failure + ")");
  std::vector<float> message = std::move(waiting.front());
  waiting.pop_front();
  return message;
}

void run_ranks(int world_size, const std::function<void(Rank&)>& f) {
  if (world_size < 1)
    throw std::invalid_argument("run_ranks: there must be at least one rank, but world_size is " +
                                std::to_string(world_size));
  Job job(world_size);
  std::vector<std::thread> threads;
  for (int r = 0; r < world_size; ++r) {
    threads.emplace_back([&, r] {
      std::string failure;
      try {
        Rank rank(job, r, world_size);
        f(rank);
      } catch (const std::exception& error) {
        failure = error.what();
        if (failure.empty()) failure = "an exception without a text";
      } catch (...) {
        failure = "an exception of unknown type";
      }
      job.end(r, failure);
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!job.first_failure.empty()) throw std::runtime_error(job.first_failure);
}

}  // namespace engine
