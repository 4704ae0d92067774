#include "loader.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <vector>

#include "random.h"

namespace engine {

Shape InMemory::image_shape() const {
  const Shape& all = data_.images.shape();
  return {all.begin() + 1, all.end()};
}

int InMemory::read(std::int64_t sample, float* image) const {
  const std::vector<float> values = data_.images.narrow(0, sample, 1).values();
  std::copy(values.begin(), values.end(), image);
  return data_.labels[static_cast<std::size_t>(sample)];
}

void shift_image(const float* from, float* to, const Shape& shape, std::int64_t down, std::int64_t right) {
  const std::int64_t height = shape[1], width = shape[2];
  for (std::int64_t c = 0; c < shape[0]; ++c)
    for (std::int64_t y = 0; y < height; ++y)
      for (std::int64_t x = 0; x < width; ++x) {
        const std::int64_t old_y = y - down, old_x = x - right;
        const bool inside = old_y >= 0 && old_y < height && old_x >= 0 && old_x < width;
        *to++ = inside ? from[(c * height + old_y) * width + old_x] : 0;
      }
}

Shift random_shift(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, std::int64_t most) {
  // The seed of each epoch is a number drawn from the run's, not a sum: (1, 2) and (2, 1) must differ.
  const std::uint64_t key = random_bits(seed, static_cast<std::uint64_t>(epoch));
  const auto draw = [&](std::uint64_t which) {
    const float u = random_uniform(key, 2 * static_cast<std::uint64_t>(sample) + which);
    return static_cast<std::int64_t>(u * static_cast<float>(2 * most + 1)) - most;
  };
  return {draw(0), draw(1)};
}

// A step is a batch, counted from the first of epoch 0. A ticket is a row of a step, and so a sample: ticket
// k is row k % batch_size of step k / batch_size, and step n has slot n % slots. Tickets are issued in order,
// each to one thread.
struct Loader::Ring {
  struct Slot {
    Dataset batch;
    std::int64_t missing = 0;  // rows of its step that are not yet read
    std::int64_t bad_row = 0;  // the first that could not be read,
    std::string error;         // and why; empty if there is none
  };

  Ring(const Source& s, const Options& o);
  // Threads end together, not one after another, when the vector joins them.
  ~Ring() {
    for (std::jthread& worker : workers) worker.request_stop();
  }
  bool may_issue() const { return started && ticket / options.batch_size < freed + options.slots; }
  std::int64_t sample_of(std::int64_t place);
  void read_one(std::unique_lock<std::mutex>& lock);
  std::string read_row(Dataset& batch, std::int64_t row, std::int64_t sample, std::int64_t epoch) const;
  void work(const std::stop_token& stop);

  const Source& source;
  const Options options;
  const Shape shape;
  const std::int64_t batches;

