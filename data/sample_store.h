#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"

// What lies in a file, before it is decoded. A format is a SampleStore to read it and a SampleWriter to write
// it; between the two a sample travels as the bytes it is stored in, so that converting loses nothing.

namespace athanor {

/// How the bytes of a sample are to be read.
enum class Codec : std::uint8_t {
  raw = 0,  ///< [H, W, C] u8, dense
  jpeg = 1,
  png = 2,
};

/// "raw", "jpeg" or "png".
const char* name_of(Codec codec);

/// One sample as it is stored.
struct StoredSample {
  std::span<const std::byte> bytes;
  Codec codec = Codec::raw;
  /// Of raw samples; 0 where only the encoded bytes know.
  std::int64_t height = 0, width = 0, channels = 0;
  std::int64_t label = 0;
};

/// Labelled samples in a file or folder, in a fixed order.
class SampleStore {
 public:
  SampleStore() = default;
  virtual ~SampleStore() = default;
  SampleStore(const SampleStore&) = delete;
  SampleStore& operator=(const SampleStore&) = delete;

  /// How many samples there are.
  virtual std::int64_t size() const = 0;
  /// Height, width and channels where all samples are raw and of that size, else 0, 0, 0; and the classes.
  virtual const ImageSpec& spec() const = 0;
  /// A name for each class, or nothing where the format has none.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// Sample `index` in [0, size()). Its bytes are valid until the next fetch() with the same `scratch`, which
  /// they may lie in; a store that maps its file leaves it alone. Thread-safe, with a scratch of each
  /// thread's own. Throws IoError naming file and offset where it cannot.
  virtual StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const = 0;
  /// Where sample `index` lies, for messages: "FILE" or "FILE, offset N".
  virtual std::string where(std::int64_t index) const = 0;
  /// True where fetch() neither reads files nor decompresses.
  virtual bool resident() const { return false; }
  /// Says that samples [first, first + count) will be fetched soon.
  virtual void will_need(std::int64_t /*first*/, std::int64_t /*count*/) const {}
};

/// Writes a file or folder that a SampleStore reads back: same samples, same order, same labels.
class SampleWriter {
 public:
  SampleWriter() = default;
  virtual ~SampleWriter() = default;  ///< Without finish(): nothing is left behind.
  SampleWriter(const SampleWriter&) = delete;
  SampleWriter& operator=(const SampleWriter&) = delete;

  /// The next sample. Throws ArgumentError where the format cannot hold it, saying which can; IoError where
  /// it cannot be written.
  virtual void add(const StoredSample& sample) = 0;
  /// Makes the file whole, durable and visible under its name. Throws IoError.
  virtual void finish() = 0;
};

}  // namespace athanor