  // Guards all that follows, except the rows of slots: a row belongs to the thread that has its ticket.
  std::mutex mutex;
  std::condition_variable_any may_work;
  std::condition_variable changed;
  std::vector<Slot> slots;
  std::vector<std::int64_t> order;
  std::int64_t order_epoch = -1;
  std::int64_t ticket = 0;  // the next
  // Steps: given to the caller, returned by it, and the end of its epoch.
  std::int64_t taken = 0, freed = 0, end = 0;
  int reading = 0;  // threads that have a ticket
  bool started = false;
  std::vector<std::jthread> workers;  // the last member, so that they end before what they use
};

Loader::Ring::Ring(const Source& s, const Options& o)
    : source(s), options(o), shape(s.image_shape()), batches(s.size() / o.batch_size) {
  Shape all = shape;
  all.insert(all.begin(), options.batch_size);
  for (int i = 0; i < options.slots; ++i)
    slots.push_back({.batch = {Tensor(all), std::vector<int>(static_cast<std::size_t>(options.batch_size))},
                     .error = {}});
}

// Tickets are in order, so one epoch's order at a time is enough.
std::int64_t Loader::Ring::sample_of(std::int64_t place) {
  const std::int64_t rows = batches * options.batch_size, epoch = place / rows;
  if (epoch != order_epoch) order = epoch_order(source.size(), options.seed, epoch), order_epoch = epoch;
  return order[static_cast<std::size_t>(place % rows)];
}

// Takes the next ticket, reads its sample without the lock, and notes that it has.
void Loader::Ring::read_one(std::unique_lock<std::mutex>& lock) {
  const std::int64_t mine = ticket++, step = mine / options.batch_size, row = mine % options.batch_size;
  const std::int64_t sample = sample_of(mine);
  Slot& slot = slots[static_cast<std::size_t>(step) % slots.size()];
  if (row == 0) slot.missing = options.batch_size, slot.error.clear();
  ++reading;
  lock.unlock();
  std::string error = read_row(slot.batch, row, sample, step / batches);
  lock.lock();
  --reading;
  --slot.missing;
  if (!error.empty() && (slot.error.empty() || row < slot.bad_row))
    slot.error = std::move(error), slot.bad_row = row;
  if (slot.missing == 0 || (!started && reading == 0)) changed.notify_one();
}

// Why it could not be read; empty if it was.
std::string Loader::Ring::read_row(Dataset& batch, std::int64_t row, std::int64_t sample,
                                   std::int64_t epoch) const {
  const std::int64_t pixels = numel(shape);
  float* image = batch.images.data() + row * pixels;
  int& label = batch.labels[static_cast<std::size_t>(row)];
  std::string why = "of no std::exception";
  try {
    const auto [down, right] = random_shift(options.seed, epoch, sample, options.most_shift);
    if (down == 0 && right == 0) {
      label = source.read(sample, image);
    } else {
      std::vector<float> as_read(static_cast<std::size_t>(pixels));
      label = source.read(sample, as_read.data());
      shift_image(as_read.data(), image, shape, down, right);
    }
    return "";
  } catch (const std::exception& error) {
    why = error.what();
  } catch (...) {
  }
  return "Loader: sample " + std::to_string(sample) + " (" + source.name(sample) + ") cannot be read: " + why;
}

void Loader::Ring::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex);
  while (may_work.wait(lock, stop, [&] { return may_issue(); }) && !stop.stop_requested()) read_one(lock);
}

Loader::Loader(const Source& source, const Options& options) {
  if (options.batch_size < 1 || options.slots < 1 || options.workers < 0 || options.most_shift < 0)
    throw std::invalid_argument(
        "Loader: batch_size and slots must be at least 1, workers and most_shift at least 0");
  ring_ = std::make_unique<Ring>(source, options);
  for (int i = 0; i < options.workers; ++i)
    ring_->workers.emplace_back([ring = ring_.get()](const std::stop_token& stop) { ring->work(stop); });
}

Loader::~Loader() = default;

std::int64_t Loader::batches() const {
  return ring_->batches;
}

void Loader::start(std::int64_t epoch, std::int64_t batch) {
  Ring& ring = *ring_;
  if (epoch < 0 || batch < 0 || batch > ring.batches)
    throw std::invalid_argument("start: epoch must not be negative, and batch be from 0 to " +
                                std::to_string(ring.batches) + ", but they are " + std::to_string(epoch) +
                                " and " + std::to_string(batch));
  const std::int64_t step = epoch * ring.batches + batch;
  std::unique_lock lock(ring.mutex);
  ring.end = (epoch + 1) * ring.batches;
  if (ring.started && step == ring.taken) return;
  ring.started = false;  // no more tickets; then wait for those that are out, for they write to slots
  ring.changed.wait(lock, [&] { return ring.reading == 0; });
  ring.ticket = step * ring.options.batch_size;
  ring.taken = ring.freed = step;
  ring.started = ring.batches > 0;
  ring.may_work.notify_all();
}

const Dataset* Loader::next() {
  Ring& ring = *ring_;
  std::unique_lock lock(ring.mutex);
  ring.freed = ring.taken;
  ring.may_work.notify_all();
  if (ring.taken == ring.end) return nullptr;
  Ring::Slot& slot = ring.slots[static_cast<std::size_t>(ring.taken) % ring.slots.size()];
  const auto full = [&] {
    return ring.ticket >= (ring.taken + 1) * ring.options.batch_size && slot.missing == 0;
  };
  while (!full()) {
    if (ring.workers.empty())
      ring.read_one(lock);
    else
      ring.changed.wait(lock);
  }
  ++ring.taken;
  if (!slot.error.empty()) throw std::runtime_error(slot.error);
  return &slot.batch;
}

}  // namespace engine
